package keys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
)

// AUTH-13: a key set of private keys, which a tenant's provider may publish,
// costs no more than one of public keys, and says nothing but their names.
func TestPrivateKeysAreNotRead(t *testing.T) {
	key := issuertest.RSA1().(*rsa.PrivateKey)
	public := keySetOf(t, jose.JSONWebKey{Key: key.Public(), KeyID: "k"})
	number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	// Without the values that make the check cheap.
	private := strings.ReplaceAll(public, `"kid"`, fmt.Sprintf(`"d":%q,"p":%q,"q":%q,"kid"`, number(key.D), number(key.Primes[0]), number(key.Primes[1])))

	cost := func(document string, usable bool) time.Duration {
		before := processorTime(t)
		keys, err := parseKeys([]byte(document))
		if err != nil || len(keys) != maxKeys {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, k := range keys {
			if k.id != "k" || (k.key != nil) != usable {
				t.Fatalf("got %+v", k)
			}
		}
		return processorTime(t) - before
	}
	of, than := cost(private, false), cost(public, true)
	if t.Logf("private keys %s, public ones %s", of, than); of > 10*than+20*time.Millisecond {
		t.Error("that is too much")
	}

	for _, member := range []string{"d", "p", "q", "dp", "dq", "qi", "k", "priv", "D"} {
		keys, err := parseKeys([]byte(strings.ReplaceAll(public, `"kid"`, `"`+member+`":"AQAB","kid"`)))
		if err != nil || usable(keys) {
			t.Errorf("with %s: %v, %v", member, keys, err)
		}
	}
	if keys, err := parseKeys([]byte(strings.ReplaceAll(public, `"kid"`, `"d":null,"kid"`))); err != nil || !usable(keys) {
		t.Errorf("with d null: %v, %v", keys, err)
	}
}

// keySetOf is a key set of as many as there may be.
func keySetOf(t *testing.T, key jose.JSONWebKey) string {
	t.Helper()
	one, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	return `{"keys":[` + strings.TrimSuffix(strings.Repeat(string(one)+",", maxKeys), ",") + `]}`
}

// processorTime is what this process has used of it.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestRSAKeysAreBounded(t *testing.T) {
	for _, tt := range []struct {
		bits uint
		e    int
		ok   bool
	}{
		{2047, 65537, false}, {2048, 65537, true}, {4096, 65537, true}, {4097, 65537, false}, {8192, 65537, false},
		{2048, 3, true}, {2048, 1, false}, {2048, 65536, false}, {2048, 1<<31 - 1, false}, {2048, -3, false},
	} {
		n := new(big.Int).SetBit(big.NewInt(1), int(tt.bits-1), 1)
		if got := verificationKey(&rsa.PublicKey{N: n, E: tt.e}) != nil; got != tt.ok {
			t.Errorf("%d bits, exponent %d: %t", tt.bits, tt.e, got)
		}
	}
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
		{"curve that signs nothing here", map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "k2", "x": "AA", "y": "AA"}, k2(), false},
		{"type of the future", map[string]any{"kty": "XYZ", "kid": "k2"}, k2(), false},
		{"key without a type", map[string]any{"kid": "k2"}, k2(), false},
		{"modulus missing", map[string]any{"kty": "RSA", "kid": "k2", "e": "AQAB"}, k2(), false},
		{"kid a number", map[string]any{"kty": "RSA", "kid": 2}, k2(), false},
		{"use enc in a list", issuertest.With(jwk(k2()), "use", []string{"enc"}), k2(), false},
		{"key_ops encrypt and a number", issuertest.With(jwk(k2()), "key_ops", []any{"encrypt", 1}), k2(), false},
		{"key_ops verify and a number", issuertest.With(jwk(k2()), "key_ops", []any{1, "verify"}), k2(), true},
		{"use encryption in a list with a number", issuertest.With(jwk(k2()), "use", []any{"enc", 5}), k2(), false},
		{"key_ops encrypt as text", issuertest.With(jwk(k2()), "key_ops", "encrypt"), k2(), false},
		{"point that is on no curve", map[string]any{"kty": "EC", "crv": "P-256", "kid": "k2", "x": "AQ", "y": "AQ"}, k2(), false},
		{"modulus that is no base64", issuertest.With(jwk(k2()), "n", "*"), k2(), false},
		{"exponent over 64 bits", issuertest.With(jwk(k2()), "e", "AQAAAAAAAAAAAQ"), k2(), false},
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

