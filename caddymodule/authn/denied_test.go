package authn

import (
	"errors"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Section 15, denied_targets: no connection to a provider leads to a denied
// address, whichever of its URLs has it. Such a token is not judged, which is no
// 401, and no message has the address.
func TestDeniedTargets(t *testing.T) {
	// 127.0.0.1 is where the providers of these tests are. Nothing listens on
	// 127.0.0.2.
	const allowed, elsewhere = "127.0.0.1", "https://127.0.0.2:1"
	for name, tt := range map[string]struct {
		denied    string
		endpoints map[string]any
		exchange  string // token_url
		opaque    bool
	}{
		"the issuer":             {denied: allowed},
		"jwks_uri":               {endpoints: map[string]any{"jwks_uri": elsewhere}},
		"userinfo_endpoint":      {endpoints: map[string]any{"userinfo_endpoint": elsewhere}},
		"introspection_endpoint": {endpoints: map[string]any{"introspection_endpoint": elsewhere}, opaque: true},
		"token_url":              {exchange: elsewhere, opaque: true},
		"a name in token_url":    {exchange: "https://localhost.:1", denied: "localhost", opaque: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t, k1().JWK())
			p.discovers(tt.endpoints)
			o := newOIDCWorld(t, p, func(cfg *oidcConfig) {
				list := []string{"127.0.0.2", "::1"}
				if tt.denied != "" {
					list = append(list, tt.denied)
				}
				var err error
				if cfg.Denied, err = egress.Parse(list); err != nil {
					t.Fatal(err)
				}
				if tt.exchange != "" {
					cfg.Exchange = &k8swatch.TokenExchange{TokenURL: tt.exchange, ClientID: "proxy-a"}
				}
			})
			token := o.signed(t)
			if tt.opaque {
				token = p.issue("opaque", alice(), o.active())
			}
			_, err := o.Authenticate(t.Context(), token)
			var unavailable *Unavailable
			if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Fault, "denied_targets") {
				t.Fatalf("got %v", err)
			}
			faults := strings.Join(o.Faults(), "; ")
			if !strings.Contains(faults, "it is at an address to which this proxy does not connect (denied_targets)") || strings.Contains(faults, "127.0.0.2") && tt.exchange == "" {
				t.Errorf("faults %q", faults)
			}
			if tt.denied == allowed {
				p.Reads(t, 0)
			}
		})
	}
}
