package keys

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
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
	w.check(t, remembered, nil) // nobody knows yet
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

// Keys that are not for signatures, or too weak, are passed over, and known
// by their kid all the same.
func TestUnusableKeys(t *testing.T) {
	jwk := func(s signer) map[string]any { return s.JWK() }
	tests := []struct {
		name   string
		key    map[string]any
		signer signer
		ok     bool
	}{
		{"use sig", issuertest.With(jwk(k2()), "use", "sig"), k2(), true},
		{"use enc", issuertest.With(jwk(k2()), "use", "enc"), k2(), false},
		{"use unknown", issuertest.With(jwk(k2()), "use", "x"), k2(), false},
		{"key_ops verify", issuertest.With(jwk(k2()), "key_ops", []string{"verify"}), k2(), true},
		{"key_ops encrypt", issuertest.With(jwk(k2()), "key_ops", []string{"encrypt"}), k2(), false},
		{"alg of the token", issuertest.With(jwk(k2()), "alg", "RS256"), k2(), true},
		{"another alg", issuertest.With(jwk(k2()), "alg", "PS256"), k2(), false},
		{"Ed25519 by its new name", issuertest.With(by("k2", jose.EdDSA, issuertest.Edwards()).JWK(), "alg", "Ed25519"), by("k2", jose.EdDSA, issuertest.Edwards()), true},
		{"RSA of 1024 bits", by("k2", jose.RS256, issuertest.WeakRSA()).JWK(), k2(), false},
		{"symmetric key", map[string]any{"kty": "oct", "kid": "k2", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}, k2(), false},
		{"curve nobody signs with", map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "k2", "x": "AA", "y": "AA"}, k2(), false},
		{"type of the future", map[string]any{"kty": "XYZ", "kid": "k2"}, k2(), false},
		{"key without a type", map[string]any{"kid": "k2"}, k2(), false},
		{"modulus missing", map[string]any{"kty": "RSA", "kid": "k2", "e": "AQAB"}, k2(), false},
		{"kid a number", map[string]any{"kty": "RSA", "kid": 2}, k2(), false},
		{"other certificate", issuertest.With(jwk(k2()), "x5c", []string{"AAAA"}), k2(), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := issuertest.New(t, tt.key, k1().JWK())
			w := newWorld(t, p)
			w.check(t, w.token(t, k1(), p), nil)
			if tt.ok {
				w.check(t, w.token(t, tt.signer, p), nil)
				return
			}
			want := ErrSignature
			if tt.key["kid"] != "k2" {
				want = ErrUnknownKey
			}
			w.check(t, w.token(t, tt.signer, p), want)
			if want == ErrSignature {
				p.Reads(t, 1)
			}
		})
	}
}

// A private key in a key set is nothing to verify with.
func TestVerificationKeyTypes(t *testing.T) {
	for _, key := range []any{issuertest.RSA1(), issuertest.EC256(), issuertest.Edwards(), []byte("secret"), issuertest.WeakRSA().Public(), issuertest.StrangeEC().Public(), nil} {
		if got := verificationKey(key); got != nil {
			t.Errorf("%T is taken for %T", key, got)
		}
	}
}

