package differential

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/oidc"
)

// null is a claim that is null; nil leaves a claim out.
var null = json.RawMessage("null")

// keys are further keys of the issuer basic.
var keys = map[string]jose.SignatureAlgorithm{
	"rs512": jose.RS512, "ps256": jose.PS256, "es384": jose.ES384, "ed": jose.EdDSA,
}

// good are the claims that make a token of Alice good for a configuration.
var good = map[string]map[string]any{
	expr:     {"nick": "ali"},
	prefixes: {"roles": []string{"admin"}},
	rules:    {"hd": "example.test", "env": "", "level": 2},
	nested:   {"https://example.com/name": "alice"},
}

type changes = map[string]any

const (
	alice = "alice (subject-alice) [team-a|a,b]"

	emptyUsername  = "403 has no username for the configured claim (the user name)"
	untransmitName = "403 has a value it cannot forward (the user name)"
	untransmitted  = "403 has a value it cannot forward (a group)"
	tooLarge       = "403 is too large to forward (the groups)"
)

// cases is the table: what an apiserver makes of a bearer and, where the proxy
// makes something else of it, what and why. Ids are those of docs/reference.md.
func cases(w *world) []testCase {
	return slices.Concat(usernames(), groups(), uids(), extras(), emails(), ruleCases(), audienceCases(),
		distributed(w), algorithms(), headers(), payloads(), dates(), bearers())
}

func usernames() []testCase {
	name := func(v any) changes { return changes{"preferred_username": v} }
	return []testCase{
		{config: basic, name: "alice", apiserver: alice},
		{config: basic, name: "élodie", claims: name("élodie"), apiserver: "élodie (subject-alice) [team-a|a,b]"},
		{config: basic, name: "a name with a comma and quotes", claims: name(`a,"b"`), apiserver: `a,"b" (subject-alice) [team-a|a,b]`},
		{config: basic, name: "a system: name", claims: name("system:admin"), apiserver: "system:admin (subject-alice) [team-a|a,b]"},
		{config: basic, name: "name absent", claims: name(nil), apiserver: "401"},
		{config: basic, name: "name a number", claims: name(42), apiserver: "401"},
		{config: basic, name: "name a list", claims: name([]string{"alice"}), apiserver: "401"},
		{config: basic, name: "name an object", claims: name(changes{}), apiserver: "401"},
		{config: basic, name: "name null", claims: name(null), apiserver: " (subject-alice) [team-a|a,b]", proxy: emptyUsername, why: "an empty name is nobody's (ID-2)"},
		{config: basic, name: "name empty", claims: name(""), apiserver: " (subject-alice) [team-a|a,b]", proxy: emptyUsername, why: "an empty name is nobody's (ID-2)"},
		{config: basic, name: "name blank", claims: name(" "), apiserver: "  (subject-alice) [team-a|a,b]", proxy: emptyUsername, why: "a blank name is nobody's (ID-2)"},
		{config: basic, name: "line break in the name", claims: name("a\nb"), apiserver: "a\nb (subject-alice) [team-a|a,b]", proxy: untransmitName, why: "a header cannot carry it (ID-2)"},
		{config: basic, name: "space around the name", claims: name(" a"), apiserver: " a (subject-alice) [team-a|a,b]", proxy: untransmitName, why: "a header does not keep it (ID-2)"},
		{config: prefixes, name: "prefixes", apiserver: "oidc:subject-alice [oidc-admin]"},
		{config: prefixes, name: "sub empty", claims: changes{"sub": ""}, apiserver: "oidc: [oidc-admin]", proxy: emptyUsername, why: "no prefix hides an empty name (ID-2)"},
		{config: prefixes, name: "sub absent", claims: changes{"sub": nil}, apiserver: "401"},
		{config: prefixes, name: "one role", claims: changes{"roles": "admin"}, apiserver: "oidc:subject-alice [oidc-admin]"},
		{config: nested, name: "a claim that is a URL", apiserver: "alice [none]"},
		{config: nested, name: "that claim absent", claims: changes{"https://example.com/name": nil}, apiserver: "401"},
		{config: expr, name: "an expression", apiserver: "ali (none)"},
		{config: expr, name: "expression on an absent claim", claims: changes{"nick": nil}, apiserver: "401"},
		{config: expr, name: "expression gives a number", claims: changes{"nick": 1}, apiserver: "401"},
		{config: expr, name: "expression gives null", claims: changes{"nick": null}, apiserver: "401", proxy: emptyUsername, why: "null is an empty name, as from a claim (ID-2)"},
		{config: expr, name: "expression gives an empty string", claims: changes{"nick": ""}, apiserver: "401", proxy: emptyUsername, why: "an empty name is nobody's (ID-2): 403, since the login is good"},
	}
}