// coordinate is x of a public key, with all octets.
func coordinate(t *testing.T, s signer) []byte {
	t.Helper()
	point, err := s.Key.Public().(*ecdsa.PublicKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return point[1 : 1+len(point)/2] // 4, x, y
}

// AUTH-5: of a JWK only what makes the key is read, so that odd members cost no
// key. Issuers were seen with most of these.
func TestOddMembersCostNoKey(t *testing.T) {
	rsa2, ec := k2(), by("k2", jose.ES512, issuertest.EC521())
	padded := rsa2.JWK()
	for _, name := range []string{"n", "e"} {
		value := padded[name].(string)
		padded[name] = strings.NewReplacer("-", "+", "_", "/").Replace(value) + strings.Repeat("=", -len(value)&3)
	}
	x := coordinate(t, ec)
	for x[0] != 0 {
		ec.Key = issuertest.NewEC(elliptic.P521())
		x = coordinate(t, ec)
	}
	trimmed := issuertest.With(ec.JWK(), "x", issuertest.Encode(bytes.TrimLeft(x, "\x00")))
	tests := []struct {
		name   string
		key    map[string]any
		signer signer
	}{
		{"certificate of another key", issuertest.With(rsa2.JWK(), "x5c", []string{"AAAA"}), rsa2},
		{"empty certificate", issuertest.With(rsa2.JWK(), "x5c", []string{""}), rsa2},
		{"certificate as text", issuertest.With(rsa2.JWK(), "x5c", "AAAA"), rsa2},
		{"hash of a certificate", issuertest.With(rsa2.JWK(), "x5t", "not a hash"), rsa2},
		{"hash that is a number", issuertest.With(rsa2.JWK(), "x5t#S256", 7), rsa2},
		{"address of a certificate", issuertest.With(rsa2.JWK(), "x5u", "%zz"), rsa2},
		{"curve of an RSA key", issuertest.With(issuertest.With(rsa2.JWK(), "crv", ""), "exp", ""), rsa2},
		{"use null", issuertest.With(rsa2.JWK(), "use", nil), rsa2},
		{"use empty", issuertest.With(rsa2.JWK(), "use", ""), rsa2},
		{"use in a list", issuertest.With(rsa2.JWK(), "use", []string{"sig"}), rsa2},
		{"use a number", issuertest.With(rsa2.JWK(), "use", 1), rsa2},
		{"key_ops as text", issuertest.With(rsa2.JWK(), "key_ops", "verify"), rsa2},
		{"key_ops empty", issuertest.With(rsa2.JWK(), "key_ops", []string{}), rsa2},
		{"key_ops of objects", issuertest.With(rsa2.JWK(), "key_ops", []any{map[string]any{}}), rsa2},
		{"alg a number", issuertest.With(rsa2.JWK(), "alg", 256), rsa2},
		{"alg null", issuertest.With(rsa2.JWK(), "alg", nil), rsa2},
		{"no other primes", issuertest.With(issuertest.With(rsa2.JWK(), "oth", []any{}), "d", ""), rsa2},
		{"padding and the other alphabet", padded, rsa2},
		{"coordinate without its zeros", trimmed, ec},
		{"kid a number", issuertest.With(by("20300102", jose.RS256, issuertest.RSA2()).JWK(), "kid", 20300102), by("20300102", jose.RS256, issuertest.RSA2())},
		{"kid null", issuertest.With(rsa2.JWK(), "kid", nil), by("", jose.RS256, issuertest.RSA2())},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := issuertest.New(t, tt.key, k1().JWK())
			w := newWorld(t, p)
			w.check(t, w.token(t, tt.signer, p), nil)
			w.check(t, w.token(t, k1(), p), nil)
			p.Reads(t, 1)
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