// AUTH-13: every way in which a provider can fail is a 503 with a text of
// ours, named in IssuerFaults, and ends when the provider is well again.
func TestFaults(t *testing.T) {
	const secret = "provider-text-that-must-not-appear"
	p := issuertest.New(t, k1().JWK())
	document := func(issuer, keys string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			issuertest.WriteJSON(w, map[string]any{"issuer": issuer, "jwks_uri": keys, "x": secret})
		}
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat(" ", boundedjson.MaxAnswer) + `]}`))
	}
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = `{"kty":"x"}`
	}
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, p.Server.URL+"/elsewhere", http.StatusFound)
	}
	breakOff := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	tests := []struct {
		name              string
		discovery, keySet http.HandlerFunc
		fault             string
	}{
		{"discovery 500", issuertest.Status(500, secret), nil, "it answered with status 500"},
		{"discovery 404", issuertest.Status(404, secret), nil, "it answered with status 404"},
		{"discovery redirected", redirect, nil, "it answered with status 302"},
		{"discovery no JSON", issuertest.Status(200, "<html>"+secret), nil, "its discovery document cannot be read"},
		{"discovery of another issuer", document("https://"+secret, p.Server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"discovery of the issuer with a slash", document(p.URL+"/", p.Server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"discovery without issuer", document("", p.Server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"keys over http", document(p.URL, "http://127.0.0.1/"+secret), nil, "its jwks_uri is not an https URL"},
		{"keys in a file", document(p.URL, "file:///etc/"+secret), nil, "its jwks_uri is not an https URL"},
		{"keys nowhere", document(p.URL, ""), nil, "its jwks_uri is not an https URL"},
		{"keys with a password", document(p.URL, "https://a:"+secret+"@127.0.0.1/"), nil, "its jwks_uri is not an https URL"},
		{"discovery huge", huge, nil, "its answer is over 1 MiB"},
		{"discovery broken off", breakOff, nil, "the connection failed"},
		{"keys 503", nil, issuertest.Status(503, secret), "it answered with status 503"},
		{"keys 204", nil, issuertest.Status(204, ""), "it answered with status 204"},
		{"keys redirected", nil, redirect, "it answered with status 302"},
		{"keys no JSON", nil, issuertest.Status(200, secret), "its key set cannot be read"},
		{"keys an error in JSON", nil, issuertest.Status(200, `{"error":"`+secret+`"}`), "its key set cannot be read"},
		{"keys null", nil, issuertest.Status(200, `{"keys":null}`), "its key set cannot be read"},
		{"keys an object", nil, issuertest.Status(200, `{"keys":{}}`), "its key set cannot be read"},
		{"keys empty", nil, issuertest.Status(200, `{"keys":[]}`), "it publishes no key that can verify a signature"},
		{"keys unusable", nil, issuertest.Status(200, `{"keys":[{"kty":"oct","kid":"k1","k":"AAAA"},null,1]}`), "it publishes no key that can verify a signature"},
		{"keys too many", nil, issuertest.Status(200, `{"keys":[`+strings.Join(many, ",")+`]}`), "its key set has over 100 keys"},
		{"keys huge", nil, huge, "its answer is over 1 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, p)
			token := w.token(t, k1(), p)
			p.Answer(tt.discovery, tt.keySet)
			w.unavailable(t, token, tt.fault)
			if fault := w.Fault(); fault.Error() != tt.fault {
				t.Errorf("fault %q", fault)
			}
			// Not asked again at once, and the same answer.
			before := p.Discoveries.Load()
			w.unavailable(t, token, tt.fault)
			if p.Discoveries.Load() != before {
				t.Error("asked again within a second")
			}
			p.Answer(nil, nil)
			w.clock.Step(retryNoKeys)
			w.check(t, token, nil)
			if fault := w.Fault(); fault != "" {
				t.Errorf("still %q", fault)
			}
		})
	}
	if p.Others.Load() != 0 {
		t.Error("another path was asked for")
	}
}

func TestConnectionFaults(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		p := issuertest.New(t, k1().JWK())
		w := newWorld(t, p)
		p.Server.Close()
		w.unavailable(t, w.token(t, k1(), p), "it refused the connection")
	})
	t.Run("certificate of another CA", func(t *testing.T) {
		p := issuertest.New(t, k1().JWK())
		w := newWorldAt(t, p.URL, "")
		w.unavailable(t, w.token(t, k1(), p), "its certificate is not trusted")
		if p.Discoveries.Load() != 0 {
			t.Error("asked all the same")
		}
	})
	t.Run("hangs", func(t *testing.T) {
		p := issuertest.New(t, k1().JWK())
		w := newWorld(t, p)
		for _, set := range w.registry.sets {
			set.limit = 50 * time.Millisecond
		}
		p.Answer(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
		w.unavailable(t, w.token(t, k1(), p), "it did not answer in time")
	})
	t.Run("name", func(t *testing.T) {
		p := issuertest.New(t)
		w := newWorldAt(t, "https://no-such-host.invalid", "")
		err := w.authenticate(t.Context(), w.token(t, k1(), p))
		var fault idp.Fault
		if !errors.As(err, &fault) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("environment proxies are not used", func(t *testing.T) {
		t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
		p := issuertest.New(t, k1().JWK())
		w := newWorld(t, p)
		transport := w.client.Transport.(*http.Transport)
		if transport.Proxy != nil {
			t.Error("the transport has a proxy")
		}
		w.check(t, w.token(t, k1(), p), nil)
	})
}

// With keys at hand an outage of the provider fails no token that can be
// judged with them, for an hour.
func TestOutageWithKeys(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	long := w.token(t, k1(), p, "exp", w.clock.Now().Add(24*time.Hour).Unix())
	w.check(t, long, nil)
	p.Answer(issuertest.Status(500, ""), issuertest.Status(500, ""))

	w.clock.Step(keysAge)
	w.check(t, long, nil) // waits for the read, which fails
	if fault := w.Fault(); fault == "" {
		t.Error("no fault")
	}
	asked := p.Discoveries.Load()
	for n := range 5 {
		w.check(t, w.token(t, k1(), p, "n", n), nil)
	}
	if p.Discoveries.Load() != asked {
		t.Error("asked for each token")
	}
	// A kid that may be new cannot be judged.
	w.unavailable(t, w.token(t, k2(), p), "it answered with status 500")
	w.unavailable(t, w.token(t, k2(), p, "n", 1), "it answered with status 500")
	// A signature that is bad can.
	w.check(t, w.token(t, by("k1", jose.RS256, issuertest.RSA2()), p), ErrSignature)

	w.clock.Step(keysStale - keysAge - time.Second)
	w.check(t, long, nil)
	issuertest.Eventually(t, "the read in the background ends", func() bool { return !w.isReading() })
	w.clock.Step(time.Minute)
	w.unavailable(t, long, "it answered with status 500")

	p.Answer(nil, nil)
	w.clock.Step(retryNoKeys)
	w.check(t, long, nil)
	if fault := w.Fault(); fault != "" {
		t.Errorf("still %q", fault)
	}
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
		return w.authenticate(t.Context(), token) == ErrUnknownKey
	})
	p.Reads(t, 3) // the last for k1, which is unknown now
}

