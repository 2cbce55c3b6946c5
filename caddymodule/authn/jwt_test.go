package authn

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

func TestAuthenticate(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	result, err := w.Authenticate(t.Context(), w.token(t, k1(), p))
	if err != nil {
		t.Fatal(err)
	}
	want := &Result{
		Identity: &identity.Identity{Name: "alice", Groups: []string{"dev", "ops"}},
		Expires:  w.clock.Now().Add(600 * time.Second),
	}
	if diff := cmp.Diff(want, result, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Error(diff)
	}
}

// TOK-03, AUTH-4: which keys sign, and that the key must fit.
func TestAlgorithms(t *testing.T) {
	signers := []signer{
		by("rs256", jose.RS256, issuertest.RSA1()), by("rs384", jose.RS384, issuertest.RSA1()), by("rs512", jose.RS512, issuertest.RSA1()),
		by("ps256", jose.PS256, issuertest.RSA1()), by("ps384", jose.PS384, issuertest.RSA1()), by("ps512", jose.PS512, issuertest.RSA1()),
		by("es256", jose.ES256, issuertest.EC256()), by("es384", jose.ES384, issuertest.EC384()), by("es512", jose.ES512, issuertest.EC521()),
		by("eddsa", jose.EdDSA, issuertest.Edwards()),
	}
	var keys []map[string]any
	for _, s := range signers {
		keys = append(keys, s.JWK())
	}
	p := newIDP(t, keys...)
	w := newWorld(t, p.authenticator())
	for _, s := range signers {
		t.Run(string(s.Algorithm), func(t *testing.T) {
			w.check(t, w.token(t, s, p), "alice", "")
			other := by(s.KeyID, s.Algorithm, map[bool]func() signer{true: k1, false: k2}[s.Key != issuertest.RSA1()]().Key)
			if strings.HasPrefix(string(s.Algorithm), "E") {
				other.Algorithm = jose.RS256 // an RSA signature under the kid of another type of key
			}
			w.check(t, w.token(t, other, p), "", errSignature.Reason)
		})
	}
	for _, wrong := range []signer{
		by("es256", jose.ES384, issuertest.EC384()), by("es384", jose.ES256, issuertest.EC256()), by("eddsa", jose.ES256, issuertest.EC256()),
		by("es256", jose.EdDSA, issuertest.Edwards()), by("rs256", jose.ES256, issuertest.EC256()),
	} {
		w.check(t, w.token(t, wrong, p), "", errSignature.Reason)
	}
	if reads := p.KeyReads.Load(); reads != 1 {
		t.Errorf("%d reads of the keys, want 1", reads)
	}
}

