package differential

import (
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

func ruleCases() []section {
	return []section{
		{rules, []row{
			{"all hold", nil, "alice [team-a|a,b]", same},
			{"another required value", claim("hd", "example.org"), "401", same},
			{"required claim absent", claim("hd", nil), "401", same},
			{"required claim a list", claim("hd", []string{"example.test"}), "401", same},
			{"required empty, absent", claim("env", nil), "401", same},
			{"required empty, null", claim("env", null), "alice [team-a|a,b]", but("401", "uid, required claim null")},
			{"required empty, something", claim("env", "x"), "401", same},
			{"expression false", claim("level", 1), "401", same},
			{"expression on a string", claim("level", "2"), "401", same},
			{"expression on a fraction", claim("level", 2.5), "alice [team-a|a,b]", same},
			{"user rule on the name", claim("preferred_username", "system:x"), "401", same},
			{"user rule on a group", claim("groups", []string{"a", "system:masters"}), "401", same},
			{"required value in another case", claim("hd", "Example.test"), "401", same},
			{"required value null", claim("hd", null), "401", same},
			{"expression on null", claim("level", null), "401", same},
		}},
	}
}

func audienceCases() []section {
	return []section{
		{audiences, []row{
			{"first audience", claim("aud", oidc.ClientID), "alice [g]", same},
			{"third audience", claim("aud", "third"), "alice [g]", same},
			{"one of several", claim("aud", []string{"x", "second", "y"}), "alice [g]", same},
			{"none of several", claim("aud", []string{"x", "y"}), "401", same},
			{"another audience", claim("aud", "fourth"), "401", same},
			{"an empty list", claim("aud", []string{}), "401", same},
			{"audience absent", claim("aud", nil), "401", same},
			{"audience null", claim("aud", null), "401", same},
			{"audience a number", claim("aud", 1), "401", same},
			{"audiences of 20 KiB", claim("aud", append(many(2000), "second")), "alice [g]", but("401", "header, aud")},
			{"audience in another case", claim("aud", "SECOND"), "401", same},
			{"a number among the audiences", claim("aud", []any{"second", 1}), "401", same},
			{"null among the audiences", claim("aud", []any{"second", nil}), "alice [g]", but("401", "null in aud")},
			{"the same audience twice", claim("aud", []string{"second", "second"}), "alice [g]", same},
			{"audience with a space", claim("aud", "second "), "401", same},
		}},
		{basic, []row{
			{"another audience", claim("aud", "second"), "401", same},
			{"authorized party is none", with(changes{"aud": "second", "azp": oidc.ClientID}), "401", same},
			{"issuer of nobody", claim("iss", "https://127.0.0.1:1/realm"), "401", same},
			{"issuer absent", claim("iss", nil), "401", same},
			{"issuer a list", claim("iss", []string{"x"}), "401", same},
			{"authorized party is another", claim("azp", "stranger"), alice, same},
			{"issuer with a slash", issuer(func(s string) string { return s + "/" }), "401", same},
			{"issuer in upper case", issuer(strings.ToUpper), "401", same},
			{"issuer of another authenticator, key of this", issuerOf(expr), "401", same},
		}},
	}
}

func distributed(w *world) []section {
	at := changes{"src": changes{"endpoint": w.claims.URL}}
	return []section{
		{basic, []row{
			{"groups elsewhere", patiently(with(changes{"groups": nil, "_claim_names": changes{"groups": "src"}, "_claim_sources": at})), "alice (subject-alice) [fetched]", but(tooLarge, "_claim_names")},
			{"groups aggregated", with(changes{"groups": nil, "_claim_names": changes{"groups": "src"}, "_claim_sources": changes{"src": changes{"JWT": "x"}}}), "alice (subject-alice)", but(tooLarge, "_claim_names")},
			{"groups here and elsewhere", with(changes{"_claim_names": changes{"groups": "src"}, "_claim_sources": at}), alice, but(tooLarge, "_claim_names")},
			{"another claim elsewhere", with(changes{"_claim_names": changes{"address": "src"}, "_claim_sources": at}), alice, same},
			{"another claim nowhere", claim("_claim_names", changes{"address": "src"}), "401", but(alice, "_claim_names of what is not mapped")},
			{"no names", claim("_claim_names", changes{}), alice, same},
			{"names of another type", claim("_claim_names", "groups"), "401", same},
			{"sources of another type", claim("_claim_sources", "groups"), "401", but(alice, "_claim_names of what is not mapped")},
		}},
		{audiences, []row{
			{"groups elsewhere, by expression", with(changes{"groups": nil, "_claim_names": changes{"groups": "src"}, "_claim_sources": at}), "401", but(tooLarge, "_claim_names")},
		}},
	}
}