func groups() []testCase {
	g := func(v any) changes { return changes{"groups": v} }
	return []testCase{
		{config: basic, name: "one group", claims: g("ops"), apiserver: "alice (subject-alice) [ops]"},
		{config: basic, name: "a group that looks like a list", claims: g("[ops]"), apiserver: "alice (subject-alice) [[ops]]"},
		{config: basic, name: "groups absent", claims: g(nil), apiserver: "alice (subject-alice)"},
		{config: basic, name: "groups null", claims: g(null), apiserver: "alice (subject-alice)"},
		{config: basic, name: "groups empty", claims: g([]string{}), apiserver: "alice (subject-alice)"},
		{config: basic, name: "groups a number", claims: g(7), apiserver: "401"},
		{config: basic, name: "groups true", claims: g(true), apiserver: "401"},
		{config: basic, name: "groups an object", claims: g(changes{"a": 1}), apiserver: "401"},
		{config: basic, name: "a number among the groups", claims: g([]any{"ops", 1}), apiserver: "401"},
		{config: basic, name: "a list among the groups", claims: g([]any{"ops", []string{"a"}}), apiserver: "401"},
		{config: basic, name: "null among the groups", claims: g([]any{"dev", nil}), apiserver: "alice (subject-alice) [dev|]", proxy: "401", why: "null is no string (AUTH-10)"},
		{config: basic, name: "an empty group", claims: g([]string{"dev", ""}), apiserver: "alice (subject-alice) [dev|]", proxy: untransmitted, why: "an empty group cannot be asserted (ID-2)"},
		{config: basic, name: "a group as an empty string", claims: g(""), apiserver: "alice (subject-alice) []", proxy: untransmitted, why: "an empty group cannot be asserted (ID-2)"},
		{config: basic, name: "a group twice", claims: g([]string{"b", "a", "b"}), apiserver: "alice (subject-alice) [b|a|b]", proxy: "alice (subject-alice) [b|a]", why: "exact duplicates are dropped (AUTH-10)"},
		{config: basic, name: "a system: group", claims: g([]string{"system:masters"}), apiserver: "alice (subject-alice) [system:masters]"},
		{config: basic, name: "65 groups", claims: g(many(65)), apiserver: "alice (subject-alice) [" + strings.Join(many(65), "|") + "]", proxy: tooLarge, why: "at most 64 groups are forwarded (ID-2)"},
		{config: expr, name: "filtered", claims: g([]string{"k8s-a", "other", "k8s-b"}), apiserver: "ali (none) [k8s-a|k8s-b]"},
		{config: expr, name: "filter on a string", claims: g("k8s-a"), apiserver: "401"},
		{config: expr, name: "filter on numbers", claims: g([]int{1}), apiserver: "401"},
		{config: expr, name: "filter on null", claims: g(null), apiserver: "401"},
		{config: expr, name: "filtered duplicates", claims: g([]string{"k8s-a", "k8s-a"}), apiserver: "ali (none) [k8s-a|k8s-a]", proxy: "ali (none) [k8s-a]", why: "exact duplicates are dropped (AUTH-10)"},
		{config: audiences, name: "expression gives a string", claims: g("dev"), apiserver: "alice [dev]"},
		{config: audiences, name: "expression gives null", claims: g(null), apiserver: "alice"},
		{config: audiences, name: "expression on absent groups", claims: g(nil), apiserver: "401"},
		{config: audiences, name: "expression gives a number", claims: g(1), apiserver: "401"},
		{config: audiences, name: "expression gives numbers", claims: g([]int{1}), apiserver: "401"},
		{config: audiences, name: "expression gives lists", claims: g([]any{[]string{"a"}}), apiserver: "401"},
		{config: audiences, name: "expression gives an empty string among others", claims: g([]string{"a", "", "b"}), apiserver: "alice [a|b]"},
		{config: audiences, name: "expression gives an empty string", claims: g(""), apiserver: "alice"},
		{config: nested, name: "split", claims: changes{"csv": "a,b,,c"}, apiserver: "401", proxy: "alice [a|b|c]", why: "a list of strings is one, whoever made it (AUTH-10)"},
	}
}

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("group-%03d", i)
	}
	return list
}

