package keys

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// TOK-01: a new key counts on the first try, at the price of one read.
func TestRotation(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	w.check(t, w.token(t, k1(), p), nil)
	p.Reads(t, 1)

	p.Publish(k1().JWK(), k2().JWK())
	w.check(t, w.token(t, k2(), p), nil)
	p.Reads(t, 2)
	w.check(t, w.token(t, k2(), p, "n", 1), nil)
	w.check(t, w.token(t, k1(), p, "n", 1), nil)
	p.Reads(t, 2)
	if n := p.Discoveries.Load(); n != 1 {
		t.Errorf("%d discoveries, want 1", n)
	}

	// Withdrawn: what it verified goes on until the next read, and no longer.
	remembered := w.token(t, k1(), p)
	w.check(t, remembered, nil)
	p.Publish(k2().JWK())
	w.clock.Step(keysAge)
	w.check(t, remembered, ErrUnknownKey)
	w.check(t, w.token(t, k2(), p), nil)
	p.Reads(t, 3)
	w.check(t, w.token(t, k1(), p, "n", 2), ErrUnknownKey)
	p.Reads(t, 4) // an unknown kid, as any other
}

// AUTH-5: results verified with a key that is gone are dropped, also when an
// unknown kid of another token brought the news.
func TestWithdrawnKeyEndsResults(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	remembered := w.token(t, k1(), p)
	w.check(t, remembered, nil)
	p.Publish(k2().JWK())
	w.check(t, remembered, nil) // it is not known yet
	w.check(t, w.token(t, k2(), p), nil)
	w.check(t, remembered, ErrUnknownKey)

	// Another key under the kid is another key.
	p.Publish(by("k2", jose.RS256, issuertest.RSA1()).JWK())
	old := w.token(t, k2(), p)
	w.check(t, old, nil)
	w.clock.Step(keysAge)
	w.check(t, old, ErrSignature)
}

// AUTH-5: how often a bad token may have the keys read.
func TestReadsAreLimited(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	strangers := 0
	unknown := func() string {
		strangers++
		return w.token(t, by(fmt.Sprint("stranger-", strangers), jose.RS256, issuertest.RSA2()), p)
	}
	// The very first token reads once: there cannot be news since.
	w.check(t, unknown(), ErrUnknownKey)
	p.Reads(t, 1)
	for range 5 {
		w.check(t, unknown(), ErrUnknownKey)
	}
	p.Reads(t, 2)
	w.clock.Step(unknownKeyPause - time.Second)
	w.check(t, unknown(), ErrUnknownKey)
	p.Reads(t, 2)
	w.clock.Step(time.Second)
	w.check(t, unknown(), ErrUnknownKey)
	w.check(t, unknown(), ErrUnknownKey)
	p.Reads(t, 3)

	// A known kid with a bad signature never does.
	w.clock.Step(unknownKeyPause)
	for n := range 5 {
		w.check(t, w.token(t, by("k1", jose.RS256, issuertest.RSA2()), p, "n", n), ErrSignature)
		w.check(t, w.token(t, by("k1", jose.ES256, issuertest.EC256()), p, "n", n), ErrSignature)
	}
	p.Reads(t, 3)

	// Several tokens at once share one read.
	var wait sync.WaitGroup
	tokens := make([]string, 20)
	for i := range tokens {
		tokens[i] = unknown()
	}
	for _, token := range tokens {
		wait.Go(func() { w.check(t, token, ErrUnknownKey) })
	}
	wait.Wait()
	p.Reads(t, 4)
}