// TOK-03: the whole kind of tokens that were not signed by a published key.
func TestForged(t *testing.T) {
	p := newIDP(t, k1().JWK(), by("ec", jose.ES256, issuertest.EC256()).JWK())
	w := newWorld(t, p.authenticator())
	good := w.token(t, k1(), p)
	w.check(t, good, "alice", "")
	payload := strings.Split(good, ".")[1]
	der, err := x509.MarshalPKIXPublicKey(k1().Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})

	unsigned := func(header string) string { return issuertest.Encode([]byte(header)) + "." + payload + "." }
	mac := func(header string, secret []byte) string {
		input := issuertest.Encode([]byte(header)) + "." + payload
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(input))
		return input + "." + issuertest.Encode(h.Sum(nil))
	}
	claims, err := json.Marshal(w.claimsOf(p))
	if err != nil {
		t.Fatal(err)
	}
	stranger := k2()
	stranger.KeyID = "k1"
	flipped := []byte(good)
	middle := len(flipped) - 100
	flipped[middle] = map[bool]byte{true: 'B', false: 'A'}[flipped[middle] == 'A']
	parts := strings.Split(good, ".")
	// The same bytes in another spelling: the last character of a signature of
	// 256 bytes has four bits that decoding drops.
	stray := good[:len(good)-1] + string(rune(nextCharacter(good[len(good)-1])))

	tests := []struct{ name, token, reason string }{
		{"none", unsigned(`{"alg":"none"}`), errMalformed.Reason},
		{"none with a signature", unsigned(`{"alg":"none"}`) + parts[2], errAlgorithm.Reason},
		{"nOnE", unsigned(`{"alg":"nOnE","kid":"k1"}`) + parts[2], errAlgorithm.Reason},
		{"no algorithm", unsigned(`{"kid":"k1"}`) + parts[2], errAlgorithm.Reason},
		{"algorithm a number", unsigned(`{"alg":1}`) + parts[2], errAlgorithm.Reason},
		{"algorithm in lower case", unsigned(`{"alg":"rs256","kid":"k1"}`) + parts[2], errAlgorithm.Reason},
		{"two algorithms", unsigned(`{"alg":"RS256","alg":"none"}`) + parts[2], errMalformed.Reason},
		{"HS256 with the PEM of the key", mac(`{"alg":"HS256","kid":"k1"}`, public), errAlgorithm.Reason},
		{"HS256 with the DER of the key", mac(`{"alg":"HS256","kid":"k1"}`, der), errAlgorithm.Reason},
		{"RS256 over an EC key", by("ec", jose.RS256, issuertest.RSA1()).Sign(t, nil, claims), errSignature.Reason},
		{"another key under a known kid", stranger.Sign(t, nil, claims), errSignature.Reason},
		{"embedded key", stranger.Sign(t, map[string]any{"jwk": k2().JWK()}, claims), errSignature.Reason},
		{"embedded key, unknown kid", k2().Sign(t, map[string]any{"jwk": k2().JWK()}, claims), errUnknownKey.Reason},
		{"jku elsewhere", stranger.Sign(t, map[string]any{"jku": p.Server.URL + "/evil"}, claims), errSignature.Reason},
		{"x5u elsewhere", stranger.Sign(t, map[string]any{"x5u": p.Server.URL + "/evil"}, claims), errSignature.Reason},
		{"crit", k1().Sign(t, map[string]any{"crit": []string{"exp"}}, claims), errMalformed.Reason},
		{"crit that go-jose knows", k1().Sign(t, map[string]any{"crit": []string{"b64"}, "b64": true}, claims), errMalformed.Reason},
		{"logout token", k1().Sign(t, map[string]any{"typ": "logout+jwt"}, claims), errMalformed.Reason},
		{"security event", k1().Sign(t, map[string]any{"typ": "application/SecEvent+JWT"}, claims), errMalformed.Reason},
		{"typ a number", k1().Sign(t, map[string]any{"typ": 1}, claims), errMalformed.Reason},
		{"one byte flipped", string(flipped), errSignature.Reason},
		{"signature cut", good[:len(good)-2], errSignature.Reason},
		{"signature in another spelling", stray, errMalformed.Reason},
		{"payload of another token", parts[0] + "." + issuertest.Encode(bytes.Replace(claims, []byte("alice"), []byte("admin"), 1)) + "." + parts[2], errSignature.Reason},
		{"two parts", parts[0] + "." + parts[1], errMalformed.Reason},
		{"four parts", good + ".x", errMalformed.Reason},
		{"JWE", good + ".x.x", errMalformed.Reason},
		{"empty payload", parts[0] + ".." + parts[2], errMalformed.Reason},
		{"JSON serialization", `{"payload":"` + payload + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, errMalformed.Reason},
		{"padded", parts[0] + "==." + parts[1] + "." + parts[2], errMalformed.Reason},
		{"line break inside", parts[0] + "\n." + parts[1] + "." + parts[2], errMalformed.Reason},
		{"space in front", " " + good, errMalformed.Reason},
		{"opaque", "0123456789abcdef", errOpaque.Reason},
		{"empty", "", errMalformed.Reason},
		{"dots", "..", errOpaque.Reason},
		{"header of many members", k1().Sign(t, map[string]any{"x": make([]int, maxHeaderCommas)}, claims), errMalformed.Reason},
		{"header too long", strings.Repeat("a", maxHeaderPart+1) + "." + payload + "." + parts[2], errMalformed.Reason},
		{"too long", strings.Repeat("a", maxToken) + ".a.a", errMalformed.Reason},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.check(t, tt.token, "", tt.reason)
			// The verdict is the same when it is remembered.
			w.check(t, tt.token, "", tt.reason)
		})
	}
	if n := p.Others.Load(); n != 0 {
		t.Errorf("%d requests to places that tokens named", n)
	}
	w.check(t, k1().Sign(t, map[string]any{"typ": "at+jwt"}, claims), "alice", "")
	w.check(t, k1().Sign(t, map[string]any{"typ": ""}, claims), "alice", "")
}

