package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// clock is a clock that is set by hand.
type clock = clocktesting.FakeClock

func newClock() *clock { return clocktesting.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)) }

// signer signs tokens with a key of the test issuer.
type signer struct {
	kid string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

var (
	rsaKey1   = sync.OnceValue(func() crypto.Signer { return newRSA(2048) })
	rsaKey2   = sync.OnceValue(func() crypto.Signer { return newRSA(2048) })
	ecKey256  = sync.OnceValue(func() crypto.Signer { return newEC(elliptic.P256()) })
	ecKey384  = sync.OnceValue(func() crypto.Signer { return newEC(elliptic.P384()) })
	ecKey521  = sync.OnceValue(func() crypto.Signer { return newEC(elliptic.P521()) })
	edwards   = sync.OnceValue(func() crypto.Signer { _, key, _ := ed25519.GenerateKey(rand.Reader); return key })
	weakRSA   = sync.OnceValue(func() crypto.Signer { return newRSA(1024) })
	strangeEC = sync.OnceValue(func() crypto.Signer { return newEC(elliptic.P224()) })
)

func newRSA(bits int) crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
}

func newEC(curve elliptic.Curve) crypto.Signer {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

func k1() signer { return signer{"k1", jose.RS256, rsaKey1()} }
func k2() signer { return signer{"k2", jose.RS256, rsaKey2()} }

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign writes a token by hand, so that header and payload can be anything.
func (s signer) sign(t testing.TB, header map[string]any, payload []byte) string {
	t.Helper()
	all := map[string]any{"alg": string(s.alg), "kid": s.kid, "typ": "JWT"}
	maps.Copy(all, header)
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	head, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	input := encode(head) + "." + encode(payload)
	return input + "." + encode(s.signature(t, []byte(input)))
}

func (s signer) signature(t testing.TB, input []byte) []byte {
	t.Helper()
	hash := map[byte]crypto.Hash{'6': crypto.SHA256, '4': crypto.SHA384, '2': crypto.SHA512}[s.alg[len(s.alg)-1]]
	var digest []byte
	if hash != 0 {
		h := hash.New()
		h.Write(input)
		digest = h.Sum(nil)
	}
	var signature []byte
	var err error
	switch key := s.key.(type) {
	case *rsa.PrivateKey:
		if s.alg[0] == 'P' {
			signature, err = rsa.SignPSS(rand.Reader, key, hash, digest, nil)
		} else {
			signature, err = rsa.SignPKCS1v15(rand.Reader, key, hash, digest)
		}
	case *ecdsa.PrivateKey:
		r, v, e := ecdsa.Sign(rand.Reader, key, digest)
		size := (key.Curve.Params().BitSize + 7) / 8
		signature, err = append(r.FillBytes(make([]byte, size)), v.FillBytes(make([]byte, size))...), e
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, input)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// jwk is the key as its issuer publishes it.
func (s signer) jwk() map[string]any {
	raw, err := jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid}.MarshalJSON()
	if err != nil {
		panic(err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		panic(err)
	}
	return m
}

// with changes members of a JWK.
func with(jwk map[string]any, name string, value any) map[string]any {
	jwk = maps.Clone(jwk)
	jwk[name] = value
	return jwk
}

// testIDP is a small OpenID provider.
type testIDP struct {
	server *httptest.Server
	issuer string

	discoveries, keyReads, others atomic.Int64

	mu   sync.Mutex
	keys []map[string]any
	// These answer in place of the documents when set.
	discovery, keySet http.HandlerFunc

	tokenEndpoints
}

func newIDP(t testing.TB, keys ...map[string]any) *testIDP {
	t.Helper()
	p := &testIDP{keys: keys}
	p.userinfo.usual, p.introspection.usual = p.serveUserinfo, p.serveIntrospection
	p.server = tlstest.Start(t, p)
	p.issuer = p.server.URL + "/realm"
	return p
}

func (p *testIDP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	discovery, keySet, keys := p.discovery, p.keySet, slices.Clone(p.keys)
	p.mu.Unlock()
	switch r.URL.Path {
	case "/realm" + wellKnownPath, "/elsewhere":
		p.discoveries.Add(1)
		if discovery != nil {
			discovery(w, r)
			return
		}
		writeJSON(w, p.document())
	case "/keys":
		p.keyReads.Add(1)
		if keySet != nil {
			keySet(w, r)
			return
		}
		if keys == nil {
			keys = []map[string]any{}
		}
		writeJSON(w, map[string]any{"keys": keys})
	case "/userinfo":
		p.userinfo.serve(p, w, r)
	case "/introspect":
		p.introspection.serve(p, w, r)
	default:
		p.others.Add(1)
		http.NotFound(w, r)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (p *testIDP) publish(keys ...map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// answer replaces the two documents; nil puts them back.
func (p *testIDP) answer(discovery, keySet http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discovery, p.keySet = discovery, keySet
}

func (p *testIDP) ca() string { return tlstest.CA(p.server) }

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// authenticator is the configuration most tests use: claims sub and groups
// without prefixes, audience proxy-a.
func (p *testIDP) authenticator() apiserver.JWTAuthenticator {
	none := ""
	return apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: p.issuer, CertificateAuthority: p.ca(), Audiences: []string{"proxy-a"}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &none},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &none},
		},
	}
}

var compiler = sync.OnceValue(safecel.New)

func compile(t testing.TB, a apiserver.JWTAuthenticator) JWT {
	t.Helper()
	mapper, errs := validation.CompileAndValidateJWTAuthenticator(compiler(), a, nil)
	if err := errs.ToAggregate(); err != nil {
		t.Fatalf("the test's authenticator is not valid: %v", err)
	}
	return JWT{Authenticator: a, Mapper: mapper}
}

// world is one set of authenticators with what it hangs on.
type world struct {
	*JWTAuthenticators
	clock *clock
	keys  *KeySets
	cache *Cache
}

func newWorld(t testing.TB, authenticators ...apiserver.JWTAuthenticator) *world {
	t.Helper()
	w := &world{clock: newClock()}
	w.keys = NewKeySets(w.clock.Now)
	w.cache = NewCache(0, w.clock.Now)
	w.JWTAuthenticators = w.make(t, Config{UID: "uid-1", Hash: "hash-1"}, authenticators...)
	t.Cleanup(w.keys.Close)
	t.Cleanup(w.Close)
	return w
}

func (w *world) make(t testing.TB, cfg Config, authenticators ...apiserver.JWTAuthenticator) *JWTAuthenticators {
	t.Helper()
	for _, a := range authenticators {
		cfg.JWT = append(cfg.JWT, compile(t, a))
	}
	a, err := NewJWT(cfg, w.keys, w.cache)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// claimsOf is T(x): the claims of a good token, changed by pairs of name and
// value. The value absent removes a claim.
func (w *world) claimsOf(p *testIDP, changes ...any) map[string]any {
	now := w.clock.Now().Unix()
	c := map[string]any{
		"iss": p.issuer, "aud": "proxy-a", "iat": now, "exp": now + 600,
		"sub": "alice", "groups": []string{"dev", "ops"},
	}
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		if changes[i+1] == absent {
			delete(c, name)
			continue
		}
		c[name] = changes[i+1]
	}
	return c
}

var absent any = new(int)

func (w *world) token(t testing.TB, s signer, p *testIDP, changes ...any) string {
	t.Helper()
	payload, err := json.Marshal(w.claimsOf(p, changes...))
	if err != nil {
		t.Fatal(err)
	}
	return s.sign(t, nil, payload)
}

// eventually polls until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("%s: not in ten seconds", what)
}