func uids() []testCase {
	return []testCase{
		{config: basic, name: "uid absent", claims: changes{"sub": nil}, apiserver: "401"},
		{config: basic, name: "uid null", claims: changes{"sub": null}, apiserver: "alice [team-a|a,b]", proxy: "401", why: "a mapped claim is a string (AUTH-10)"},
		{config: basic, name: "uid a number", claims: changes{"sub": 7}, apiserver: "401"},
		{config: basic, name: "uid empty", claims: changes{"sub": ""}, apiserver: "alice [team-a|a,b]"},
		{config: expr, name: "uid by expression", claims: changes{"uid": "u-1"}, apiserver: "ali (u-1)"},
		{config: expr, name: "uid by expression, a number", claims: changes{"uid": 1}, apiserver: "401"},
		{config: expr, name: "uid by expression, null", claims: changes{"uid": null}, apiserver: "401"},
	}
}

func extras() []testCase {
	return []testCase{
		{config: basic, name: "jti", claims: changes{"jti": "j-1"}, apiserver: alice + " {authentication.kubernetes.io/credential-id=JTI=j-1}", proxy: alice, why: "extras are exactly claim_mappings.extra (AUTH-10)"},
		{config: expr, name: "extras", claims: changes{"tenant": "t 1", "realm": changes{"roles": []string{"r1", "r2"}}}, apiserver: "ali (none) {example.com/roles:a=b=r1|r2} {example.com/tenant=t 1}"},
		{config: expr, name: "an extra of one string", claims: changes{"realm": changes{"roles": "r1"}}, apiserver: "ali (none) {example.com/roles:a=b=r1}"},
		{config: expr, name: "empty values are left out", claims: changes{"realm": changes{"roles": []string{"", "r2", ""}}}, apiserver: "ali (none) {example.com/roles:a=b=r2}"},
		{config: expr, name: "values twice", claims: changes{"realm": changes{"roles": []string{"r", "r"}}}, apiserver: "ali (none) {example.com/roles:a=b=r|r}"},
		{config: expr, name: "an extra of null", claims: changes{"tenant": null}, apiserver: "ali (none)"},
		{config: expr, name: "an extra of a number", claims: changes{"tenant": 1}, apiserver: "401"},
		{config: expr, name: "an extra below a string", claims: changes{"realm": "master"}, apiserver: "ali (none)"},
		{config: nested, name: "escaped names at depth", claims: changes{"org": changes{"teams.k8s": []string{"core"}}}, apiserver: "alice [none] {example.com/teams=core}"},
		{config: expr, name: "line break in an extra", claims: changes{"tenant": "a\nb"}, apiserver: "ali (none) {example.com/tenant=a\nb}", proxy: "403 has a value it cannot forward (an extra value)", why: "a header cannot carry it (ID-2)"},
	}
}

func emails() []testCase {
	const who = "alice@example.test [team-a|a,b]"
	flag := func(v any) changes { return changes{"email_verified": v} }
	return []testCase{
		{config: email, name: "verified", apiserver: who},
		{config: email, name: "not verified", claims: flag(false), apiserver: "401"},
		{config: email, name: "verified as a string", claims: flag("true"), apiserver: "401"},
		{config: email, name: "verified as a number", claims: flag(1), apiserver: "401"},
		{config: email, name: "verified null", claims: flag(null), apiserver: "401"},
		{config: email, name: "flag absent", claims: flag(nil), apiserver: who, proxy: "401", why: "an address nobody vouches for (AUTH-11)"},
		{config: emailExpr, name: "verified", apiserver: "alice@example.test"},
		{config: emailExpr, name: "not verified", claims: flag(false), apiserver: "401"},
		{config: emailExpr, name: "verified as a string", claims: flag("true"), apiserver: "401"},
		{config: emailExpr, name: "flag absent", claims: flag(nil), apiserver: "401"},
	}
}

