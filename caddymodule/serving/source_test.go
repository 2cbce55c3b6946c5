package serving

import "testing"

// The limits on refused tokens count by network: the owner of one IPv6 address
// has the /64 around it.
func TestSourceOf(t *testing.T) {
	for ip, want := range map[string]string{
		"":                        "",
		"198.51.100.7":            "198.51.100.7",
		"::ffff:198.51.100.7":     "::ffff:198.51.100.7",
		"2001:db8:1:2:3:4:5:6":    "2001:db8:1:2::/64",
		"2001:db8:1:2::1":         "2001:db8:1:2::/64",
		"fe80::1":                 "fe80::/64",
		"something else entirely": "something else entirely",
	} {
		if got := SourceOf(ip); got != want {
			t.Errorf("%q: %q, want %q", ip, got, want)
		}
	}
}
