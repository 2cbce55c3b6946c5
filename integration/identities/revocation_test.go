package identities

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// shortTTL is the token_cache_ttl of these tests, lifetime that of the
	// exchanged tokens.
	shortTTL = 2 * time.Second
	lifetime = 8 * time.Second
	// late is what a loaded machine may add.
	late = 3 * time.Second
)

// Revocation at the provider: an API token stops working when what it was
// exchanged for ends, and whatever userinfo or introspection is asked about
// each time at most token_cache_ttl later (AUTH-12, AUTH-15).
func TestAUTH12Revocation(t *testing.T) {
	t.Parallel()
	p := oidc.Start(t, oidc.Options{Clients: []oidc.Client{
		{ID: oidc.ClientID, TokenLifetime: lifetime},
		{ID: oidc.OpaqueClientID, OpaqueAccessTokens: true, Audience: []string{oidc.SecretClientID, oidc.ClientID}},
		{ID: oidc.SecretClientID, Secret: oidc.ClientSecret},
		{ID: "long-lived"},
	}})
	up := rawserver.Start(t, rawserver.Options{NoIdentity: true})
	clusters := map[string]string{}
	for name, auth := range map[string]*v1.AuthConfig{
		"userinfo":           byOIDC(p),
		"introspecting":      byOIDC(p, introspecting),
		"jwt":                exchanging(byJWT(p), p),
		"exchanged-userinfo": exchanging(byOIDC(p), p, accessToken, client("long-lived", "")),
		"exchanged-opaque":   exchanging(byOIDC(p, introspecting), p, accessToken, client(oidc.OpaqueClientID, "")),
	} {
		clusters[name+".yaml"] = recorderManifest(name, v1.ModePassthrough, up, auth)
	}
	px := startProxy(t, "token_cache_ttl "+shortTTL.String(), clusters, nil)

	human, opaque := p.MustLogin(t, oidc.Alice, oidc.ClientID).AccessToken, p.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken
	tests := []struct {
		name, cluster, bearer string
		// within is when it must have stopped, from its revocation on.
		within time.Duration
		// machine says that it is an API token; what it was exchanged for lives
		// on, unless both are revoked.
		machine, both bool
	}{
		{"a human's token, userinfo", "userinfo", human, shortTTL, false, false},
		{"an opaque token, introspection", "introspecting", opaque, shortTTL, false, false},
		{"an API token, its exchanged token verified locally", "jwt", p.APIToken(oidc.Robot), lifetime, true, false},
		{"an API token in the form of a JWS", "jwt", p.APITokenJWS(oidc.Robot), lifetime, true, false},
		{"an API token and its JWT, userinfo", "exchanged-userinfo", p.APIToken(oidc.Robot), shortTTL, true, true},
		{"an API token and its opaque token, introspection", "exchanged-opaque", p.APITokenJWS(oidc.Robot), shortTTL, true, true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := fmt.Sprintf("/api/v1/namespaces/revocation-%d", i)
			if a := ask(t, px, "h2", tt.cluster, path, tt.bearer); a.Code != http.StatusOK {
				t.Fatalf("before: %d %s", a.Code, a.Body)
			}
			sent, err := up.Wait(t.Context(), func(r *rawserver.Request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.Target, path)
			})
			if err != nil {
				t.Fatal(err)
			}
			if tt.machine {
				p.RevokeAPIToken(tt.bearer)
			} else {
				p.RevokeAccessToken(tt.bearer)
			}
			if tt.both {
				p.RevokeAccessToken(sent.Header.Get("Authorization")[len("Bearer "):])
			}
			revoked := time.Now()
			var last time.Time // when it was last accepted
			for {
				at := time.Now()
				a := ask(t, px, "h2", tt.cluster, path, tt.bearer)
				if a.Code != http.StatusOK {
					a.refused(t, http.StatusUnauthorized, "")
					break
				}
				if last = at; time.Since(revoked) > time.Minute {
					t.Fatal("it works for ever")
				}
				time.Sleep(20 * time.Millisecond)
			}
			if last.IsZero() {
				t.Fatal("it was not remembered: each request asks the provider")
			}
			worked := last.Sub(revoked)
			t.Logf("accepted for the last time %v after its revocation", worked.Round(10*time.Millisecond))
			if worked > tt.within+late {
				t.Errorf("accepted %v after its revocation, want %v at most", worked, tt.within)
			}
			// And it stays out.
			ask(t, px, "h2", tt.cluster, path, tt.bearer).refused(t, http.StatusUnauthorized, "")
		})
	}
}