func ruleCases() []testCase {
	return []testCase{
		{config: rules, name: "all hold", apiserver: "alice [team-a|a,b]"},
		{config: rules, name: "another required value", claims: changes{"hd": "example.org"}, apiserver: "401"},
		{config: rules, name: "required claim absent", claims: changes{"hd": nil}, apiserver: "401"},
		{config: rules, name: "required claim a list", claims: changes{"hd": []string{"example.test"}}, apiserver: "401"},
		{config: rules, name: "required empty, absent", claims: changes{"env": nil}, apiserver: "401"},
		{config: rules, name: "required empty, null", claims: changes{"env": null}, apiserver: "alice [team-a|a,b]", proxy: "401", why: "null is no string (AUTH-10)"},
		{config: rules, name: "required empty, something", claims: changes{"env": "x"}, apiserver: "401"},
		{config: rules, name: "expression false", claims: changes{"level": 1}, apiserver: "401"},
		{config: rules, name: "expression on a string", claims: changes{"level": "2"}, apiserver: "401"},
		{config: rules, name: "expression on a fraction", claims: changes{"level": 2.5}, apiserver: "alice [team-a|a,b]"},
		{config: rules, name: "user rule on the name", claims: changes{"preferred_username": "system:x"}, apiserver: "401"},
		{config: rules, name: "user rule on a group", claims: changes{"groups": []string{"a", "system:masters"}}, apiserver: "401"},
	}
}

func audienceCases() []testCase {
	aud := func(v any) changes { return changes{"aud": v, "groups": "g"} }
	return []testCase{
		{config: audiences, name: "first audience", claims: aud(oidc.ClientID), apiserver: "alice [g]"},
		{config: audiences, name: "third audience", claims: aud("third"), apiserver: "alice [g]"},
		{config: audiences, name: "one of several", claims: aud([]string{"x", "second", "y"}), apiserver: "alice [g]"},
		{config: audiences, name: "none of several", claims: aud([]string{"x", "y"}), apiserver: "401"},
		{config: audiences, name: "another audience", claims: aud("fourth"), apiserver: "401"},
		{config: audiences, name: "an empty list", claims: aud([]string{}), apiserver: "401"},
		{config: audiences, name: "audience absent", claims: aud(nil), apiserver: "401"},
		{config: audiences, name: "audience null", claims: aud(null), apiserver: "401"},
		{config: audiences, name: "audience a number", claims: aud(1), apiserver: "401"},
		{config: audiences, name: "audiences of 20 KiB", claims: aud(append(many(2000), "second")), apiserver: "alice [g]", proxy: "401", why: "what is read before the signature is bounded"},
		{config: basic, name: "another audience", claims: changes{"aud": "second"}, apiserver: "401"},
		{config: basic, name: "authorized party is none", claims: changes{"aud": "second", "azp": oidc.ClientID}, apiserver: "401"},
		{config: basic, name: "issuer of another configuration", claims: changes{"iss": "https://127.0.0.1:1/realm"}, apiserver: "401"},
		{config: basic, name: "issuer absent", claims: changes{"iss": nil}, apiserver: "401"},
		{config: basic, name: "issuer a list", claims: changes{"iss": []string{"x"}}, apiserver: "401"},
	}
}

func distributed(w *world) []testCase {
	at := changes{"src": changes{"endpoint": w.claims.URL}}
	const why = "no URL that a token names is fetched (AUTH-13): what is missing is an overage (ID-2)"
	return []testCase{
		{config: basic, name: "groups elsewhere", claims: changes{"groups": nil, "_claim_names": changes{"groups": "src"}, "_claim_sources": at}, apiserver: "alice (subject-alice) [fetched]", proxy: tooLarge, why: why, patient: true},
		{config: basic, name: "groups aggregated", claims: changes{"groups": nil, "_claim_names": changes{"groups": "src"}, "_claim_sources": changes{"src": changes{"JWT": "x"}}}, apiserver: "alice (subject-alice)", proxy: tooLarge, why: why},
		{config: basic, name: "groups here and elsewhere", claims: changes{"_claim_names": changes{"groups": "src"}, "_claim_sources": at}, apiserver: alice, proxy: tooLarge, why: "the token says that groups are missing (ID-2)"},
		{config: audiences, name: "groups elsewhere, by expression", claims: changes{"groups": nil, "_claim_names": changes{"groups": "src"}, "_claim_sources": at}, apiserver: "401", proxy: tooLarge, why: "an overage is said to be one (ID-2)"},
		{config: basic, name: "another claim elsewhere", claims: changes{"_claim_names": changes{"address": "src"}, "_claim_sources": at}, apiserver: alice},
		{config: basic, name: "another claim nowhere", claims: changes{"_claim_names": changes{"address": "src"}}, apiserver: "401", proxy: alice, why: "a claim that is not mapped is not looked at"},
		{config: basic, name: "no names", claims: changes{"_claim_names": changes{}}, apiserver: alice},
		{config: basic, name: "names of another type", claims: changes{"_claim_names": "groups"}, apiserver: "401"},
		{config: basic, name: "sources of another type", claims: changes{"_claim_sources": "groups"}, apiserver: "401", proxy: alice, why: "a claim that is not mapped is not looked at"},
	}
}

