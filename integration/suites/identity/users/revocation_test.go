package users

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
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
	type credential struct {
		name, cluster, bearer string
		// within is when it must have stopped, from its revocation on.
		within time.Duration
		// machine says that it is an API token; what it was exchanged for lives
		// on, unless both are revoked.
		machine, both bool

		path    string
		revoked time.Time
		// last is when it was sent for the last time with success.
		last time.Time
	}
	credentials := []*credential{
		{name: "a human's token, userinfo", cluster: "userinfo", bearer: human, within: shortTTL},
		{name: "an opaque token, introspection", cluster: "introspecting", bearer: opaque, within: shortTTL},
		{name: "an API token, its exchanged token verified locally", cluster: "jwt", bearer: p.APIToken(oidc.Robot), within: lifetime, machine: true},
		{name: "an API token in the form of a JWS", cluster: "jwt", bearer: p.APITokenJWS(oidc.Robot), within: lifetime, machine: true},
		{name: "an API token and its JWT, userinfo", cluster: "exchanged-userinfo", bearer: p.APIToken(oidc.Robot), within: shortTTL, machine: true, both: true},
		{name: "an API token and its opaque token, introspection", cluster: "exchanged-opaque", bearer: p.APITokenJWS(oidc.Robot), within: shortTTL, machine: true, both: true},
	}
	for i, c := range credentials {
		c.path = fmt.Sprintf("/api/v1/namespaces/revocation-%d", i)
		if a := ask(t, px, "h2", c.cluster, c.path, c.bearer); a.Code != http.StatusOK {
			t.Fatalf("%s, before: %d %s", c.name, a.Code, a.Body)
		}
		sent, err := up.Wait(t.Context(), func(r *rawserver.Request) bool { return strings.HasSuffix(r.Target, c.path) })
		if err != nil {
			t.Fatal(err)
		}
		if c.machine {
			p.RevokeAPIToken(c.bearer)
		} else {
			p.RevokeAccessToken(c.bearer)
		}
		if c.both {
			p.RevokeAccessToken(strings.TrimPrefix(sent.Header.Get("Authorization"), "Bearer "))
		}
		c.revoked = time.Now()
	}
	for live := credentials; len(live) > 0; time.Sleep(20 * time.Millisecond) {
		live = slices.DeleteFunc(slices.Clone(live), func(c *credential) bool {
			at := time.Now()
			a := ask(t, px, "h2", c.cluster, c.path, c.bearer)
			if a.Code == http.StatusOK {
				if c.last = at; at.Sub(c.revoked) > time.Minute {
					t.Fatalf("%s works for ever", c.name)
				}
				return false
			}
			a.refused(t, http.StatusUnauthorized, "")
			return true
		})
	}
	for _, c := range credentials {
		worked := max(0, c.last.Sub(c.revoked)) // 0: not once more
		t.Logf("%s: accepted for the last time %v after its revocation", c.name, worked.Round(10*time.Millisecond))
		if worked > c.within+late {
			t.Errorf("%s was accepted %v after its revocation, want %v at most", c.name, worked, c.within)
		}
		// And it stays out.
		ask(t, px, "h2", c.cluster, c.path, c.bearer).refused(t, http.StatusUnauthorized, "")
	}
}
