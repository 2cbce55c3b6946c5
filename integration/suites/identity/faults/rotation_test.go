package faults

import (
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// TOK-01, AUTH-5: the first token that a new key signed is good at once, at the
// price of one reading of the keys, whatever validates it. Tokens of the old key
// go on.
func TestTOK01RotatedKeys(t *testing.T) {
	sites := map[string]*site{}
	for _, name := range []string{"jwt-keys", "oidc-keys", "exchange"} {
		sites[name] = openSite(t, wayTo(name))
	}
	w := newWorld(t, proxy.Options{}, sites)
	for name, s := range sites {
		t.Run(name, func(t *testing.T) {
			fresh := func(kind string) *bearer {
				return &bearer{cluster: name, token: s.token(s), user: s.user, kind: kind}
			}
			old, unseen := fresh("token of the old key"), fresh("unseen token of the old key")
			w.mustServe(t, old)
			if n := s.idp.Calls(oidc.Keys); n != 1 {
				t.Errorf("the keys were read %d times", n)
			}
			if err := s.idp.AddKey("k2", jose.ES256); err != nil {
				t.Fatal(err)
			}
			s.idp.UseKey("k2")
			w.mustServe(t, fresh("token of the new key"))
			w.mustServe(t, fresh("second token of the new key"))
			w.mustServe(t, old)
			w.mustServe(t, unseen)
			if n := s.idp.Calls(oidc.Keys); n != 2 {
				t.Errorf("after the rotation the keys were read %d times", n)
			}
		})
	}
}