func algorithms() []testCase {
	with := func(key string, alg jose.SignatureAlgorithm) oidc.Sign { return oidc.Sign{KeyID: key, Alg: alg} }
	type claims = map[string]any
	return []testCase{
		{config: basic, name: "RS512", sign: with("rs512", ""), apiserver: alice},
		{config: basic, name: "PS256", sign: with("ps256", ""), apiserver: alice},
		{config: basic, name: "ES256", sign: with(oidc.E1, ""), apiserver: alice},
		{config: basic, name: "ES384", sign: with("es384", ""), apiserver: alice},
		{config: basic, name: "EdDSA", sign: with("ed", ""), apiserver: "401", proxy: alice, why: "EdDSA is one of our algorithms (AUTH-4)"},
		{config: basic, name: "PS256 with a key for RS256", sign: with(oidc.K1, jose.PS256), apiserver: alice, proxy: "401", why: "a key signs as its JWK says (RFC 7517, 4.4)"},
		{config: basic, name: "none", token: func(p *oidc.Provider, c claims) string { return p.Unsigned(c, "none") }, apiserver: "401"},
		{config: basic, name: "nOnE", token: func(p *oidc.Provider, c claims) string { return p.Unsigned(c, "nOnE") }, apiserver: "401"},
		{config: basic, name: "HS256 with the public key", token: func(p *oidc.Provider, c claims) string { return p.SymmetricWithPublicKey(c, oidc.K1) }, apiserver: "401"},
		{config: basic, name: "RS256 over an EC key", token: func(p *oidc.Provider, c claims) string { return p.WrongAlgorithm(c, oidc.E1, "RS256") }, apiserver: "401"},
		{config: basic, name: "a key in the token", token: func(p *oidc.Provider, c claims) string { return p.EmbeddedKey(c) }, apiserver: "401"},
		{config: basic, name: "a key at a URL in the token", token: func(p *oidc.Provider, c claims) string { return p.KeyURL(c, "https://127.0.0.1:1/keys") }, apiserver: "401"},
		{config: basic, name: "a changed signature", token: func(p *oidc.Provider, c claims) string { return oidc.FlipSignatureBit(p.Mint(c, oidc.Sign{})) }, apiserver: "401"},
		{config: basic, name: "another spelling of the signature", token: func(p *oidc.Provider, c claims) string { return strayBits(p.Mint(c, oidc.Sign{})) }, apiserver: alice, proxy: "401", why: "a token has one spelling"},
		{config: basic, name: "no kid", sign: oidc.Sign{Header: changes{"kid": nil}}, apiserver: alice},
	}
}

// strayBits sets bits of the last character that belong to no byte.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last^1])
}

func headers() []testCase {
	h := func(name string, value any) oidc.Sign { return oidc.Sign{Header: changes{name: value}} }
	return []testCase{
		{config: basic, name: "typ at+jwt", sign: h("typ", "at+jwt"), apiserver: alice},
		{config: basic, name: "no typ", sign: h("typ", nil), apiserver: alice},
		{config: basic, name: "typ logout+jwt", sign: h("typ", "logout+jwt"), apiserver: alice, proxy: "401", why: "another kind of token (RFC 8725, 3.12)"},
		{config: basic, name: "crit", sign: h("crit", []string{"exp"}), apiserver: "401"},
		{config: basic, name: "b64 true", sign: oidc.Sign{Header: changes{"b64": true, "crit": []string{"b64"}}}, apiserver: alice, proxy: "401", why: "no extension of JWS is understood"},
		{config: basic, name: "a header of 5 KiB", sign: h("pad", strings.Repeat("x", 5000)), apiserver: alice, proxy: "401", why: "what is read before the signature is bounded"},
		{config: basic, name: "a header member nobody knows", sign: h("x-any", 1), apiserver: alice},
	}
}