// Refresh makes faults known without any token.
func TestRefresh(t *testing.T) {
	p, q := issuertest.New(t, k1().JWK()), issuertest.New(t)
	w := newWorld(t, p)
	var changes atomic.Int64
	w.registry.OnFaultChange = func(string) { changes.Add(1) }
	other := w.acquire(t, q.URL, "", q.CA())
	t.Cleanup(other.Close)
	refresh := func() { w.Refresh(); other.Refresh() }
	if w.Fault() != "" || other.Fault() != "" {
		t.Error("a fault before anything was asked")
	}
	refresh()
	refresh()
	issuertest.Eventually(t, "a fault is known", func() bool { return other.Fault() != "" && !w.isReading() })
	if want := "it publishes no key that can verify a signature"; other.Fault().Error() != want || w.Fault() != "" {
		t.Errorf("faults %q and %q, want %q", w.Fault(), other.Fault(), want)
	}
	p.Reads(t, 1)
	q.Reads(t, 1)
	q.Publish(k2().JWK())
	w.clock.Step(time.Minute)
	refresh()
	issuertest.Eventually(t, "the fault is gone", func() bool { return other.Fault() == "" })
	p.Reads(t, 1)
	issuertest.Eventually(t, "both changes are told", func() bool { return changes.Load() == 2 })
}

// The keys of one issuer are read once for all clusters, and forgotten with
// the last of them.
func TestKeySetsAreShared(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	other := w.acquire(t, p.URL, "", p.CA())
	third := w.acquire(t, p.URL, p.Server.URL+"/elsewhere", p.CA())
	token := w.token(t, k1(), p)
	w.check(t, token, nil)
	for _, h := range []*Handle{other, third} {
		if _, err := verify(t.Context(), h, token); err != nil {
			t.Error(err)
		}
	}
	p.Reads(t, 2)
	if n := len(w.registry.sets); n != 2 {
		t.Errorf("%d key sets, want 2", n)
	}
	third.Close()
	third.Close()
	other.Close()
	if n := len(w.registry.sets); n != 1 {
		t.Errorf("%d key sets, want 1", n)
	}
	// A request that is still under way when its configuration goes.
	if _, err := verify(t.Context(), other, token); err != nil {
		t.Error(err)
	}
	w.Close()
	if n := len(w.registry.sets); n != 0 {
		t.Errorf("%d key sets are left", n)
	}
}

// Giving a set back breaks off what is being read for it.
func TestCloseBreaksOff(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	entered := make(chan struct{})
	p.Answer(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}, nil)
	w.Refresh()
	<-entered
	start := time.Now()
	w.Close()
	if took := time.Since(start); took > idp.AnswerLimit/2 {
		t.Errorf("took %v", took)
	}
	if w.Handle.reading != nil {
		t.Error("still reading")
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA","x5c":["AA"],"x5u":"%"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, err := parseKeys(document)
		if err != nil && keys != nil || len(keys) > maxKeys {
			t.Fatalf("got %d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			if !key.same(key) {
				t.Error("a key is not the same as itself")
			}
		}
	})
}

// AUTH-5: a key set of a million elements is not made room for.
func TestHugeKeySet(t *testing.T) {
	p := issuertest.New(t)
	p.Answer(nil, issuertest.Status(200, `{"keys":[0`+strings.Repeat(",0", 500_000)+`]}`))
	w := newWorld(t, p)
	w.unavailable(t, w.token(t, k1(), p), "its answer has too many elements")
}

// AUTH-13: a panic over an answer is a fault of the provider and ends no process.
func TestPanicIsAFault(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	usual := w.client.Transport
	w.client.Transport = panics{usual}
	token := w.token(t, k1(), p)
	w.unavailable(t, token, "its answer cannot be read")
	w.client.Transport = usual
	w.clock.Step(retryNoKeys)
	w.check(t, token, nil)
}

type panics struct{ http.RoundTripper }

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("boom") }

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
