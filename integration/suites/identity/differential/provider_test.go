package differential

import (
	"net/http"
	"testing"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// keyFetches: who signs with another key makes the apiserver fetch the keys
// for each token, and the proxy once in five seconds; who changes a signature makes
// the apiserver fetch, and the proxy not at all.
func (w *world) keyFetches(t *testing.T) {
	idp := w.idps[prefixes]
	tests := []struct {
		name             string
		token            func() string
		apiserver, proxy int // fetches for ten tokens
	}{
		{"known key, changed signature", func() string { return oidc.FlipSignatureBit(idp.Token(oidc.Alice, nil)) }, 10, 0},
		{"unknown key", func() string { return idp.EmbeddedKey(idp.Claims(oidc.Alice, nil)) }, 10, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fetches := func(base string) int {
				before := idp.Calls(oidc.Keys)
				for range 10 {
					if got := w.ask(t, base, kube.Bearer(tt.token())); got != "401" {
						t.Errorf("%s: %s", base, got)
					}
				}
				return idp.Calls(oidc.Keys) - before
			}
			apiserver, proxied := fetches(w.api.URL), fetches(w.proxied(prefixes))
			if apiserver != tt.apiserver || proxied != tt.proxy {
				t.Errorf("fetches: %d by the apiserver, %d by the proxy, want %d and %d", apiserver, proxied, tt.apiserver, tt.proxy)
			}
		})
	}
}

// providerAway: tokens of known keys are good at both while the provider is
// away. One that only the provider could judge is a 401 of the apiserver and a
// 503 of the proxy.
func (w *world) providerAway(t *testing.T) {
	idp := w.idps[email]
	known := kube.Bearer(idp.Token(oidc.Alice, map[string]any{"jti": nil}))
	if err := idp.AddKey("late", jose.ES256); err != nil {
		t.Fatal(err)
	}
	late := kube.Bearer(idp.Mint(idp.Claims(oidc.Alice, map[string]any{"jti": nil}), oidc.Sign{KeyID: "late"}))
	idp.Suspend()
	const alice = "alice@example.test [team-a|a,b]"
	for _, tt := range []struct {
		name             string
		header           http.Header
		apiserver, proxy string
	}{
		{"known key", known, alice, alice},
		{"unknown key", late, "401", "503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.ask(t, w.api.URL, tt.header); got != tt.apiserver {
				t.Errorf("the apiserver: %s, want %s", got, tt.apiserver)
			}
			if got := w.ask(t, w.proxied(email), tt.header); got != tt.proxy {
				t.Errorf("the proxy: %s, want %s", got, tt.proxy)
			}
		})
	}
}