// nextCharacter is the character after c in the alphabet of base64url.
func nextCharacter(c byte) byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)+1]
}

// TOK-05: exp without leeway, nbf five minutes, iat not looked at.
func TestTimes(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	now := w.clock.Now().Unix()
	raw := func(s string) any { return json.RawMessage(s) }
	tests := []struct {
		name    string
		changes []any
		reason  string
	}{
		{"nbf and iat in 20 s", []any{"nbf", now + 20, "iat", now + 20}, ""},
		{"nbf in five minutes", []any{"nbf", now + 300}, ""},
		{"nbf in five minutes and a second", []any{"nbf", now + 301}, errNotYetValid.Reason},
		{"nbf in ten minutes", []any{"nbf", now + 600}, errNotYetValid.Reason},
		{"nbf long ago", []any{"nbf", 0}, ""},
		{"nbf null", []any{"nbf", nil}, ""},
		{"nbf as text", []any{"nbf", "0"}, errClaims.Reason},
		{"nbf an object", []any{"nbf", raw(`{}`)}, errClaims.Reason},
		{"nbf 1e300", []any{"nbf", raw(`1e300`)}, errClaims.Reason},
		{"nbf -1e300", []any{"nbf", raw(`-1e300`)}, errClaims.Reason},
		{"exp in a second", []any{"exp", now + 1}, ""},
		{"exp now", []any{"exp", now}, errExpired.Reason},
		{"exp five seconds ago", []any{"exp", now - 5}, errExpired.Reason},
		{"exp with a fraction", []any{"exp", raw(`1e10`)}, ""},
		{"exp missing", []any{"exp", absent}, errClaims.Reason},
		{"exp null", []any{"exp", nil}, errClaims.Reason},
		{"exp as text", []any{"exp", "4102444800"}, errClaims.Reason},
		{"exp in a list", []any{"exp", []int64{now + 600}}, errClaims.Reason},
		{"exp true", []any{"exp", true}, errClaims.Reason},
		{"exp 1e300", []any{"exp", raw(`1e300`)}, errClaims.Reason},
		{"exp 1e999", []any{"exp", raw(`1e999`)}, errClaims.Reason},
		{"exp in milliseconds", []any{"exp", (now + 600) * 1000}, errClaims.Reason},
		{"exp beyond int64", []any{"exp", raw(`9223372036854775808`)}, errClaims.Reason},
		{"exp negative", []any{"exp", -1}, errExpired.Reason},
		{"exp under another name", []any{"exp", absent, "EXP", now + 600}, errClaims.Reason},
		{"a second exp under another name", []any{"exp", now - 5, "Exp", now + 600}, errExpired.Reason},
		{"iat in an hour", []any{"iat", now + 3600}, ""},
		{"iat as text", []any{"iat", "yesterday"}, ""},
		{"iat absent", []any{"iat", absent}, ""},
		{"iat long ago", []any{"iat", 1}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := ""
			if tt.reason == "" {
				name = "alice"
			}
			w.check(t, w.token(t, k1(), p, tt.changes...), name, tt.reason)
		})
	}
}

