package authn

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"
)

// AUTH-14, AUTH-15 over OidcProvider: /userinfo sees the exchanged token and
// never the bearer, and a token it no longer knows stops within the TTL.
func TestExchangeOverOIDC(t *testing.T) {
	p := newIDP(t, k1().jwk())
	o := newOIDCWorld(t, p, nil)
	w := newExchangeWorld(t, o.clock, o.world.cache, o.OIDCProvider)
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
	w.check(t, "machine-1", ReasonExchange)
	w.exchanges(t, "machine-1")

	// What an exchange gives may be opaque, and is introspected then.
	w.use = true
	opaque := p.issue("opaque-access-token", alice(), o.active())
	w.endpoint.setAnswer(func(rw http.ResponseWriter, _ *http.Request) {
		writeJSON(rw, map[string]any{"access_token": opaque, "issued_token_type": "access_token", "token_type": "Bearer", "expires_in": 600})
	})
	w.check(t, "machine-2", "alice by "+opaque)
	if n := p.introspection.calls(); n != 1 {
		t.Errorf("%d introspected", n)
	}
	// The verdict is not one on the bearer itself.
	if _, err := o.OIDCProvider.Authenticate(t.Context(), "machine-2"); !isRefusal(err) {
		t.Errorf("the validator took the bearer for what it was exchanged for: %v", err)
	}
}

// AUTH-14, AUTH-15 over Kubernetes: the apiserver reviews what a machine's
// token was exchanged for, and everybody else's own.
func TestExchangeOverKubernetes(t *testing.T) {
	c := newClock()
	cache := NewCache(0, c.Now)
	var reviewed []string
	k := NewKubernetes(KubernetesConfig{UID: "uid-1", Hash: "hash-1", TTL: 30 * time.Second, Review: func(_ context.Context, token string) (*Review, error) {
		reviewed = append(reviewed, token)
		return &Review{Name: "robot"}, nil
	}}, cache)
	w := newExchangeWorld(t, c, cache, k)
	w.check(t, "machine-1", "robot by exchanged")
	other := encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(`{"iss":"https://other.example.test"}`)) + ".c2ln"
	w.check(t, other, "robot by ")
	w.check(t, other+"==", "robot by ")
	w.clock.Step(30 * time.Second)
	w.check(t, "machine-1", "robot by exchanged")
	w.exchanges(t, "machine-1")
	if want := []string{"exchanged", other, other + "==", "exchanged"}; !slices.Equal(reviewed, want) {
		t.Errorf("the apiserver reviewed %q", reviewed)
	}
}
