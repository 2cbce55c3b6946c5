package faults

import (
	"net/http"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// AUTH-12: what a provider said about a token is asked again after
// token_cache_ttl and not before; a token it refuses then is a 401 within that
// time.
func TestAUTH12TokenCacheTTL(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	sites := map[string]*site{"jwt": openSite(t, wayTo("oidc-userinfo")), "opaque": openSite(t, wayTo("oidc-introspection"))}
	w := newWorld(t, proxy.Options{Settings: "token_cache_ttl " + ttl.String()}, sites)
	for name, s := range sites {
		t.Run(name, func(t *testing.T) {
			b := bearer{cluster: name, token: s.token(s), user: oidc.Alice, kind: name}
			asked := func() int { return s.idp.Calls(s.endpoint) }
			var last time.Time // when the request began that had the provider asked
			for asks := range 3 {
				var began time.Time
				hub.Eventually(t, "another call", soon, func() bool {
					began = time.Now()
					w.mustServe(t, &b)
					return asked() > asks
				})
				if asked() != asks+1 || asks > 0 && time.Since(last) < ttl {
					t.Errorf("%d calls of %s, the last %v after the one before", asked(), s.endpoint, time.Since(last))
				}
				last = began
			}
			s.idp.RevokeAccessToken(b.token)
			began := time.Now()
			took := hub.Eventually(t, "the end of a revoked token", soon, func() bool {
				a, err := w.ask(t.Context(), name, b.token)
				return err == nil && a.Code == http.StatusUnauthorized
			})
			t.Logf("a revoked token ended after %v", took.Round(time.Millisecond))
			if time.Since(began) > ttl+5*time.Second {
				t.Errorf("a revoked token was good for %v more", took)
			}
		})
	}
}
