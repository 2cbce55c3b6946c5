package differential

import "strings"

func usernames() []section {
	return []section{
		{basic, []row{
			{"alice", nil, alice, same},
			{"élodie", claim("preferred_username", "élodie"), "élodie (subject-alice) [team-a|a,b]", same},
			{"a name with a comma and quotes", claim("preferred_username", `a,"b"`), `a,"b" (subject-alice) [team-a|a,b]`, same},
			{"a system: name", claim("preferred_username", "system:admin"), "system:admin (subject-alice) [team-a|a,b]", same},
			{"name absent", claim("preferred_username", nil), "401", same},
			{"name a number", claim("preferred_username", 42), "401", same},
			{"name a list", claim("preferred_username", []string{"alice"}), "401", same},
			{"name an object", claim("preferred_username", changes{}), "401", same},
			{"name null", claim("preferred_username", null), " (subject-alice) [team-a|a,b]", but(emptyUsername, `username null, ""`)},
			{"name empty", claim("preferred_username", ""), " (subject-alice) [team-a|a,b]", but(emptyUsername, `username null, ""`)},
			{"name blank", claim("preferred_username", " "), "  (subject-alice) [team-a|a,b]", but(emptyUsername, `username null, ""`)},
			{"line break in the name", claim("preferred_username", "a\nb"), "a\nb (subject-alice) [team-a|a,b]", but(untransmitName, forwarding)},
			{"space around the name", claim("preferred_username", " a"), " a (subject-alice) [team-a|a,b]", but(untransmitName, forwarding)},
			{"name in decomposed Unicode", claim("preferred_username", "e\u0301lodie"), "e\u0301lodie (subject-alice) [team-a|a,b]", same},
			{"name from right to left", claim("preferred_username", "علي"), "علي (subject-alice) [team-a|a,b]", same},
			{"an invisible character in the name", claim("preferred_username", "al\u200bice"), "al\u200bice (subject-alice) [team-a|a,b]", same},
			{"no-break space after the name", claim("preferred_username", "alice\u00a0"), "alice\u00a0 (subject-alice) [team-a|a,b]", but(untransmitName, forwarding)},
			{"NUL in the name", claim("preferred_username", "a\x00b"), "a\x00b (subject-alice) [team-a|a,b]", but(untransmitName, forwarding)},
			{"name of 9 KiB", claim("preferred_username", long(9000)), long(9000) + " (subject-alice) [team-a|a,b]", but(tooLargeWhole, forwarding)},
		}},
		{prefixes, []row{
			{"prefixes", nil, "oidc:subject-alice [oidc-admin]", same},
			{"sub empty", claim("sub", ""), "oidc: [oidc-admin]", but(emptyUsername, `username null, ""`)},
			{"sub absent", claim("sub", nil), "401", same},
			{"one role", claim("roles", "admin"), "oidc:subject-alice [oidc-admin]", same},
		}},
		{nested, []row{
			{"a claim that is a URL", nil, "alice [none]", same},
			{"that claim absent", claim("https://example.com/name", nil), "401", same},
		}},
		{expr, []row{
			{"an expression", nil, "ali (none)", same},
			{"expression on an absent claim", claim("nick", nil), "401", same},
			{"expression gives a number", claim("nick", 1), "401", same},
			{"expression gives null", claim("nick", null), "401", but(emptyUsername, "the same by expression")},
			{"expression gives an empty string", claim("nick", ""), "401", but(emptyUsername, "the same by expression")},
		}},
	}
}

func groups() []section {
	return []section{
		{basic, []row{
			{"one group", claim("groups", "ops"), "alice (subject-alice) [ops]", same},
			{"a group that looks like a list", claim("groups", "[ops]"), "alice (subject-alice) [[ops]]", same},
			{"groups absent", claim("groups", nil), "alice (subject-alice)", same},
			{"groups null", claim("groups", null), "alice (subject-alice)", same},
			{"groups empty", claim("groups", []string{}), "alice (subject-alice)", same},
			{"groups a number", claim("groups", 7), "401", same},
			{"groups true", claim("groups", true), "401", same},
			{"groups an object", claim("groups", changes{"a": 1}), "401", same},
			{"a number among the groups", claim("groups", []any{"ops", 1}), "401", same},
			{"a list among the groups", claim("groups", []any{"ops", []string{"a"}}), "401", same},
			{"null among the groups", claim("groups", []any{"dev", nil}), "alice (subject-alice) [dev|]", but("401", "null in a list of groups")},
			{"an empty group", claim("groups", []string{"dev", ""}), "alice (subject-alice) [dev|]", but(untransmitGroup, `"" in a list of groups`)},
			{"a group as an empty string", claim("groups", ""), "alice (subject-alice) []", but(untransmitGroup, `"" in a list of groups`)},
			{"a group twice", claim("groups", []string{"b", "a", "b"}), "alice (subject-alice) [b|a|b]", but("alice (subject-alice) [b|a]", "groups twice")},
			{"a system: group", claim("groups", []string{"system:masters"}), "alice (subject-alice) [system:masters]", same},
			{"65 groups", claim("groups", many(65)), "alice (subject-alice) [" + strings.Join(many(65), "|") + "]", but(tooLarge, forwarding)},
			{"a group in Unicode", claim("groups", "équipe-δ"), "alice (subject-alice) [équipe-δ]", same},
			{"64 groups", claim("groups", many(64)), "alice (subject-alice) [" + strings.Join(many(64), "|") + "]", same},
			{"1025 groups", claim("groups", many(1025)), "alice (subject-alice) [" + strings.Join(many(1025), "|") + "]", but(tooLargeWhole, "size of an identity")},
			{"line break in a group", claim("groups", "a\nb"), "alice (subject-alice) [a\nb]", but(untransmitGroup, forwarding)},
		}},
		{expr, []row{
			{"filtered", claim("groups", []string{"k8s-a", "other", "k8s-b"}), "ali (none) [k8s-a|k8s-b]", same},
			{"filter on a string", claim("groups", "k8s-a"), "401", same},
			{"filter on numbers", claim("groups", []int{1}), "401", same},
			{"filter on null", claim("groups", null), "401", same},
			{"filtered duplicates", claim("groups", []string{"k8s-a", "k8s-a"}), "ali (none) [k8s-a|k8s-a]", but("ali (none) [k8s-a]", "groups twice")},
		}},
		{audiences, []row{
			{"expression gives a string", claim("groups", "dev"), "alice [dev]", same},
			{"expression gives null", claim("groups", null), "alice", same},
			{"expression on absent groups", claim("groups", nil), "401", same},
			{"expression gives a number", claim("groups", 1), "401", same},
			{"expression gives numbers", claim("groups", []int{1}), "401", same},
			{"expression gives lists", claim("groups", []any{[]string{"a"}}), "401", same},
			{"expression gives an empty string among others", claim("groups", []string{"a", "", "b"}), "alice [a|b]", same},
			{"expression gives an empty string", claim("groups", ""), "alice", same},
		}},
		{nested, []row{
			{"split", claim("csv", "a,b,,c"), "401", but("alice [a|b|c]", "split() alone as groups")},
		}},
	}
}

