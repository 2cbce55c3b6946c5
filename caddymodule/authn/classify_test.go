package authn

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
)

// joseOf joins the base64url of the parts.
func joseOf(parts ...string) string {
	encoded := make([]string, len(parts))
	for i, part := range parts {
		encoded[i] = issuertest.Encode([]byte(part))
	}
	return strings.Join(encoded, ".")
}

// AUTH-14: what a bearer is decides who gets to see it.
func TestClassify(t *testing.T) {
	const (
		rs256   = `{"alg":"RS256","kid":"k1"}`
		dir     = `{"alg":"dir","enc":"A256GCM"}`
		foreign = `{"iss":"https://other.example.test","sub":"alice"}`
		noIss   = `{"sub":"machine","jti":"1"}`
		sig     = "signature"
		issuer  = "https://other.example.test"
	)
	std, padded := base64.StdEncoding, base64.URLEncoding
	for _, tt := range []struct {
		name, token string
		kind        kind
		issuer      string
	}{
		{"empty", "", malformed, ""},
		{"random", "s3cr3t-token_of~somebody", opaque, ""},
		{"random with dots", "glpat-abcdefgh.01.120abcdef", opaque, ""},
		{"two parts", "ory_at_abcdefgh.ijklmnop", opaque, ""},
		{"five parts", "a.b.c.d.e", opaque, ""},
		{"Rancher's", "token-x7k2p:4jq9mzt8", opaque, ""},
		{"other characters", "abc|def$gh!i=j", opaque, ""},
		{"a JWS behind a prefix", "kubeconfig:" + joseOf(`{"alg":"RS256"}`, `{"iss":"https://a.test"}`, sig), malformed, ""},
		{"a JWS with a character in it", "!" + joseOf(`{"alg":"RS256"}`, `{"iss":"https://a.test"}`, sig), malformed, ""},
		{"a quoted JWS", `"` + joseOf(`{"alg":"RS256"}`, `{"iss":"https://a.test"}`, sig) + `"`, malformed, ""},
		{"a JWS as JSON", `{"payload":"e30","protected":"e30","signature":"c2ln"}`, malformed, ""},
		{"dots only", "...", opaque, ""},
		{"JSON in one part", issuertest.Encode([]byte(`{"k":"v","n":"x"}`)), opaque, ""},
		{"too long", strings.Repeat("a", maxToken+1), malformed, ""},
		{"not base64 in a part that is not JSON", "v1.local~x.abc", opaque, ""},

		{"JWS with iss", joseOf(rs256, foreign, sig), signed, issuer},
		{"JWS without iss", joseOf(rs256, noIss, sig), signedAnonymous, ""},
		{"JWS of an empty object", joseOf(rs256, `{}`, sig), signedAnonymous, ""},
		{"HMAC", joseOf(`{"alg":"HS256"}`, noIss, sig), signedAnonymous, ""},
		{"Google", joseOf(rs256, `{"iss":"accounts.google.com"}`, sig), signed, "https://accounts.google.com"},
		{"blanks in the JSON", joseOf(" {\n \"alg\": \"RS256\" }", "\t{ \"iss\" : \"x\" }", sig), signed, "x"},
		{"iss deeper", joseOf(rs256, `{"a":{"ISS":"x","iss":1}}`, sig), signedAnonymous, ""},
		{"iss with escapes", joseOf(rs256, `{"\u0069ss":"x"}`, sig), signed, "x"},
		{"iss in capitals", joseOf(rs256, `{"ISS":"x"}`, sig), malformed, ""},
		{"iss with a long s", joseOf(rs256, `{"iſs":"x"}`, sig), malformed, ""},
		{"iss in two spellings", joseOf(rs256, `{"iss":"x","Iss":"x"}`, sig), malformed, ""},
		{"iss twice", joseOf(rs256, `{"iss":"x","iss":"x"}`, sig), malformed, ""},
		{"iss null", joseOf(rs256, `{"iss":null}`, sig), malformed, ""},
		{"iss empty", joseOf(rs256, `{"iss":""}`, sig), malformed, ""},
		{"iss a number", joseOf(rs256, `{"iss":1}`, sig), malformed, ""},
		{"iss a list", joseOf(rs256, `{"iss":["x"]}`, sig), malformed, ""},
		{"iss in both", joseOf(`{"alg":"RS256","iss":"x"}`, `{"iss":"x"}`, sig), signed, "x"},
		{"iss in the header only", joseOf(`{"alg":"RS256","iss":"x"}`, noIss, sig), malformed, ""},
		{"another iss in the header", joseOf(`{"alg":"RS256","iss":"y"}`, `{"iss":"x"}`, sig), malformed, ""},
		{"an odd iss in the header", joseOf(`{"alg":"RS256","Iss":"x"}`, `{"iss":"x"}`, sig), malformed, ""},

		{"unsigned", joseOf(rs256, foreign) + ".", malformed, ""},
		{"alg none", joseOf(`{"alg":"nOnE"}`, noIss, sig), malformed, ""},
		{"no alg", joseOf(`{"kid":"k1"}`, noIss, sig), malformed, ""},
		{"alg a number", joseOf(`{"alg":1}`, noIss, sig), malformed, ""},
		{"alg twice", joseOf(`{"alg":"none","alg":"RS256"}`, noIss, sig), malformed, ""},
		{"alg in capitals", joseOf(`{"ALG":"RS256"}`, noIss, sig), malformed, ""},
		{"empty header", joseOf(`{}`, noIss, sig), malformed, ""},
		{"header broken off", joseOf(`{"alg":"RS256"`, foreign, sig), malformed, ""},
		{"header is no JSON", joseOf(`x`, foreign, sig), malformed, ""},
		{"no header", "." + joseOf(foreign, sig), malformed, ""},
		{"header with a byte order mark", joseOf("\ufeff"+rs256, "x", sig), malformed, ""},
		{"unencoded payload", joseOf(`{"alg":"RS256","b64":false,"crit":["b64"]}`, noIss, sig), malformed, ""},
		{"compressed payload", joseOf(`{"alg":"RS256","zip":"DEF"}`, noIss, sig), malformed, ""},
		{"detached payload", joseOf(rs256, "", sig), malformed, ""},
		{"payload is no JSON", joseOf(rs256, "text", sig), malformed, ""},
		{"payload is a list", joseOf(rs256, `[{"iss":"x"}]`, sig), malformed, ""},
		{"payload is null", joseOf(rs256, `null`, sig), malformed, ""},
		{"payload broken off", joseOf(rs256, `{"iss":"x"`, sig), malformed, ""},
		{"two payloads", joseOf(rs256, noIss+foreign, sig), malformed, ""},
		{"payload not Unicode", joseOf(rs256, "{\"a\":\"\xff\"}", sig), malformed, ""},
		{"nested", joseOf(rs256, joseOf(rs256, foreign, sig), sig), malformed, ""},

		{"signature cut off", joseOf(rs256, foreign), malformed, ""},
		{"four parts", joseOf(rs256, foreign, sig, sig), malformed, ""},
		{"five parts that are no JWE", joseOf(rs256, foreign, sig, sig, sig), malformed, ""},
		{"six parts", joseOf(dir, "", "iv", "text", "tag", "more"), malformed, ""},
		{"something in front", "x." + joseOf(rs256, foreign, sig), malformed, ""},
		{"selective disclosure", joseOf(rs256, foreign, sig) + "~WyJzYWx0Il0~", malformed, ""},
		{"padded at the end", joseOf(rs256, foreign) + "." + padded.EncodeToString([]byte("s")), malformed, ""},
		{"standard alphabet", std.WithPadding(base64.NoPadding).EncodeToString([]byte(`{"alg":"RS256","kid":"??>>"}`)) + "." + joseOf(foreign, sig), malformed, ""},
		{"stray bits", joseOf(rs256, foreign) + ".YWF", malformed, ""},
		{"a line break", joseOf(rs256, foreign) + ".\nYWFh", malformed, ""},
		{"a blank", joseOf(rs256) + " ." + joseOf(foreign, sig), malformed, ""},

		{"JWE", joseOf(dir, "", "iv", "text", "tag"), opaque, ""},
		{"nothing anywhere", joseOf(`{}`, `{}`, sig), opaque, ""},
		{"JWE with iss", joseOf(`{"alg":"dir","enc":"A256GCM","iss":"x"}`, "", "iv", "text", "tag"), encrypted, "x"},
		{"JWE with iss in capitals", joseOf(`{"alg":"dir","enc":"A256GCM","ISS":"x"}`, "", "iv", "text", "tag"), malformed, ""},
		{"JWE with two iss", joseOf(`{"alg":"dir","enc":"A256GCM","iss":"x","iss":"y"}`, "", "iv", "text", "tag"), malformed, ""},
		{"JWE with iss null", joseOf(`{"alg":"dir","enc":"A256GCM","iss":null}`, "", "iv", "text", "tag"), malformed, ""},
		{"JWE without enc", joseOf(`{"alg":"dir"}`, "", "iv", "text", "tag"), malformed, ""},
		{"JWE in three parts", joseOf(dir, noIss, sig), malformed, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if kind, issuer := classify(tt.token); kind != tt.kind || issuer != tt.issuer {
				t.Errorf("got %d, %q; want %d, %q", kind, issuer, tt.kind, tt.issuer)
			}
		})
	}
}