func payloads() []testCase {
	p := func(edit func(string) string) func(*oidc.Provider, map[string]any) string {
		return func(idp *oidc.Provider, claims map[string]any) string {
			text, err := json.Marshal(claims)
			if err != nil {
				panic(err)
			}
			return idp.Mint(nil, oidc.Sign{Payload: []byte(edit(string(text)))})
		}
	}
	replace := func(old, with string) func(*oidc.Provider, map[string]any) string {
		return p(func(s string) string {
			if !strings.Contains(s, old) {
				panic("no " + old + " in " + s)
			}
			return strings.Replace(s, old, with, 1)
		})
	}
	const name = `"preferred_username":"alice"`
	return []testCase{
		{config: basic, name: "invalid UTF-8", token: replace(name, "\"preferred_username\":\"al\xffice\""), apiserver: "al\ufffdice (subject-alice) [team-a|a,b]", proxy: "401", why: "no repaired text (AUTH-10)"},
		{config: basic, name: "half a surrogate pair", token: replace(name, `"preferred_username":"al\ud800ice"`), apiserver: "al\ufffdice (subject-alice) [team-a|a,b]", proxy: "401", why: "no repaired text (AUTH-10)"},
		{config: basic, name: "a whole surrogate pair", token: replace(name, `"preferred_username":"al\ud83d\ude00ice"`), apiserver: "al😀ice (subject-alice) [team-a|a,b]"},
		{config: basic, name: "an escaped name", token: replace(name, `"preferred_\u0075sername":"alice"`), apiserver: alice},
		{config: basic, name: "a claim twice", token: replace(name, `"preferred_username":"mallory",`+name), apiserver: alice, proxy: "401", why: "two parsers could read two names"},
		{config: basic, name: "a claim twice, one escaped", token: replace(name, `"preferred_\u0075sername":"mallory",`+name), apiserver: alice, proxy: "401", why: "two parsers could read two names"},
		{config: basic, name: "a claim in another case", token: replace(name, name+`,"PREFERRED_USERNAME":"mallory"`), apiserver: alice},
		{config: basic, name: "ISS", token: replace(`"iss":`, `"ISS":`), apiserver: alice, proxy: "401", why: "claims have one spelling"},
		{config: basic, name: "Aud", token: replace(`"aud":`, `"Aud":`), apiserver: alice, proxy: "401", why: "claims have one spelling"},
		{config: basic, name: "eXp", token: replace(`"exp":`, `"eXp":`), apiserver: alice, proxy: "401", why: "claims have one spelling"},
		{config: basic, name: "white space", token: p(func(s string) string { return " \n" + s + "\t " }), apiserver: alice},
		{config: basic, name: "something after it", token: p(func(s string) string { return s + "{}" }), apiserver: "401"},
		{config: basic, name: "a list", token: p(func(s string) string { return "[" + s + "]" }), apiserver: "401"},
		{config: basic, name: "null", token: p(func(string) string { return "null" }), apiserver: "401"},
		{config: basic, name: "no JSON", token: p(func(s string) string { return s[1:] }), apiserver: "401"},
		{config: audiences, name: "sub of another type", claims: changes{"sub": 7, "groups": "g"}, apiserver: "401", proxy: "alice [g]", why: "a claim that is not mapped is not looked at"},
		{config: basic, name: "nonce of another type", claims: changes{"nonce": 7}, apiserver: "401", proxy: alice, why: "a claim that is not mapped is not looked at"},
		{config: basic, name: "at_hash of another type", claims: changes{"at_hash": 7}, apiserver: "401", proxy: alice, why: "a claim that is not mapped is not looked at"},
		{config: basic, name: "email of another type", claims: changes{"email": 7}, apiserver: alice},
	}
}