func uids() []section {
	return []section{
		{basic, []row{
			{"uid absent", claim("sub", nil), "401", same},
			{"uid null", claim("sub", null), "alice [team-a|a,b]", but("401", "uid, required claim null")},
			{"uid a number", claim("sub", 7), "401", same},
			{"uid empty", claim("sub", ""), "alice [team-a|a,b]", same},
			{"uid in Unicode", claim("sub", "sübject"), "alice (sübject) [team-a|a,b]", same},
			{"uid a list", claim("sub", []string{"a"}), "401", same},
		}},
		{expr, []row{
			{"uid by expression", claim("uid", "u-1"), "ali (u-1)", same},
			{"uid by expression, a number", claim("uid", 1), "401", same},
			{"uid by expression, null", claim("uid", null), "401", same},
		}},
	}
}

func extras() []section {
	return []section{
		{basic, []row{
			{"jti", claim("jti", "j-1"), alice + " {authentication.kubernetes.io/credential-id=JTI=j-1}", but(alice, "jti")},
		}},
		{expr, []row{
			{"extras", with(changes{"tenant": "t 1", "realm": changes{"roles": []string{"r1", "r2"}}}), "ali (none) {example.com/roles:a=b=r1|r2} {example.com/tenant=t 1}", same},
			{"an extra of one string", claim("realm", changes{"roles": "r1"}), "ali (none) {example.com/roles:a=b=r1}", same},
			{"empty values are left out", claim("realm", changes{"roles": []string{"", "r2", ""}}), "ali (none) {example.com/roles:a=b=r2}", same},
			{"values twice", claim("realm", changes{"roles": []string{"r", "r"}}), "ali (none) {example.com/roles:a=b=r|r}", same},
			{"an extra of null", claim("tenant", null), "ali (none)", same},
			{"an extra of a number", claim("tenant", 1), "401", same},
			{"an extra below a string", claim("realm", "master"), "ali (none)", same},
			{"line break in an extra", claim("tenant", "a\nb"), "ali (none) {example.com/tenant=a\nb}", but(untransmitExtra, forwarding)},
		}},
		{nested, []row{
			{"escaped names at depth", claim("org", changes{"teams.k8s": []string{"core"}}), "alice [none] {example.com/teams=core}", same},
		}},
	}
}

func emails() []section {
	const who = "alice@example.test [team-a|a,b]"
	return []section{
		{email, []row{
			{"verified", nil, who, same},
			{"not verified", claim("email_verified", false), "401", same},
			{"verified as a string", claim("email_verified", "true"), "401", same},
			{"verified as a number", claim("email_verified", 1), "401", same},
			{"verified null", claim("email_verified", null), "401", same},
			{"flag absent", claim("email_verified", nil), who, but("401", "email without its flag")},
		}},
		{emailExpr, []row{
			{"verified", nil, "alice@example.test", same},
			{"not verified", claim("email_verified", false), "401", same},
			{"verified as a string", claim("email_verified", "true"), "401", same},
			{"flag absent", claim("email_verified", nil), "401", same},
		}},
		{emailIndex, []row{
			{"verified, by index", nil, "alice@example.test", same},
			{"not verified, by index", claim("email_verified", false), "alice@example.test", but("401", "email without its flag by an expression")},
			{"flag absent, by index", claim("email_verified", nil), "alice@example.test", but("401", "email without its flag by an expression")},
			{"no e-mail, by index", with(changes{"email": nil, "email_verified": nil}), "401", same},
			{"a claim looked for with in", claim("probe", true), "401", same},
		}},
	}
}