// AUTH-14: the token of another issuer that lost a piece on its way is not
// taken for one that may be passed on.
func TestClassifyDamaged(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	token := w.token(t, k1(), p)
	header, _, _ := strings.Cut(token, ".")
	harmless := func(what, damaged string) {
		t.Helper()
		if kind, _ := classify(damaged); kind != malformed && kind != signed {
			t.Errorf("%s: kind %d", what, kind)
		}
	}
	for n := len(header) + 2; n < len(token); n++ {
		harmless("cut off at the end", token[:n])
	}
	for n := 1; n < len(header); n++ {
		harmless("cut off in front", token[n:])
		harmless("a letter less", token[:n]+token[n+1:])
		harmless("a letter in capitals", token[:n]+strings.ToUpper(token[n:n+1])+token[n+1:])
	}
}

// A token of random bytes is not taken for JOSE by chance.
func TestClassifyRandom(t *testing.T) {
	damaged := 0
	for range 20_000 {
		b := make([]byte, 32)
		_, _ = rand.Read(b)
		token := base64.RawStdEncoding.EncodeToString(b)
		if kind, _ := classify(token); kind != opaque {
			t.Fatalf("%s: kind %d", token, kind)
		}
		if kind, _ := classify(token + "." + hex.EncodeToString(b)); kind != opaque {
			damaged++
		}
	}
	if damaged > 10 { // less than one on average
		t.Errorf("%d of 20,000 in two parts are not opaque", damaged)
	}
}

func FuzzClassify(f *testing.F) {
	f.Add("opaque")
	f.Add(joseOf(`{"alg":"RS256"}`, `{"iss":"x"}`, "s"))
	f.Add(joseOf(`{"alg":"dir","enc":"A256GCM","iss":"x"}`, "", "iv", "text", "tag"))
	f.Fuzz(func(t *testing.T, token string) {
		kind, issuer := classify(token)
		if (issuer != "") != (kind == signed || kind == encrypted) {
			t.Errorf("kind %d with issuer %q", kind, issuer)
		}
		read, refused := parseJWT(token)
		if refused == nil && kind != malformed && (kind != signed || issuer != read.Issuer) {
			t.Errorf("kind %d of %q, read as a token of %q", kind, issuer, read.Issuer)
		}
	})
}