// AUTH-4: iss and aud choose the authenticator.
func TestIssuersAndAudiences(t *testing.T) {
	p, q := newIDP(t, k1().JWK()), newIDP(t, k2().JWK())
	first, second, third := p.authenticator(), q.authenticator(), p.authenticator()
	first.Issuer.Audiences = []string{"proxy-a", "proxy-b"}
	first.Issuer.AudienceMatchPolicy = apiserver.AudienceMatchPolicyMatchAny
	prefix := "q:"
	second.ClaimMappings.Username.Prefix = &prefix
	third.Issuer.Audiences = []string{"proxy-c"}
	third.ClaimMappings.Username = expression(`"third"`)
	w := newWorld(t, first, second, third)

	tests := []struct {
		name    string
		signer  signer
		issuer  *testIDP
		changes []any
		want    string
		reason  string
	}{
		{"first issuer", k1(), p, nil, "alice", ""},
		{"second issuer", k2(), q, nil, "q:alice", ""},
		{"second audience", k1(), p, []any{"aud", "proxy-b"}, "alice", ""},
		{"one audience of several", k1(), p, []any{"aud", []string{"x", "proxy-b"}}, "alice", ""},
		{"one issuer, another authenticator", k1(), p, []any{"aud", "proxy-c"}, "third", ""},
		{"the key of another issuer", k2(), p, nil, "", errUnknownKey.Reason},
		{"the key of another issuer under its kid", by("k1", jose.RS256, issuertest.RSA2()), p, nil, "", errSignature.Reason},
		{"unknown issuer", k1(), p, []any{"iss", "https://evil.example.test"}, "", errUnknownIssuer.Reason},
		{"issuer with a slash", k1(), p, []any{"iss", p.URL + "/"}, "", errUnknownIssuer.Reason},
		{"issuer in another case", k1(), p, []any{"iss", strings.ToUpper(p.URL)}, "", errUnknownIssuer.Reason},
		{"no issuer", k1(), p, []any{"iss", absent}, "", errClaims.Reason},
		{"empty issuer", k1(), p, []any{"iss", ""}, "", errClaims.Reason},
		{"issuer in a list", k1(), p, []any{"iss", []string{p.URL}}, "", errClaims.Reason},
		{"issuer under another name", k1(), p, []any{"iss", absent, "ISS", p.URL}, "", errClaims.Reason},
		{"a second issuer under another name", k1(), p, []any{"iss", "https://evil.example.test", "Iss", p.URL}, "", errUnknownIssuer.Reason},
		{"another audience", k1(), p, []any{"aud", "proxy-x"}, "", errAudience.Reason},
		{"audience of another issuer's", k2(), q, []any{"aud", "proxy-b"}, "", errAudience.Reason},
		{"audience in another case", k1(), p, []any{"aud", "Proxy-A"}, "", errAudience.Reason},
		{"audiences in one string", k1(), p, []any{"aud", "proxy-a proxy-b"}, "", errAudience.Reason},
		{"no audience", k1(), p, []any{"aud", absent}, "", errClaims.Reason},
		{"audience null", k1(), p, []any{"aud", nil}, "", errClaims.Reason},
		{"audiences without end", k1(), p, []any{"aud", append(make([]string, maxAudience/3), "proxy-a")}, "", errClaims.Reason},
		{"audience an empty list", k1(), p, []any{"aud", []string{}}, "", errClaims.Reason},
		{"audience a number", k1(), p, []any{"aud", 1}, "", errClaims.Reason},
		{"audience with a number", k1(), p, []any{"aud", []any{"proxy-a", 1}}, "", errClaims.Reason},
		{"audience under another name", k1(), p, []any{"aud", "x", "AUD", "proxy-a"}, "", errAudience.Reason},
		{"azp is no audience", k1(), p, []any{"aud", "x", "azp", "proxy-a"}, "", errAudience.Reason},
		{"claims that are not mapped may be anything", k1(), p, []any{"nonce", 1, "at_hash", []int{1}, "_claim_sources", "x"}, "alice", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.check(t, w.token(t, tt.signer, tt.issuer, tt.changes...), tt.want, tt.reason)
		})
	}
	if n := w.factory.keys.Len(); n != 2 {
		t.Errorf("%d key sets, want 2", n)
	}
}