// AUTH-5: strangers who send unknown kids, and even the very kid of the new key
// before there is one, keep no one from a key that the issuer begins to use.
func TestRotationAmongStrangers(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	from := func(address, token string) error {
		_, err := verify(idp.WithSource(t.Context(), address), w.Handle, token)
		return err
	}
	n := 0
	stranger := func(kid string) {
		t.Helper()
		n++
		if err := from("192.0.2.66", w.token(t, by(kid, jose.RS256, issuertest.RSA1()), p, "n", n)); !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("a stranger: %v", err)
		}
	}
	w.check(t, w.token(t, k1(), p), nil)
	for range 60 {
		stranger(fmt.Sprint("stranger-", n))
		stranger("k2")
		w.clock.Step(time.Second)
	}
	before := p.Discoveries.Load()
	p.Publish(k1().JWK(), k2().JWK())
	stranger(fmt.Sprint("stranger-", n)) // may have the keys read, or not
	token := w.token(t, k2(), p)
	if err := from("198.51.100.1", token); err != nil && err != ErrUnknownYet {
		t.Fatal(err)
	}
	w.clock.Step(unknownKeyPause)
	if err := from("198.51.100.1", token); err != nil {
		t.Errorf("after %v: %v", unknownKeyPause, err)
	}
	if n := p.Discoveries.Load(); n != before {
		t.Errorf("the discovery document was read %d times for a kid", n-before)
	}
}

// AUTH-5: a client that goes on sending one unknown kid has the keys read once a
// minute, and others meanwhile.
func TestOneKidOverAndOver(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	w.check(t, w.token(t, k1(), p), nil)
	for n := range 120 {
		w.check(t, w.token(t, by("of another issuer", jose.RS256, issuertest.RSA2()), p, "n", n), ErrUnknownKey)
		w.clock.Step(time.Second)
	}
	p.Reads(t, 1+2)
	w.check(t, w.token(t, by("another", jose.RS256, issuertest.RSA2()), p), ErrUnknownKey)
	p.Reads(t, 1+3)
}

// A token without kid is tried against all keys that fit.
func TestWithoutKeyID(t *testing.T) {
	anonymous := func(s signer) signer { s.KeyID = ""; return s }
	p := issuertest.New(t, by("ec", jose.ES256, issuertest.EC256()).JWK(), k1().JWK(), anonymous(k2()).JWK())
	w := newWorld(t, p)
	w.check(t, w.token(t, anonymous(k1()), p), nil)
	w.check(t, w.token(t, anonymous(k2()), p), nil)
	w.check(t, w.token(t, anonymous(by("", jose.ES256, issuertest.EC256())), p), nil)
	p.Reads(t, 1)
	for n := range 5 {
		w.check(t, w.token(t, by("", jose.EdDSA, issuertest.Edwards()), p, "n", n), ErrUnknownKey)
	}
	p.Reads(t, 2)
	// A key without kid is no match for a token with one.
	w.check(t, w.token(t, k2(), p), ErrUnknownKey)
}

// With traffic the keys are read again before they are overdue, and no token
// waits for that.
func TestReadAhead(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	token := w.token(t, k1(), p)
	w.check(t, token, nil)
	w.clock.Step(keysAge - keysAhead - time.Second)
	w.check(t, token, nil)
	if w.isReading() {
		t.Error("read too early")
	}
	w.clock.Step(time.Second)
	release := make(chan struct{})
	p.Answer(nil, func(rw http.ResponseWriter, _ *http.Request) {
		<-release
		issuertest.WriteJSON(rw, map[string]any{"keys": []any{k2().JWK()}})
	})
	w.check(t, token, nil) // from the cache
	w.check(t, w.token(t, k1(), p, "n", 1), nil)
	if !w.isReading() {
		t.Error("not read ahead")
	}
	close(release)
	issuertest.Eventually(t, "the key is gone", func() bool {
		return errors.Is(w.authenticate(t.Context(), token), ErrUnknownKey)
	})
	p.Reads(t, 3) // the last for k1, which is unknown now
}

// AUTH-5: the age of keys counts while the clock of the process stands still.
func TestAgeIsThatOfTheDay(t *testing.T) {
	now := time.Now()
	if got := age(now.Round(0).Add(2*time.Minute), now); got < 2*time.Minute {
		t.Errorf("keys are %v old, want two minutes", got)
	}
	if got := age(now.Add(time.Minute), now.Add(time.Hour).Round(0)); got > 0 {
		t.Errorf("keys of the future are %v old", got)
	}
}
