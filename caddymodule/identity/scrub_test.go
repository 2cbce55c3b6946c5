package identity

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ID-5, HDR-03, HDR-05: which names go and which stay.
func TestScrub(t *testing.T) {
	tests := []struct {
		key                                string
		gone, withCookies, withImpersonate bool
	}{
		{"X-Remote-User", true, true, true},
		{"x-REMOTE-user", true, true, true},
		{"X_Remote_User", true, true, true},
		{"X-Remote_Group", true, true, true},
		{"X_Remote-Extra_scopes", true, true, true},
		{"X.Remote.User", true, true, true},
		{"X-Remote-", true, true, true},
		{"X-Remote-Anything", true, true, true},
		{"Impersonate-User", true, true, false},
		{"impersonate-uid", true, true, false},
		{"Impersonate-Extra-Reason_x", true, true, false},
		{"Impersonate_User", true, true, true},
		{"impersonate.group", true, true, true},
		{"X-Forwarded-User", true, true, true},
		{"X_FORWARDED_USER", true, true, true},
		{"X-Forwarded-Groups", true, true, true},
		{"X-Real-Ip", true, true, true},
		{"x_real_ip", true, true, true},
		{"Forwarded", true, true, true},
		{"Cookie", true, false, true},
		{"cookie", true, false, true},
		{"Authorization", true, true, true},
		{"authorization", true, true, true},
		{"Proxy-Authorization", true, true, true},
		{"Proxy_Authorization", true, true, true},
		{"X_Forwarded_For", true, true, true},

		{"X-Forwarded-For", false, false, false},
		{"X-Forwarded-Proto", false, false, false},
		{"X-Remote", false, false, false},
		{"X-Remoteuser", false, false, false},
		{"Impersonate", false, false, false},
		{"Accept", false, false, false},
		{"Sec-Websocket-Protocol", false, false, false},
		{"Via", false, false, false},
		{"User-Agent", false, false, false},
		{"", false, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.key, func(t *testing.T) {
			for name, c := range map[string]struct {
				o    ScrubOptions
				gone bool
			}{
				"defaults":           {ScrubOptions{}, tt.gone},
				"keep cookies":       {ScrubOptions{KeepCookies: true}, tt.withCookies},
				"keep impersonation": {ScrubOptions{KeepImpersonation: true}, tt.withImpersonate},
			} {
				h := http.Header{tt.key: {"root", "admin"}, "Accept-Language": {"fr"}}
				Scrub(h, c.o)
				if _, stays := h[tt.key]; stays == c.gone {
					t.Errorf("%s: stays = %t", name, stays)
				}
				if len(h["Accept-Language"]) != 1 {
					t.Errorf("%s: another header is gone", name)
				}
			}
		})
	}
}

func TestHasImpersonation(t *testing.T) {
	for key, want := range map[string]bool{
		"Impersonate-User": true, "impersonate-uid": true, "Impersonate_Group": true,
		"Impersonate-Extra-Reason": true, "Impersonate": false, "X-Impersonate-User": false, "": false,
	} {
		if got := HasImpersonation(http.Header{key: {""}}); got != want {
			t.Errorf("HasImpersonation(%q) = %t", key, got)
		}
	}
}

// ID-6: what Scrub leaves with KeepImpersonation and what Impersonation gives
// is the same set, so that putting it back adds nothing.
func TestImpersonationIsWhatScrubLeaves(t *testing.T) {
	h := http.Header{
		"Impersonate-User": {"bob"}, "Impersonate-Group": {"a", "b"}, "impersonate-uid": {"7"}, "Impersonate-Extra-A_b": {"x"},
		"Impersonate-Extra_x": {"root"}, "Impersonate-Extra-": {"root"}, "Impersonate-Groups": {"root"}, "Impersonate_User": {"root"}, "Impersonate.Group": {"root"}, "Accept": {"*/*"}, "X-Remote-User": {"root"}, "Impersonate": {"x"},
	}
	want := http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"a", "b"}, "impersonate-uid": {"7"}, "Impersonate-Extra-A_b": {"x"}}
	if diff := cmp.Diff(want, Impersonation(h)); diff != "" {
		t.Errorf("the set (-want +got):\n%s", diff)
	}
	Scrub(h, ScrubOptions{KeepImpersonation: true})
	if diff := cmp.Diff(want, Impersonation(h)); diff != "" {
		t.Errorf("the set after Scrub (-want +got):\n%s", diff)
	}
	if got := Impersonation(http.Header{"Accept": {"*/*"}}); len(got) != 0 {
		t.Errorf("a set of nothing: %v", got)
	}
}

func BenchmarkScrub(b *testing.B) {
	h := benchHeader()
	b.ReportAllocs()
	for b.Loop() {
		Scrub(h, ScrubOptions{})
	}
}
