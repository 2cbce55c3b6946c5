package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// reads fails unless the keys were read so often in all.
func (p *testIDP) reads(t *testing.T, want int64) {
	t.Helper()
	if got := p.keyReads.Load(); got != want {
		t.Errorf("%d reads of the keys, want %d", got, want)
	}
}

// unavailable fails unless a token is answered with a 503 of this fault.
func (w *world) unavailable(t *testing.T, token, want string) {
	t.Helper()
	result, err := w.Authenticate(t.Context(), token)
	var fault *Unavailable
	if result != nil || !errors.As(err, &fault) || !strings.HasSuffix(fault.Fault, want) {
		t.Errorf("got %v, %v; want a fault ending in %q", result, err, want)
	}
}

// TOK-01: a new key counts on the first try, at the price of one read.
func TestRotation(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	w.check(t, w.token(t, k1(), p), "alice", "")
	p.reads(t, 1)

	p.publish(k1().jwk(), k2().jwk())
	w.check(t, w.token(t, k2(), p), "alice", "")
	p.reads(t, 2)
	w.check(t, w.token(t, k2(), p, "n", 1), "alice", "")
	w.check(t, w.token(t, k1(), p, "n", 1), "alice", "")
	p.reads(t, 2)
	if n := p.discoveries.Load(); n != 1 {
		t.Errorf("%d discoveries, want 1", n)
	}

	// Withdrawn: what it verified goes on until the next read, and no longer.
	remembered := w.token(t, k1(), p)
	w.check(t, remembered, "alice", "")
	p.publish(k2().jwk())
	w.clock.Step(keysAge)
	w.check(t, remembered, "", ReasonUnknownKey)
	w.check(t, w.token(t, k2(), p), "alice", "")
	p.reads(t, 3)
	w.check(t, w.token(t, k1(), p, "n", 2), "", ReasonUnknownKey)
	p.reads(t, 4) // an unknown kid, as any other
}

// AUTH-5: results verified with a key that is gone are dropped, also when an
// unknown kid of another token brought the news.
func TestWithdrawnKeyEndsResults(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	remembered := w.token(t, k1(), p)
	w.check(t, remembered, "alice", "")
	p.publish(k2().jwk())
	w.check(t, remembered, "alice", "") // nobody knows yet
	w.check(t, w.token(t, k2(), p), "alice", "")
	w.check(t, remembered, "", ReasonUnknownKey)

	// Another key under the kid is another key.
	p.publish(signer{"k2", jose.RS256, rsaKey1()}.jwk())
	old := w.token(t, k2(), p)
	w.check(t, old, "alice", "")
	w.clock.Step(keysAge)
	w.check(t, old, "", ReasonSignature)
}

// AUTH-5: how often a bad token may have the keys read.
func TestReadsAreLimited(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	strangers := 0
	unknown := func() string {
		strangers++
		return w.token(t, signer{fmt.Sprint("stranger-", strangers), jose.RS256, rsaKey2()}, p)
	}
	// The very first token reads once: there cannot be news since.
	w.check(t, unknown(), "", ReasonUnknownKey)
	p.reads(t, 1)
	for range 5 {
		w.check(t, unknown(), "", ReasonUnknownKey)
	}
	p.reads(t, 2)
	w.clock.Step(unknownKeyPause - time.Second)
	w.check(t, unknown(), "", ReasonUnknownKey)
	p.reads(t, 2)
	w.clock.Step(time.Second)
	w.check(t, unknown(), "", ReasonUnknownKey)
	w.check(t, unknown(), "", ReasonUnknownKey)
	p.reads(t, 3)

	// A known kid with a bad signature never does.
	w.clock.Step(unknownKeyPause)
	for n := range 5 {
		w.check(t, w.token(t, signer{"k1", jose.RS256, rsaKey2()}, p, "n", n), "", ReasonSignature)
		w.check(t, w.token(t, signer{"k1", jose.ES256, ecKey256()}, p, "n", n), "", ReasonSignature)
	}
	p.reads(t, 3)

	// Several tokens at once share one read.
	var wait sync.WaitGroup
	tokens := make([]string, 20)
	for i := range tokens {
		tokens[i] = unknown()
	}
	for _, token := range tokens {
		wait.Go(func() { w.check(t, token, "", ReasonUnknownKey) })
	}
	wait.Wait()
	p.reads(t, 4)
}

