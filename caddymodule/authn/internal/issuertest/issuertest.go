package issuertest

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
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
)

// NewClock makes a clock that is set by hand.
func NewClock() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
}

// Signer signs tokens with a key of the issuer.
type Signer struct {
	KeyID     string
	Algorithm jose.SignatureAlgorithm
	Key       crypto.Signer
}

// By makes a Signer.
func By(keyID string, algorithm jose.SignatureAlgorithm, key crypto.Signer) Signer {
	return Signer{keyID, algorithm, key}
}

// Keys of many kinds.
var (
	RSA1      = sync.OnceValue(func() crypto.Signer { return newRSA(2048) })
	RSA2      = sync.OnceValue(func() crypto.Signer { return newRSA(2048) })
	EC256     = sync.OnceValue(func() crypto.Signer { return NewEC(elliptic.P256()) })
	EC384     = sync.OnceValue(func() crypto.Signer { return NewEC(elliptic.P384()) })
	EC521     = sync.OnceValue(func() crypto.Signer { return NewEC(elliptic.P521()) })
	Edwards   = sync.OnceValue(func() crypto.Signer { _, key, _ := ed25519.GenerateKey(rand.Reader); return key })
	WeakRSA   = sync.OnceValue(func() crypto.Signer { return newRSA(1024) })
	StrangeEC = sync.OnceValue(func() crypto.Signer { return NewEC(elliptic.P224()) })
)

func newRSA(bits int) crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
}

// NewEC makes a key.
func NewEC(curve elliptic.Curve) crypto.Signer {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// K1 signs with the key of most tests, K2 with another.
func K1() Signer { return By("k1", jose.RS256, RSA1()) }
func K2() Signer { return By("k2", jose.RS256, RSA2()) }

// Encode is base64url without padding.
func Encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Sign writes a token by hand, so that header and payload can be anything.
func (s Signer) Sign(t testing.TB, header map[string]any, payload []byte) string {
	t.Helper()
	all := map[string]any{"alg": string(s.Algorithm), "kid": s.KeyID, "typ": "JWT"}
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
	input := Encode(head) + "." + Encode(payload)
	return input + "." + Encode(s.signature(t, []byte(input)))
}

func (s Signer) signature(t testing.TB, input []byte) []byte {
	t.Helper()
	hash := map[byte]crypto.Hash{'6': crypto.SHA256, '4': crypto.SHA384, '2': crypto.SHA512}[s.Algorithm[len(s.Algorithm)-1]]
	var digest []byte
	if hash != 0 {
		h := hash.New()
		h.Write(input)
		digest = h.Sum(nil)
	}
	var signature []byte
	var err error
	switch key := s.Key.(type) {
	case *rsa.PrivateKey:
		if s.Algorithm[0] == 'P' {
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

// JWK is the key as its issuer publishes it.
func (s Signer) JWK() map[string]any {
	raw, err := jose.JSONWebKey{Key: s.Key.Public(), KeyID: s.KeyID}.MarshalJSON()
	if err != nil {
		panic(err)
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		panic(err)
	}
	return m
}

// With changes a member of a JWK.
func With(jwk map[string]any, name string, value any) map[string]any {
	jwk = maps.Clone(jwk)
	jwk[name] = value
	return jwk
}

// Issuer is an OpenID provider that publishes keys.
type Issuer struct {
	Server *httptest.Server
	// URL is its iss.
	URL string
	// Discoveries, KeyReads and Others count the requests.
	Discoveries, KeyReads, Others atomic.Int64
	// Handlers serve further paths.
	Handlers map[string]http.HandlerFunc
	// Endpoints, if not nil, adds to the discovery document.
	Endpoints func(document map[string]any)

	mu   sync.Mutex
	keys []map[string]any
	// These answer in place of the documents when set.
	discovery, keySet http.HandlerFunc
}

// New starts an Issuer with these keys.
func New(t testing.TB, keys ...map[string]any) *Issuer {
	t.Helper()
	p := &Issuer{keys: keys}
	p.Server = tlstest.Start(t, p)
	p.URL = p.Server.URL + "/realm"
	return p
}

func (p *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	discovery, keySet, keys := p.discovery, p.keySet, slices.Clone(p.keys)
	p.mu.Unlock()
	switch r.URL.Path {
	case "/realm/.well-known/openid-configuration", "/elsewhere":
		p.Discoveries.Add(1)
		if discovery != nil {
			discovery(w, r)
			return
		}
		WriteJSON(w, p.document())
	case "/keys":
		p.KeyReads.Add(1)
		if keySet != nil {
			keySet(w, r)
			return
		}
		if keys == nil {
			keys = []map[string]any{}
		}
		WriteJSON(w, map[string]any{"keys": keys})
	default:
		if h := p.Handlers[r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		p.Others.Add(1)
		http.NotFound(w, r)
	}
}

// WriteJSON answers with a JSON document.
func WriteJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// Publish replaces the keys.
func (p *Issuer) Publish(keys ...map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// Answer replaces the two documents; nil puts them back.
func (p *Issuer) Answer(discovery, keySet http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discovery, p.keySet = discovery, keySet
}

// CA is the PEM that verifies its certificate.
func (p *Issuer) CA() string { return tlstest.CA(p.Server) }

// Status answers with a status and a text.
func Status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func (p *Issuer) document() map[string]any {
	d := map[string]any{"issuer": p.URL, "jwks_uri": p.Server.URL + "/keys"}
	if p.Endpoints != nil {
		p.Endpoints(d)
	}
	return d
}

// Reads fails unless the keys were read so often in all.
func (p *Issuer) Reads(t testing.TB, want int64) {
	t.Helper()
	if got := p.KeyReads.Load(); got != want {
		t.Errorf("%d reads of the keys, want %d", got, want)
	}
}

// Eventually polls until cond holds.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("%s: not in ten seconds", what)
}
