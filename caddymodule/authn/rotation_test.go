package authn

import (
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
)

// TOK-01, AUTH-5: a token of a new key that came too early for the next reading of
// the keys is not remembered as bad: it is good as soon as the keys are read.
func TestEarlyTokenOfANewKey(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	w.check(t, w.token(t, k1(), p), "alice", "")
	w.check(t, w.token(t, by("stranger", jose.RS256, issuertest.RSA2()), p), "", errUnknownKey.Reason)
	p.Reads(t, 2)

	p.Publish(k1().JWK(), k2().JWK())
	token := w.token(t, k2(), p)
	w.clock.Step(3 * time.Second)
	w.check(t, token, "", errUnknownKey.Reason)
	p.Reads(t, 2)
	w.clock.Step(2 * time.Second)
	w.check(t, token, "alice", "")
	p.Reads(t, 3)

	// One that was looked for is remembered.
	w.clock.Step(5 * time.Second)
	unknown := w.token(t, by("k3", jose.RS256, issuertest.RSA2()), p)
	w.check(t, unknown, "", errUnknownKey.Reason)
	p.Publish(by("k3", jose.RS256, issuertest.RSA2()).JWK())
	w.check(t, unknown, "", errUnknownKey.Reason)
	p.Reads(t, 4)
}
