package differential

import (
	"encoding/json"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

func algorithms() []section {
	return []section{
		{basic, []row{
			{"RS256", signed(oidc.K1, ""), alice, same},
			{"RS384", signed("rs384", ""), alice, same},
			{"RS512", signed("rs512", ""), alice, same},
			{"PS256", signed("ps256", ""), alice, same},
			{"PS384", signed("ps384", ""), alice, same},
			{"PS512", signed("ps512", ""), alice, same},
			{"ES256", signed(oidc.E1, ""), alice, same},
			{"ES384", signed("es384", ""), alice, same},
			{"ES512", signed("es512", ""), alice, same},
			{"EdDSA", signed("ed", ""), "401", but(alice, "algorithms")},
			{"PS256 with a key for RS256", signed(oidc.K1, jose.PS256), alice, but("401", "alg, use, key_ops of a JWK")},
			{"none", unsigned("none"), "401", same},
			{"nOnE", unsigned("nOnE"), "401", same},
			{"HS256 with the public key", minted(func(p *oidc.Provider, c changes) string { return p.SymmetricWithPublicKey(c, oidc.K1) }), "401", same},
			{"RS256 over an EC key", minted(func(p *oidc.Provider, c changes) string { return p.WrongAlgorithm(c, oidc.E1, "RS256") }), "401", same},
			{"a key in the token", minted((*oidc.Provider).EmbeddedKey), "401", same},
			{"a key at a URL in the token", minted(func(p *oidc.Provider, c changes) string { return p.KeyURL(c, "https://127.0.0.1:1/keys") }), "401", same},
			{"a changed signature", minted(func(p *oidc.Provider, c changes) string { return oidc.FlipSignatureBit(p.Mint(c, oidc.Sign{})) }), "401", same},
			{"another spelling of the signature", minted(respelled), alice, but("401", "base64url, stray bits")},
			{"no kid", header("kid", nil), alice, same},
			{"an RSA key of 1024 bits", signed("rs1024", ""), alice, but("401", "RSA keys")},
			{"a key for encryption", signed("enc", ""), alice, but("401", "alg, use, key_ops of a JWK")},
			{"a key with other operations", signed("ops", ""), alice, but("401", "alg, use, key_ops of a JWK")},
			{"a key that is not published", signed("hidden", ""), "401", same},
			{"kid of another key", header("kid", oidc.E1), "401", same},
			{"kid of no key", header("kid", "nobody"), "401", same},
			{"kid empty", header("kid", ""), alice, same},
			{"kid a number", header("kid", 7), "401", same},
			{"kid null", header("kid", null), alice, same},
		}},
		{costly, []row{
			{"no kid, the eighth key that fits", anonymously("fit-8"), "alice", same},
			{"no kid, the ninth key that fits", anonymously("fit-9"), "alice", but("401", "keys tried without kid")},
		}},
	}
}

func headers() []section {
	return []section{
		{basic, []row{
			{"typ at+jwt", header("typ", "at+jwt"), alice, same},
			{"no typ", header("typ", nil), alice, same},
			{"typ logout+jwt", header("typ", "logout+jwt"), alice, but("401", "typ of another token")},
			{"crit", header("crit", []string{"exp"}), "401", same},
			{"b64 true", joseHeader(changes{"b64": true, "crit": []string{"b64"}}), alice, but("401", "crit, b64")},
			{"a header of 5 KiB", header("pad", strings.Repeat("x", 5000)), alice, but("401", "header, aud")},
			{"an unknown header member", header("x-any", 1), alice, same},
			{"typ in another case", header("typ", "jwt"), alice, same},
			{"typ of another type", header("typ", 7), alice, but("401", "typ that is no string")},
			{"typ application/secevent+jwt", header("typ", "application/secevent+jwt"), alice, but("401", "typ of another token")},
			{"cty", header("cty", "JWT"), alice, same},
			{"zip", header("zip", "DEF"), alice, but("401", "crit, b64")},
			{"crit empty", header("crit", []string{}), alice, but("401", "crit, b64")},
			{"crit of nothing known", joseHeader(changes{"x": 1, "crit": []string{"x"}}), "401", same},
			{"70 members of the header", header("x", many(70)), alice, but("401", "header, aud")},
			{"alg null", header("alg", null), "401", same},
			{"alg in lower case", header("alg", "rs256"), "401", same},
		}},
	}
}

func payloads() []section {
	const name = `"preferred_username":"alice"`
	return []section{
		{basic, []row{
			{"invalid UTF-8", replaced(name, "\"preferred_username\":\"al\xffice\""), "al\ufffdice (subject-alice) [team-a|a,b]", but("401", `invalid UTF-8, \ud800`)},
			{"half a surrogate pair", replaced(name, `"preferred_username":"al\ud800ice"`), "al\ufffdice (subject-alice) [team-a|a,b]", but("401", `invalid UTF-8, \ud800`)},
			{"a whole surrogate pair", replaced(name, `"preferred_username":"al\ud83d\ude00ice"`), "al😀ice (subject-alice) [team-a|a,b]", same},
			{"an escaped name", replaced(name, `"preferred_\u0075sername":"alice"`), alice, same},
			{"a claim twice", replaced(name, `"preferred_username":"mallory",`+name), alice, but("401", "a name twice in an object")},
			{"a claim twice, one escaped", replaced(name, `"preferred_\u0075sername":"mallory",`+name), alice, but("401", "a name twice in an object")},
			{"a claim in another case", replaced(name, name+`,"PREFERRED_USERNAME":"mallory"`), alice, same},
			{"ISS", replaced(`"iss":`, `"ISS":`), alice, but("401", "ISS, Aud, eXp")},
			{"Aud", replaced(`"aud":`, `"Aud":`), alice, but("401", "ISS, Aud, eXp")},
			{"eXp", replaced(`"exp":`, `"eXp":`), alice, but("401", "ISS, Aud, eXp")},
			{"white space", payload(func(s string) string { return " \n" + s + "\t " }), alice, same},
			{"something after it", payload(func(s string) string { return s + "{}" }), "401", same},
			{"a list", payload(func(s string) string { return "[" + s + "]" }), "401", same},
			{"null", payload(func(string) string { return "null" }), "401", same},
			{"no JSON", payload(func(s string) string { return s[1:] }), "401", same},
			{"nonce of another type", claim("nonce", 7), "401", but(alice, "iat, sub, nonce, at_hash of another type")},
			{"at_hash of another type", claim("at_hash", 7), "401", but(alice, "iat, sub, nonce, at_hash of another type")},
			{"email of another type", claim("email", 7), alice, same},
			{"a name twice deep inside", claim("x", json.RawMessage(`{"a":[{"b":1,"b":2}]}`)), alice, but("401", "a name twice in an object")},
			{"half a pair in what is not mapped", claim("x", json.RawMessage(`"\ud800"`)), alice, but("401", `invalid UTF-8, \ud800`)},
			{"100 levels", claim("x", levels(100)), alice, same},
			{"10001 levels", replaced(`"exp":`, `"x":`+string(levels(10001))+`,"exp":`), "401", same},
			{"a number out of range", claim("x", json.RawMessage("1e999")), alice, same},
			{"a number with 400 digits", claim("x", json.RawMessage(strings.Repeat("7", 400))), alice, same},
			{"a byte order mark", payload(func(s string) string { return "\ufeff" + s }), "401", same},
			{"a comma too many", payload(func(s string) string { return s[:len(s)-1] + ",}" }), "401", same},
			{"NaN", replaced(`"exp":`, `"x":NaN,"exp":`), "401", same},
			{"no claims", payload(func(string) string { return "{}" }), "401", same},
			{"empty", payload(func(string) string { return "" }), "401", same},
			{"text", payload(func(string) string { return `"alice"` }), "401", same},
			{"a token of 40 KiB", claim("x", long(30<<10)), alice, same},
			{"a token of 80 KiB", claim("x", long(60<<10)), alice, but("431", "bytes of a bearer")},
		}},
		{audiences, []row{
			{"sub of another type", claim("sub", 7), "401", but("alice [g]", "iat, sub, nonce, at_hash of another type")},
		}},
		{expr, []row{
			{"a payload of 34 KiB", claim("x", long(34<<10)), "ali (none)", but("401", "payload for expressions")},
		}},
		{costly, []row{
			{"few values for an expression", claim("list", many(50)), "alice", same},
			{"2500 values for an expression", claim("list", many(2500)), "alice", but("401", "cost of an expression")},
			{"50 KiB of text made by an expression", claim("pad", strings.Repeat("a", 50)), "alice {example.com/text=3200}", same},
			{"80 KiB of text made by an expression", claim("pad", strings.Repeat("a", 1250)), "alice {example.com/text=80000}", but("401", "text, range in one call")},
			{"a range of 100", claim("n", 100), "alice {example.com/range=100}", same},
			{"a range of 9000", claim("n", 9000), "alice {example.com/range=9000}", but("401", "text, range in one call")},
		}},
	}
}

func dates() []section {
	return []section{
		{basic, []row{
			{"expired", claim("exp", in(-5*time.Second)), "401", same},
			{"exp absent", claim("exp", nil), "401", same},
			{"exp null", claim("exp", null), "401", same},
			{"exp a fraction", claim("exp", float64(in(time.Hour))+0.5), alice, same},
			{"exp a string", claim("exp", "4102444800"), alice, but("401", "exp, nbf as a string")},
			{"exp 1e300", claim("exp", 1e300), "401", same},
			{"exp after the year 9999", claim("exp", int64(1e15)), alice, but("401", "exp, nbf out of range")},
			{"nbf in 20 s", claim("nbf", in(20*time.Second)), alice, same},
			{"nbf in 3 min", claim("nbf", in(3*time.Minute)), "401", but(alice, "nbf")},
			{"nbf in 10 min", claim("nbf", in(10*time.Minute)), "401", same},
			{"nbf absent", claim("nbf", nil), alice, same},
			{"nbf null", claim("nbf", null), alice, same},
			{"nbf a string", claim("nbf", "0"), alice, but("401", "exp, nbf as a string")},
			{"iat in an hour", claim("iat", in(time.Hour)), alice, same},
			{"iat of another type", claim("iat", "yesterday"), "401", but(alice, "iat, sub, nonce, at_hash of another type")},
			{"exp negative", claim("exp", -1), "401", same},
			{"exp 0", claim("exp", 0), "401", same},
			{"exp in milliseconds", claim("exp", in(time.Hour)*1000), alice, but("401", "exp, nbf out of range")},
			{"exp with an exponent", claim("exp", json.RawMessage("4.1024448e9")), alice, same},
			{"exp true", claim("exp", true), "401", same},
			{"exp a list", claim("exp", []int64{in(time.Hour)}), "401", same},
			{"nbf negative", claim("nbf", -1), alice, same},
			{"nbf after the year 9999", claim("nbf", int64(1e15)), "401", same},
			{"iat absent", claim("iat", nil), alice, same},
			{"iat null", claim("iat", null), "401", but(alice, "iat, sub, nonce, at_hash of another type")},
		}},
	}
}
