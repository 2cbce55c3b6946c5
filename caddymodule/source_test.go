package caddymodule

import (
	"context"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The limits on refused tokens count by whoever can choose the address.
func TestSourceOf(t *testing.T) {
	for ip, want := range map[string]string{
		"":                        "",
		"198.51.100.7":            "198.51.100.7",
		"::ffff:198.51.100.7":     "::ffff:198.51.100.7",
		"2001:db8:1:2:3:4:5:6":    "2001:db8:1:2::/64",
		"2001:db8:1:2::1":         "2001:db8:1:2::/64",
		"fe80::1%eth0":            "fe80::/64",
		"something else entirely": "something else entirely",
	} {
		ctx := context.WithValue(t.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: ip})
		if got := sourceOf(ctx); got != want {
			t.Errorf("%q: %q, want %q", ip, got, want)
		}
	}
	if got := sourceOf(t.Context()); got != "" {
		t.Errorf("without an address: %q", got)
	}
}
