package authn

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/exchange"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// AUTH-14, AUTH-15 over OidcProvider: /userinfo sees the exchanged token and
// never the bearer, and a token it no longer knows stops within the TTL.
func TestExchangeOverOIDC(t *testing.T) {
	p := newIDP(t, k1().JWK())
	o := newOIDCWorld(t, p, nil)
	w := newExchangeWorld(t, o.clock, o.cache, uncached(o.Validator), p.URL)
	good := o.signed(t, "exp", o.clock.Now().Unix()+3600)
	w.endpoint.setAnswer(issue(good, 3600))
	w.check(t, "machine-1", "alice by "+good)
	w.check(t, "machine-1", "alice by "+good)
	w.exchanges(t, "machine-1")
	w.clock.Step(testTTL)
	w.check(t, "machine-1", "alice by "+good)
	w.exchanges(t)
	p.userinfo.mu.Lock()
	sent := slices.Clone(p.userinfo.tokens)
	p.userinfo.mu.Unlock()
	if !slices.Equal(sent, []string{good, good}) || p.introspection.calls() != 0 {
		t.Errorf("%d tokens were sent to /userinfo, %d introspected", len(sent), p.introspection.calls())
	}

	p.revoke(good)
	w.endpoint.setAnswer(status(400, `{"error":"invalid_grant"}`))
	w.clock.Step(testTTL)
	w.check(t, "machine-1", errExchange.Reason)
	w.exchanges(t, "machine-1")

	// What an exchange gives may be opaque, and is introspected then.
	w.exchanging.client = forwardingAccessTokens(t, w)
	opaque := p.issue("opaque-access-token", alice(), o.active())
	w.endpoint.setAnswer(func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, map[string]any{"access_token": opaque, "issued_token_type": "access_token", "token_type": "Bearer", "expires_in": 600})
	})
	w.check(t, "machine-2", "alice by "+opaque)
	if n := p.introspection.calls(); n != 1 {
		t.Errorf("%d introspected", n)
	}
	// The verdict is not one on the bearer itself.
	if _, err := o.Authenticate(t.Context(), "machine-2"); !isRefusal(err) {
		t.Errorf("the validator took the bearer for what it was exchanged for: %v", err)
	}
}

// AUTH-14, AUTH-15 over Kubernetes: the apiserver reviews the token that a
// machine's token was exchanged for, and the own token of all other callers.
func TestExchangeOverKubernetes(t *testing.T) {
	c := newClock()
	cache := NewCache(CacheOptions{Now: c.Now})
	var reviewed []string
	f := &Factory{cache: cache, options: Options{Answers: boundedjson.NewReader(1), TokenCacheTTL: 30 * time.Second}}
	k := f.newKubernetes(func(_ context.Context, token string) (probe.Subject, int, error) {
		reviewed = append(reviewed, token)
		return probe.Subject{Name: "robot"}, http.StatusCreated, nil
	})
	w := newExchangeWorld(t, c, cache, k)
	w.check(t, "machine-1", "robot by exchanged")
	other := issuertest.Encode([]byte(`{"alg":"RS256"}`)) + "." + issuertest.Encode([]byte(`{"iss":"https://other.example.test"}`)) + ".c2ln"
	w.check(t, other, "robot by ")
	w.check(t, other+"==", "robot by ")
	w.clock.Step(30 * time.Second)
	w.check(t, "machine-1", "robot by exchanged")
	w.exchanges(t, "machine-1")
	if want := []string{"exchanged", other, other + "==", "exchanged"}; !slices.Equal(reviewed, want) {
		t.Errorf("the apiserver reviewed %q", reviewed)
	}
}

// forwardingAccessTokens is the client of the world, with forward: AccessToken.
func forwardingAccessTokens(t testing.TB, w *exchangeWorld) *exchange.Client {
	t.Helper()
	client, err := exchange.New(&k8swatch.TokenExchange{
		TokenURL: w.endpoint.URL + "/token", CertificateAuthority: tlstest.CA(w.endpoint.Server), ClientID: "proxy-a", Forward: v1.ForwardAccessToken,
	}, boundedjson.NewReader(1), nil, w.clock.Now, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