func dates() []testCase {
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	at := func(name string, v any) changes { return changes{name: v} }
	return []testCase{
		{config: basic, name: "expired", claims: at("exp", in(-5*time.Second)), apiserver: "401"},
		{config: basic, name: "exp absent", claims: at("exp", nil), apiserver: "401"},
		{config: basic, name: "exp null", claims: at("exp", null), apiserver: "401"},
		{config: basic, name: "exp a fraction", claims: at("exp", float64(in(time.Hour))+0.5), apiserver: alice},
		{config: basic, name: "exp a string", claims: at("exp", "4102444800"), apiserver: alice, proxy: "401", why: "a NumericDate is a number (RFC 7519, 2)"},
		{config: basic, name: "exp 1e300", claims: at("exp", 1e300), apiserver: "401"},
		{config: basic, name: "exp after the year 9999", claims: at("exp", int64(1e15)), apiserver: alice, proxy: "401", why: "no date, but a mistake"},
		{config: basic, name: "nbf in 20 s", claims: at("nbf", in(20*time.Second)), apiserver: alice},
		{config: basic, name: "nbf in 3 min", claims: at("nbf", in(3*time.Minute)), apiserver: "401", proxy: alice, why: "nbf has five minutes (AUTH-4), there one"},
		{config: basic, name: "nbf in 10 min", claims: at("nbf", in(10*time.Minute)), apiserver: "401"},
		{config: basic, name: "nbf absent", claims: at("nbf", nil), apiserver: alice},
		{config: basic, name: "nbf null", claims: at("nbf", null), apiserver: alice},
		{config: basic, name: "nbf a string", claims: at("nbf", "0"), apiserver: alice, proxy: "401", why: "a NumericDate is a number (RFC 7519, 2)"},
		{config: basic, name: "iat in an hour", claims: at("iat", in(time.Hour)), apiserver: alice},
		{config: basic, name: "iat of another type", claims: at("iat", "yesterday"), apiserver: "401", proxy: alice, why: "iat is not looked at (AUTH-4)"},
	}
}

func bearers() []testCase {
	line := func(before, after string) func(string) []string {
		return func(token string) []string { return []string{before + token + after} }
	}
	return []testCase{
		{config: basic, name: "scheme in another case", lines: line("bEARER ", ""), apiserver: alice},
		{config: basic, name: "two spaces", lines: line("Bearer  ", ""), apiserver: "anonymous", proxy: "401", why: "never anonymous (AUTH-2)"},
		{config: basic, name: "a tab", lines: line("Bearer\t", ""), apiserver: "anonymous", proxy: "401", why: "never anonymous (AUTH-2)"},
		{config: basic, name: "something after the token", lines: line("Bearer ", " x"), apiserver: alice, proxy: "401", why: "a request is understood in one way (AUTH-2)"},
		{config: basic, name: "two lines, the good one first", lines: func(token string) []string { return []string{"Bearer " + token, "Bearer x"} }, apiserver: alice, proxy: "401", why: "two credentials (AUTH-2)"},
		{config: basic, name: "two lines, the good one last", lines: func(token string) []string { return []string{"Bearer x", "Bearer " + token} }, apiserver: "401"},
		{config: basic, name: "the same line twice", lines: func(token string) []string { return []string{"Bearer " + token, "Bearer " + token} }, apiserver: alice, proxy: "401", why: "two credentials (AUTH-2)"},
		{config: basic, name: "no token", lines: func(string) []string { return []string{"Bearer "} }, apiserver: "anonymous", proxy: "401", why: "never anonymous (AUTH-2)"},
		{config: basic, name: "another scheme", lines: line("Basic ", ""), apiserver: "anonymous", proxy: "401", why: "never anonymous (AUTH-2)"},
		{config: basic, name: "no line", lines: func(string) []string { return nil }, apiserver: "anonymous", proxy: "401", why: "never anonymous (AUTH-2)"},
		{config: basic, name: "a comma", lines: line("Bearer ", ","), apiserver: "401"},
		{config: basic, name: "padding", lines: line("Bearer ", "="), apiserver: "401"},
		{config: basic, name: "five parts", lines: line("Bearer ", ".x.y"), apiserver: "401"},
		{config: basic, name: "an opaque token", lines: func(string) []string { return []string{"Bearer opaque"} }, apiserver: "401"},
		{config: basic, name: "JSON serialization", lines: func(token string) []string {
			part := strings.Split(token, ".")
			return []string{`Bearer {"protected":"` + part[0] + `","payload":"` + part[1] + `","signature":"` + part[2] + `"}`}
		}, apiserver: "401"},
	}
}