// A token without kid is tried against all keys that fit.
func TestWithoutKeyID(t *testing.T) {
	anonymous := func(s signer) signer { s.kid = ""; return s }
	p := newIDP(t, signer{"ec", jose.ES256, ecKey256()}.jwk(), k1().jwk(), anonymous(k2()).jwk())
	w := newWorld(t, p.authenticator())
	w.check(t, w.token(t, anonymous(k1()), p), "alice", "")
	w.check(t, w.token(t, anonymous(k2()), p), "alice", "")
	w.check(t, w.token(t, anonymous(signer{"", jose.ES256, ecKey256()}), p), "alice", "")
	p.reads(t, 1)
	for n := range 5 {
		w.check(t, w.token(t, signer{"", jose.EdDSA, edwards()}, p, "n", n), "", ReasonUnknownKey)
	}
	p.reads(t, 2)
	// A key without kid is no match for a token with one.
	w.check(t, w.token(t, k2(), p), "", ReasonUnknownKey)
}

// Keys that are not for signatures, or too weak, are passed over, and known
// by their kid all the same.
func TestUnusableKeys(t *testing.T) {
	jwk := func(s signer) map[string]any { return s.jwk() }
	tests := []struct {
		name   string
		key    map[string]any
		signer signer
		ok     bool
	}{
		{"use sig", with(jwk(k2()), "use", "sig"), k2(), true},
		{"use enc", with(jwk(k2()), "use", "enc"), k2(), false},
		{"use unknown", with(jwk(k2()), "use", "x"), k2(), false},
		{"key_ops verify", with(jwk(k2()), "key_ops", []string{"verify"}), k2(), true},
		{"key_ops encrypt", with(jwk(k2()), "key_ops", []string{"encrypt"}), k2(), false},
		{"alg of the token", with(jwk(k2()), "alg", "RS256"), k2(), true},
		{"another alg", with(jwk(k2()), "alg", "PS256"), k2(), false},
		{"Ed25519 by its new name", with(signer{"k2", jose.EdDSA, edwards()}.jwk(), "alg", "Ed25519"), signer{"k2", jose.EdDSA, edwards()}, true},
		{"RSA of 1024 bits", signer{"k2", jose.RS256, weakRSA()}.jwk(), k2(), false},
		{"symmetric key", map[string]any{"kty": "oct", "kid": "k2", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}, k2(), false},
		{"curve nobody signs with", map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "k2", "x": "AA", "y": "AA"}, k2(), false},
		{"type of the future", map[string]any{"kty": "XYZ", "kid": "k2"}, k2(), false},
		{"key without a type", map[string]any{"kid": "k2"}, k2(), false},
		{"modulus missing", map[string]any{"kty": "RSA", "kid": "k2", "e": "AQAB"}, k2(), false},
		{"kid a number", map[string]any{"kty": "RSA", "kid": 2}, k2(), false},
		{"other certificate", with(jwk(k2()), "x5c", []string{"AAAA"}), k2(), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newIDP(t, tt.key, k1().jwk())
			w := newWorld(t, p.authenticator())
			w.check(t, w.token(t, k1(), p), "alice", "")
			if tt.ok {
				w.check(t, w.token(t, tt.signer, p), "alice", "")
				return
			}
			want := ReasonSignature
			if tt.key["kid"] != "k2" {
				want = ReasonUnknownKey
			}
			w.check(t, w.token(t, tt.signer, p), "", want)
			if want == ReasonSignature {
				p.reads(t, 1)
			}
		})
	}
}

// A private key in a key set is nothing to verify with.
func TestVerificationKeyTypes(t *testing.T) {
	for _, key := range []any{rsaKey1(), ecKey256(), edwards(), []byte("secret"), weakRSA().Public(), strangeEC().Public(), nil} {
		if got := verificationKey(key); got != nil {
			t.Errorf("%T is taken for %T", key, got)
		}
	}
}