// AUTH-10 through a whole token, with bytes that no JSON encoder writes.
func TestPayloadBytes(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	payload, err := json.Marshal(w.claimsOf(p, "sub", "MARK"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, sub, want, reason string }{
		{"plain", `"alice"`, "alice", ""},
		{"UTF-8", `"élodie"`, "élodie", ""},
		{"invalid UTF-8", "\"al\xffice\"", "", errClaims.Reason},
		{"lone surrogate", `"al\ud800ice"`, "", errClaims.Reason},
		{"twice", `"alice","sub":"root"`, "", errClaims.Reason},
		{"registered claim twice", `"alice","exp":4102444800`, "", errClaims.Reason},
		{"registered claim twice, once escaped", `"alice","e\u0078p":4102444800`, "", errClaims.Reason},
		{"registered claim escaped", `"alice","\u006ebf":4102444800`, "", errClaims.Reason},
		{"names inside values", `"alice","x":{"iss":"y","exp":1,"a":["}",{"aud":[]}]},"y":"\",\"exp\":1"`, "alice", ""},
		{"not JSON", `alice`, "", errClaims.Reason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := k1().Sign(t, nil, bytes.Replace(payload, []byte(`"MARK"`), []byte(tt.sub), 1))
			w.check(t, token, tt.want, tt.reason)
		})
	}
}

// SIG-3, OBS-01: nothing of a token is in an error, whatever is wrong with it.
func TestErrorsHoldNothing(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	for _, token := range []string{
		w.token(t, k2(), p), w.token(t, k1(), p, "exp", 1), w.token(t, k1(), p, "sub", 42),
		w.token(t, k1(), p, "iss", "https://evil.example.test/0123456789abcdef"),
		w.token(t, k1(), p)[:500], strings.Repeat("secret-0123456789.", 1000),
	} {
		_, err := w.Authenticate(t.Context(), token)
		if err == nil {
			t.Fatal("accepted")
		}
		for i := 0; i+8 <= len(token); i += 8 {
			if strings.Contains(err.Error(), token[i:i+8]) {
				t.Errorf("%q holds %q", err, token[i:i+8])
			}
		}
		if strings.Contains(err.Error(), "evil") {
			t.Errorf("%q holds a claim", err)
		}
	}
}

func FuzzAuthenticate(f *testing.F) {
	p := newIDP(f, k1().JWK())
	w := newWorld(f, p.authenticator())
	good := w.token(f, k1(), p)
	f.Add(good)
	f.Add(strings.Repeat("a.", 2) + "a")
	f.Add(issuertest.Encode([]byte(`{"alg":"RS256","jwk":{"kty":"RSA"}}`)) + "." + strings.SplitN(good, ".", 2)[1])
	f.Fuzz(func(t *testing.T, token string) {
		result, err := w.Authenticate(t.Context(), token)
		if (result == nil) == (err == nil) {
			t.Fatalf("got %v, %v", result, err)
		}
		if result != nil && token != good {
			t.Fatalf("accepted %q", token)
		}
	})
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
			f := NewFactory(Options{})
			_, err := f.newJWT([]k8swatch.JWT{{Authenticator: good}, {Authenticator: bad}})
			if err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v", err)
			}
			if f.keys.Len() != 0 {
				t.Error("the key set of the first was not given back")
			}
		})
	}
}

// A caller that leaves while the keys are read gets an error that is no
// verdict, and the others get theirs.
func TestCallerLeaves(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	entered, release := make(chan struct{}), make(chan struct{})
	p.Answer(func(rw http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		writeJSON(rw, map[string]any{"issuer": p.URL, "jwks_uri": p.Server.URL + "/keys"})
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
	p.Reads(t, 1)
}