// AUTH-13: every way in which a provider can fail is a 503 with a text of
// ours, named in IssuerFaults, and ends when the provider is well again.
func TestFaults(t *testing.T) {
	const secret = "provider-text-that-must-not-appear"
	p := newIDP(t, k1().jwk())
	document := func(issuer, keys string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, map[string]any{"issuer": issuer, "jwks_uri": keys, "x": secret})
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
		http.Redirect(w, r, p.server.URL+"/elsewhere", http.StatusFound)
	}
	breakOff := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	tests := []struct {
		name              string
		discovery, keySet http.HandlerFunc
		fault             string
	}{
		{"discovery 500", status(500, secret), nil, "it answered with status 500"},
		{"discovery 404", status(404, secret), nil, "it answered with status 404"},
		{"discovery redirected", redirect, nil, "it answered with status 302"},
		{"discovery no JSON", status(200, "<html>"+secret), nil, "its discovery document cannot be read"},
		{"discovery of another issuer", document("https://"+secret, p.server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"discovery of the issuer with a slash", document(p.issuer+"/", p.server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"discovery without issuer", document("", p.server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"keys over http", document(p.issuer, "http://127.0.0.1/"+secret), nil, "its jwks_uri is not an https URL"},
		{"keys in a file", document(p.issuer, "file:///etc/"+secret), nil, "its jwks_uri is not an https URL"},
		{"keys nowhere", document(p.issuer, ""), nil, "its jwks_uri is not an https URL"},
		{"keys with a password", document(p.issuer, "https://a:"+secret+"@127.0.0.1/"), nil, "its jwks_uri is not an https URL"},
		{"discovery huge", huge, nil, "its answer is over 1 MiB"},
		{"discovery broken off", breakOff, nil, "the connection failed"},
		{"keys 503", nil, status(503, secret), "it answered with status 503"},
		{"keys 204", nil, status(204, ""), "it answered with status 204"},
		{"keys redirected", nil, redirect, "it answered with status 302"},
		{"keys no JSON", nil, status(200, secret), "its key set cannot be read"},
		{"keys an error in JSON", nil, status(200, `{"error":"`+secret+`"}`), "its key set cannot be read"},
		{"keys null", nil, status(200, `{"keys":null}`), "its key set cannot be read"},
		{"keys an object", nil, status(200, `{"keys":{}}`), "its key set cannot be read"},
		{"keys empty", nil, status(200, `{"keys":[]}`), "it publishes no key that can verify a signature"},
		{"keys unusable", nil, status(200, `{"keys":[{"kty":"oct","kid":"k1","k":"AAAA"},null,1]}`), "it publishes no key that can verify a signature"},
		{"keys too many", nil, status(200, `{"keys":[`+strings.Join(many, ",")+`]}`), "its key set has over 100 keys"},
		{"keys huge", nil, huge, "its answer is over 1 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, p.authenticator())
			token := w.token(t, k1(), p)
			p.answer(tt.discovery, tt.keySet)
			w.unavailable(t, token, tt.fault)
			if diff := cmp.Diff([]string{p.issuer + ": " + tt.fault}, w.IssuerFaults()); diff != "" {
				t.Error(diff)
			}
			// Not asked again at once, and the same answer.
			before := p.discoveries.Load()
			w.unavailable(t, token, tt.fault)
			if p.discoveries.Load() != before {
				t.Error("asked again within a second")
			}
			p.answer(nil, nil)
			w.clock.Step(retryNoKeys)
			w.check(t, token, "alice", "")
			if faults := w.IssuerFaults(); faults != nil {
				t.Errorf("still %q", faults)
			}
		})
	}
	if p.others.Load() != 0 {
		t.Error("another path was asked for")
	}
}

func TestConnectionFaults(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		p := newIDP(t, k1().jwk())
		w := newWorld(t, p.authenticator())
		p.server.Close()
		w.unavailable(t, w.token(t, k1(), p), "it refused the connection")
	})
	t.Run("certificate of another CA", func(t *testing.T) {
		p := newIDP(t, k1().jwk())
		a := p.authenticator()
		a.Issuer.CertificateAuthority = ""
		w := newWorld(t, a)
		w.unavailable(t, w.token(t, k1(), p), "its certificate is not trusted")
		if p.discoveries.Load() != 0 {
			t.Error("asked all the same")
		}
	})
	t.Run("hangs", func(t *testing.T) {
		p := newIDP(t, k1().jwk())
		w := newWorld(t, p.authenticator())
		for _, set := range w.keys.sets {
			set.limit = 50 * time.Millisecond
		}
		p.answer(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
		w.unavailable(t, w.token(t, k1(), p), "it did not answer in time")
	})
	t.Run("name", func(t *testing.T) {
		p := newIDP(t)
		a := p.authenticator()
		a.Issuer.URL = "https://no-such-host.invalid"
		w := newWorld(t, a)
		_, err := w.Authenticate(t.Context(), w.token(t, k1(), p, "iss", a.Issuer.URL))
		var fault *Unavailable
		if !errors.As(err, &fault) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("environment proxies are not used", func(t *testing.T) {
		t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
		p := newIDP(t, k1().jwk())
		w := newWorld(t, p.authenticator())
		transport := w.members[0].keys.client.Transport.(*http.Transport)
		if transport.Proxy != nil {
			t.Error("the transport has a proxy")
		}
		w.check(t, w.token(t, k1(), p), "alice", "")
	})
}

// With keys at hand an outage of the provider fails no token that can be
// judged with them, for an hour.
func TestOutageWithKeys(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	long := w.token(t, k1(), p, "exp", w.clock.Now().Add(24*time.Hour).Unix())
	w.check(t, long, "alice", "")
	p.answer(status(500, ""), status(500, ""))

	w.clock.Step(keysAge)
	w.check(t, long, "alice", "") // waits for the read, which fails
	if faults := w.IssuerFaults(); len(faults) != 1 {
		t.Errorf("faults %q", faults)
	}
	asked := p.discoveries.Load()
	for n := range 5 {
		w.check(t, w.token(t, k1(), p, "n", n), "alice", "")
	}
	if p.discoveries.Load() != asked {
		t.Error("asked for each token")
	}
	// A kid that may be new cannot be judged.
	w.unavailable(t, w.token(t, k2(), p), "it answered with status 500")
	w.unavailable(t, w.token(t, k2(), p, "n", 1), "it answered with status 500")
	// A signature that is bad can.
	w.check(t, w.token(t, signer{"k1", jose.RS256, rsaKey2()}, p), "", ReasonSignature)

	w.clock.Step(keysStale - keysAge - time.Second)
	w.check(t, long, "alice", "")
	eventually(t, "the read in the background ends", func() bool { return !w.reading() })
	w.clock.Step(time.Minute)
	w.unavailable(t, long, "it answered with status 500")

	p.answer(nil, nil)
	w.clock.Step(retryNoKeys)
	w.check(t, long, "alice", "")
	if faults := w.IssuerFaults(); faults != nil {
		t.Errorf("still %q", faults)
	}
}

// reading reports whether any key set is being read.
func (w *world) reading() bool {
	for _, set := range w.keys.sets {
		set.mu.Lock()
		reading := set.reading != nil
		set.mu.Unlock()
		if reading {
			return true
		}
	}
	return false
}

// With traffic the keys are read again before they are overdue, and no token
// waits for that.
func TestReadAhead(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	token := w.token(t, k1(), p)
	w.check(t, token, "alice", "")
	w.clock.Step(keysAge - keysAhead - time.Second)
	w.check(t, token, "alice", "")
	if w.reading() {
		t.Error("read too early")
	}
	w.clock.Step(time.Second)
	release := make(chan struct{})
	p.answer(nil, func(rw http.ResponseWriter, _ *http.Request) {
		<-release
		writeJSON(rw, map[string]any{"keys": []any{k2().jwk()}})
	})
	w.check(t, token, "alice", "") // from the cache
	w.check(t, w.token(t, k1(), p, "n", 1), "alice", "")
	if !w.reading() {
		t.Error("not read ahead")
	}
	close(release)
	eventually(t, "the key is gone", func() bool {
		_, err := w.Authenticate(t.Context(), token)
		return reasonOf(err) == ReasonUnknownKey
	})
	p.reads(t, 3) // the last for k1, which is unknown now
}

// Refresh makes faults known without any token.
func TestRefresh(t *testing.T) {
	p, q := newIDP(t, k1().jwk()), newIDP(t)
	w := newWorld(t, p.authenticator(), q.authenticator())
	var changes atomic.Int64
	for _, set := range w.keys.sets {
		set.onFault = func(string) { changes.Add(1) }
	}
	if faults := w.IssuerFaults(); faults != nil {
		t.Errorf("faults %q before anything was asked", faults)
	}
	w.Refresh()
	w.Refresh()
	eventually(t, "a fault is known", func() bool { return len(w.IssuerFaults()) == 1 && !w.reading() })
	if want := q.issuer + ": it publishes no key that can verify a signature"; w.IssuerFaults()[0] != want {
		t.Errorf("faults %q, want %q", w.IssuerFaults(), want)
	}
	p.reads(t, 1)
	q.reads(t, 1)
	q.publish(k2().jwk())
	w.clock.Step(time.Minute)
	w.Refresh()
	eventually(t, "the fault is gone", func() bool { return w.IssuerFaults() == nil })
	p.reads(t, 1)
	eventually(t, "both changes are told", func() bool { return changes.Load() == 2 })
}

// The keys of one issuer are read once for all clusters, and forgotten with
// the last of them.
func TestKeySetsAreShared(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	other := w.make(t, Config{UID: "uid-2", Hash: "hash-2"}, p.authenticator())
	elsewhere := p.authenticator()
	elsewhere.Issuer.DiscoveryURL = p.server.URL + "/elsewhere"
	third := w.make(t, Config{UID: "uid-3", Hash: "hash-3"}, elsewhere)
	token := w.token(t, k1(), p)
	w.check(t, token, "alice", "")
	for _, a := range []*JWTAuthenticators{other, third} {
		if _, err := a.Authenticate(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	p.reads(t, 2)
	if n := len(w.keys.sets); n != 2 {
		t.Errorf("%d key sets, want 2", n)
	}
	third.Close()
	third.Close()
	other.Close()
	if n := len(w.keys.sets); n != 1 {
		t.Errorf("%d key sets, want 1", n)
	}
	// A request that is still under way when its configuration goes.
	if _, err := other.Authenticate(t.Context(), w.token(t, k1(), p, "n", 1)); err != nil {
		t.Error(err)
	}
	w.Close()
	if n := len(w.keys.sets); n != 0 {
		t.Errorf("%d key sets are left", n)
	}
}

// Giving a set back breaks off what is being read for it.
func TestCloseBreaksOff(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	entered := make(chan struct{})
	p.answer(func(_ http.ResponseWriter, r *http.Request) {
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
	if w.members[0].keys.reading != nil {
		t.Error("still reading")
	}
}

func TestNewJWTRefuses(t *testing.T) {
	p := newIDP(t)
	for name, change := range map[string]func(*apiserver.JWTAuthenticator){
		"empty CA":    func(a *apiserver.JWTAuthenticator) { a.Issuer.CertificateAuthority = " " },
		"CA no PEM":   func(a *apiserver.JWTAuthenticator) { a.Issuer.CertificateAuthority = "secret" },
		"no audience": func(a *apiserver.JWTAuthenticator) { a.Issuer.Audiences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := p.authenticator(), p.authenticator()
			change(&bad)
			keys := NewKeySets(nil)
			_, err := NewJWT(Config{JWT: []JWT{{Authenticator: good}, {Authenticator: bad}}}, keys, NewCache(1, nil))
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
			if len(keys.sets) != 0 {
				t.Error("the key set of the first was not given back")
			}
		})
	}
}

// A caller that leaves while the keys are read gets an error that is no
// verdict, and the others get theirs.
func TestCallerLeaves(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	entered, release := make(chan struct{}), make(chan struct{})
	p.answer(func(rw http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		writeJSON(rw, map[string]any{"issuer": p.issuer, "jwks_uri": p.server.URL + "/keys"})
	}, nil)
	token := w.token(t, k1(), p)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := w.Authenticate(ctx, token)
		if !errors.Is(err, context.Canceled) || reasonOf(err) != err.Error() {
			t.Errorf("got %v", err)
		}
	})
	<-entered
	cancel()
	wait.Wait()
	for range 3 {
		wait.Go(func() { w.check(t, token, "alice", "") })
	}
	close(release)
	wait.Wait()
	p.reads(t, 1)
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
