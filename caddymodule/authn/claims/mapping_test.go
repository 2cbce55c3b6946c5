package claims

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

func claim(name, prefix string) apiserver.PrefixedClaimOrExpression {
	return apiserver.PrefixedClaimOrExpression{Claim: name, Prefix: &prefix}
}

func expression(e string) apiserver.PrefixedClaimOrExpression {
	return apiserver.PrefixedClaimOrExpression{Expression: e}
}

var compiler = sync.OnceValue(safecel.New)

func compile(t testing.TB, a apiserver.JWTAuthenticator) *Mapping {
	t.Helper()
	if a.Issuer.URL == "" {
		a.Issuer = apiserver.Issuer{URL: "https://idp.example.test/realm", Audiences: []string{"proxy-a"}}
	}
	mapper, errs := validation.CompileAndValidateJWTAuthenticator(compiler(), a, nil)
	if err := errs.ToAggregate(); err != nil {
		t.Fatalf("the test's authenticator is not valid: %v", err)
	}
	return NewMapping(&k8swatch.JWT{Authenticator: a, Mapper: mapper}, NewTurns().ForCluster("test"))
}

// mapped maps a payload of any size as an authenticator says.
func mapped(t testing.TB, a apiserver.JWTAuthenticator, payload string) (*identity.Identity, error) {
	t.Helper()
	m := compile(t, a)
	c, err := Parse([]byte(payload))
	if err != nil {
		return nil, ErrClaim
	}
	return m.identity(t.Context(), c)
}

// AUTH-10, AUTH-11, ID-2, TOK-06, TOK-08.
func TestIdentity(t *testing.T) {
	type id = identity.Identity
	sub := apiserver.ClaimMappings{Username: claim("sub", "")}
	subGroups := apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("groups", "")}
	email := apiserver.ClaimMappings{Username: claim("email", "")}
	withUID := func(uid apiserver.ClaimOrExpression) apiserver.ClaimMappings {
		return apiserver.ClaimMappings{Username: claim("sub", ""), UID: uid}
	}
	withExtra := func(e string) apiserver.ClaimMappings {
		return apiserver.ClaimMappings{Username: claim("sub", ""),
			Extra: []apiserver.ExtraMapping{{Key: "example.test/x", ValueExpression: e}}}
	}
	celName := func(e string) apiserver.ClaimMappings { return apiserver.ClaimMappings{Username: expression(e)} }
	celGroups := func(e string) apiserver.ClaimMappings {
		return apiserver.ClaimMappings{Username: claim("sub", ""), Groups: expression(e)}
	}

	noContractors := []apiserver.UserValidationRule{{Expression: `!user.groups.exists(g, g == "contractors")`, Message: "no"}}

	tests := []struct {
		name     string
		mappings apiserver.ClaimMappings
		rules    []apiserver.ClaimValidationRule
		user     []apiserver.UserValidationRule
		payload  string
		want     *id
		err      error
	}{
		// The username.
		{name: "username", mappings: sub, payload: `{"sub":"alice"}`, want: &id{Name: "alice"}},
		{name: "username with prefix", mappings: apiserver.ClaimMappings{Username: claim("sub", "p:")}, payload: `{"sub":"alice"}`, want: &id{Name: "p:alice"}},
		{name: "username in UTF-8", mappings: sub, payload: `{"sub":"élodie"}`, want: &id{Name: "élodie"}},
		{name: "username with NUL passes on", mappings: sub, payload: `{"sub":"a\u0000b"}`, want: &id{Name: "a\x00b"}},
		{name: "username absent", mappings: sub, payload: `{"name":"alice"}`, err: ErrClaim},
		{name: "username in another case", mappings: sub, payload: `{"Sub":"alice"}`, err: ErrClaim},
		{name: "username a number", mappings: sub, payload: `{"sub":42}`, err: ErrClaim},
		{name: "username an array", mappings: sub, payload: `{"sub":[]}`, err: ErrClaim},
		{name: "username an array of one", mappings: sub, payload: `{"sub":["alice"]}`, err: ErrClaim},
		{name: "username an object", mappings: sub, payload: `{"sub":{}}`, err: ErrClaim},
		{name: "username a boolean", mappings: sub, payload: `{"sub":true}`, err: ErrClaim},
		{name: "username null", mappings: sub, payload: `{"sub":null}`, want: &id{EmptyName: true}},
		{name: "username empty", mappings: sub, payload: `{"sub":""}`, want: &id{EmptyName: true}},
		{name: "username blank", mappings: sub, payload: `{"sub":" \t\u00a0\u2003"}`, want: &id{Name: " \t\u00a0\u2003", EmptyName: true}},
		{name: "username empty behind a prefix", mappings: apiserver.ClaimMappings{Username: claim("sub", "p:")}, payload: `{"sub":""}`, want: &id{Name: "p:", EmptyName: true}},
		{name: "username null behind a prefix", mappings: apiserver.ClaimMappings{Username: claim("sub", "p:")}, payload: `{"sub":null}`, want: &id{Name: "p:", EmptyName: true}},
		{name: "username by expression", mappings: celName(`claims.sub + "@x"`), payload: `{"sub":"alice"}`, want: &id{Name: "alice@x"}},
		{name: "username empty by expression", mappings: celName(`claims.sub`), payload: `{"sub":""}`, want: &id{EmptyName: true}},
		{name: "username blank by expression", mappings: celName(`claims.sub`), payload: `{"sub":" "}`, want: &id{Name: " ", EmptyName: true}},
		{name: "username null by expression", mappings: celName(`claims.sub`), payload: `{"sub":null}`, want: &id{EmptyName: true}},
		{name: "username absent by expression", mappings: celName(`claims.sub`), payload: `{}`, err: ErrClaim},
		{name: "username a number by expression", mappings: celName(`claims.sub`), payload: `{"sub":42}`, err: ErrClaim},
		{name: "username a list by expression", mappings: celName(`claims.sub`), payload: `{"sub":["alice"]}`, err: ErrClaim},
		{name: "username an optional by expression", mappings: celName(`claims.?sub`), payload: `{"sub":"alice"}`, err: ErrClaim},
		{name: "expression divides by zero", mappings: celName(`string(1 / int(claims.n))`), payload: `{"n":0}`, err: ErrClaim},
		{name: "expression over a number out of range", mappings: celName(`string(claims.n)`), payload: `{"n":1e999}`, err: ErrClaim},
		{name: "a number out of range that is not read", mappings: celName(`claims.sub`), payload: `{"sub":"alice","n":1e999}`, want: &id{Name: "alice"}},
		{name: "numbers are doubles as on the apiserver", mappings: celName(`string(claims.n + 1.5)`), payload: `{"n":1}`, want: &id{Name: "2.5"}},
		{name: "escaped names at the top", mappings: celName(`claims.foo__dot__bar__slash__x`), payload: `{"foo.bar/x":"alice"}`, want: &id{Name: "alice"}},
		{name: "escaped names deep down", mappings: celName(`claims.a[0].foo__dot__bar`), payload: `{"a":[{"foo.bar":"alice"}]}`, want: &id{Name: "alice"}},
		{name: "names that need no escape", mappings: celName(`claims.a["foo.bar"]`), payload: `{"a":{"foo.bar":"alice"}}`, want: &id{Name: "alice"}},

		// TOK-08, AUTH-11.
		{name: "email verified", mappings: email, payload: `{"email":"alice@example.test","email_verified":true}`, want: &id{Name: "alice@example.test"}},
		{name: "email not verified", mappings: email, payload: `{"email":"alice@example.test","email_verified":false}`, err: ErrEmailNotVerified},
		{name: "email verified as text", mappings: email, payload: `{"email":"alice@example.test","email_verified":"true"}`, err: ErrEmailNotVerified},
		{name: "email verified as number", mappings: email, payload: `{"email":"alice@example.test","email_verified":1}`, err: ErrEmailNotVerified},
		{name: "email verified null", mappings: email, payload: `{"email":"alice@example.test","email_verified":null}`, err: ErrEmailNotVerified},
		{name: "email verified in a list", mappings: email, payload: `{"email":"alice@example.test","email_verified":[true]}`, err: ErrEmailNotVerified},
		{name: "email verified absent", mappings: email, payload: `{"email":"alice@example.test"}`, err: ErrEmailNotVerified},
		{name: "email verified in another case", mappings: email, payload: `{"email":"alice@example.test","Email_Verified":true}`, err: ErrEmailNotVerified},
		{name: "email null", mappings: email, payload: `{"email":null,"email_verified":true}`, want: &id{EmptyName: true}},
		{name: "the flag says nothing of another claim", mappings: sub, payload: `{"sub":"alice","email_verified":false}`, want: &id{Name: "alice"}},
		{name: "email by expression, verified", mappings: celName(`claims.email_verified ? claims.email : ""`), payload: `{"email":"a@example.test","email_verified":true}`, want: &id{Name: "a@example.test"}},
		{name: "email by expression, flag absent", mappings: celName(`claims.email_verified ? claims.email : ""`), payload: `{"email":"a@example.test"}`, err: ErrClaim},

		// TOK-06.
		{name: "groups", mappings: subGroups, payload: `{"sub":"a","groups":["ops","dev"]}`, want: &id{Name: "a", Groups: []string{"ops", "dev"}}},
		{name: "one group", mappings: subGroups, payload: `{"sub":"a","groups":"ops"}`, want: &id{Name: "a", Groups: []string{"ops"}}},
		{name: "no guessing inside a string", mappings: subGroups, payload: `{"sub":"a","groups":"[ops]"}`, want: &id{Name: "a", Groups: []string{"[ops]"}}},
		{name: "no splitting at commas", mappings: subGroups, payload: `{"sub":"a","groups":["CN=ops,OU=eu","a b"]}`, want: &id{Name: "a", Groups: []string{"CN=ops,OU=eu", "a b"}}},
		{name: "groups absent", mappings: subGroups, payload: `{"sub":"a"}`, want: &id{Name: "a"}},
		{name: "groups null", mappings: subGroups, payload: `{"sub":"a","groups":null}`, want: &id{Name: "a"}},
		{name: "groups empty", mappings: subGroups, payload: `{"sub":"a","groups":[]}`, want: &id{Name: "a", Groups: []string{}}},
		{name: "groups twice", mappings: subGroups, payload: `{"sub":"a","groups":["b","a","b","B","a"]}`, want: &id{Name: "a", Groups: []string{"b", "a", "B"}}},
		{name: "empty groups pass on", mappings: subGroups, payload: `{"sub":"a","groups":["","x"]}`, want: &id{Name: "a", Groups: []string{"", "x"}}},
		{name: "groups with prefix", mappings: apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("groups", "p:")}, payload: `{"sub":"a","groups":["x","x","y"]}`, want: &id{Name: "a", Groups: []string{"p:x", "p:y"}}},
		{name: "groups with a number", mappings: subGroups, payload: `{"sub":"a","groups":["ops",1]}`, err: ErrClaim},
		{name: "groups with null", mappings: subGroups, payload: `{"sub":"a","groups":["ops",null]}`, err: ErrClaim},
		{name: "groups nested", mappings: subGroups, payload: `{"sub":"a","groups":[["ops"]]}`, err: ErrClaim},
		{name: "groups an object", mappings: subGroups, payload: `{"sub":"a","groups":{"a":1}}`, err: ErrClaim},
		{name: "groups a boolean", mappings: subGroups, payload: `{"sub":"a","groups":true}`, err: ErrClaim},
		{name: "groups a number", mappings: subGroups, payload: `{"sub":"a","groups":7}`, err: ErrClaim},
		{name: "groups not mapped", mappings: sub, payload: `{"sub":"a","groups":7}`, want: &id{Name: "a"}},
		{name: "groups by expression", mappings: celGroups(`claims.groups`), payload: `{"sub":"a","groups":["x","y","x"]}`, want: &id{Name: "a", Groups: []string{"x", "y"}}},
		{name: "groups filtered", mappings: celGroups(`dyn(claims.?groups.orValue([])).filter(g, g.startsWith('k8s-'))`), payload: `{"sub":"a","groups":["k8s-x","y"]}`, want: &id{Name: "a", Groups: []string{"k8s-x"}}},
		{name: "groups filtered, absent", mappings: celGroups(`dyn(claims.?groups.orValue([])).filter(g, g.startsWith('k8s-'))`), payload: `{"sub":"a"}`, want: &id{Name: "a"}},
		{name: "groups split", mappings: celGroups(`claims.roles.split(",")`), payload: `{"sub":"a","roles":"x,y"}`, want: &id{Name: "a", Groups: []string{"x", "y"}}},
		{name: "groups joined from lists", mappings: celGroups(`["x"] + dyn(claims.groups)`), payload: `{"sub":"a","groups":["y"]}`, want: &id{Name: "a", Groups: []string{"x", "y"}}},
		{name: "groups one string by expression", mappings: celGroups(`claims.role`), payload: `{"sub":"a","role":"x"}`, want: &id{Name: "a", Groups: []string{"x"}}},
		{name: "groups nothing by expression", mappings: celGroups(`claims.?role.orValue("")`), payload: `{"sub":"a"}`, want: &id{Name: "a"}},
		{name: "groups null by expression", mappings: celGroups(`claims.role`), payload: `{"sub":"a","role":null}`, want: &id{Name: "a"}},
		{name: "groups with empty ones by expression", mappings: celGroups(`claims.role`), payload: `{"sub":"a","role":["","x"]}`, want: &id{Name: "a", Groups: []string{"x"}}},
		{name: "groups with a number by expression", mappings: celGroups(`claims.role`), payload: `{"sub":"a","role":["x",1]}`, err: ErrClaim},
		{name: "groups a map by expression", mappings: celGroups(`claims.role`), payload: `{"sub":"a","role":{"x":"y"}}`, err: ErrClaim},
		{name: "groups absent by expression", mappings: celGroups(`claims.role`), payload: `{"sub":"a"}`, err: ErrClaim},

		// An overage (ID-2).
		{name: "overage", mappings: subGroups, payload: `{"sub":"a","_claim_names":{"groups":"src1"},"_claim_sources":{"src1":{"endpoint":"https://graph.example.test"}}}`, want: &id{Name: "a", Overage: true}},
		{name: "overage without sources", mappings: subGroups, payload: `{"sub":"a","_claim_names":{"groups":"src1"}}`, want: &id{Name: "a", Overage: true}},
		{name: "overage beside groups", mappings: subGroups, payload: `{"sub":"a","groups":["x"],"_claim_names":{"groups":"src1"}}`, want: &id{Name: "a", Overage: true}},
		{name: "overage of another claim", mappings: subGroups, payload: `{"sub":"a","groups":["x"],"_claim_names":{"roles":"src1"}}`, want: &id{Name: "a", Groups: []string{"x"}}},
		{name: "overage of groups that are not mapped", mappings: sub, payload: `{"sub":"a","_claim_names":{"groups":"src1"}}`, want: &id{Name: "a"}},
		{name: "overage of another claim that is mapped", mappings: apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("roles", "")}, payload: `{"sub":"a","_claim_names":{"groups":"s"}}`, want: &id{Name: "a"}},
		{name: "overage of the claim that is mapped", mappings: apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("roles", "")}, payload: `{"sub":"a","_claim_names":{"roles":"s"}}`, want: &id{Name: "a", Overage: true}},
		{name: "overage with an expression", mappings: celGroups(`claims.groups`), payload: `{"sub":"a","_claim_names":{"groups":"src1"}}`, want: &id{Name: "a", Overage: true}},
		{name: "overage with a lenient expression", mappings: celGroups(`claims.?groups.orValue([])`), payload: `{"sub":"a","_claim_names":{"groups":"src1"}}`, want: &id{Name: "a", Overage: true}},
		{name: "overage before a rule about the user", mappings: subGroups, user: noContractors, payload: `{"sub":"a","_claim_names":{"groups":"src1"}}`, want: &id{Name: "a", Overage: true, TooLarge: true}},
		{name: "overage with an expression, before a rule", mappings: celGroups(`claims.groups`), user: noContractors, payload: `{"sub":"a","_claim_names":{"groups":"src1"}}`, want: &id{Name: "a", Overage: true, TooLarge: true}},
		{name: "no overage before that rule", mappings: subGroups, user: noContractors, payload: `{"sub":"a","groups":["contractors"]}`, err: ErrRule},
		{name: "overage of the uid", mappings: withUID(apiserver.ClaimOrExpression{Claim: "oid"}), payload: `{"sub":"a","oid":"1","_claim_names":{"oid":"src1"}}`, want: &id{Name: "a", UID: "1", Overage: true}},
		{name: "overage of the username", mappings: sub, payload: `{"_claim_names":{"sub":"src1"}}`, err: ErrClaim},
		{name: "claim names null", mappings: subGroups, payload: `{"sub":"a","_claim_names":null}`, want: &id{Name: "a"}},
		{name: "claim names a list", mappings: subGroups, payload: `{"sub":"a","_claim_names":["groups"]}`, err: ErrClaim},

		// The uid.
		{name: "uid", mappings: withUID(apiserver.ClaimOrExpression{Claim: "oid"}), payload: `{"sub":"a","oid":"17"}`, want: &id{Name: "a", UID: "17"}},
		{name: "uid empty", mappings: withUID(apiserver.ClaimOrExpression{Claim: "oid"}), payload: `{"sub":"a","oid":""}`, want: &id{Name: "a"}},
		{name: "uid absent", mappings: withUID(apiserver.ClaimOrExpression{Claim: "oid"}), payload: `{"sub":"a"}`, err: ErrClaim},
		{name: "uid null", mappings: withUID(apiserver.ClaimOrExpression{Claim: "oid"}), payload: `{"sub":"a","oid":null}`, err: ErrClaim},
		{name: "uid a number", mappings: withUID(apiserver.ClaimOrExpression{Claim: "oid"}), payload: `{"sub":"a","oid":17}`, err: ErrClaim},
		{name: "uid by expression", mappings: withUID(apiserver.ClaimOrExpression{Expression: `claims.oid`}), payload: `{"sub":"a","oid":"17"}`, want: &id{Name: "a", UID: "17"}},
		{name: "uid a number by expression", mappings: withUID(apiserver.ClaimOrExpression{Expression: `claims.oid`}), payload: `{"sub":"a","oid":17}`, err: ErrClaim},
		{name: "uid absent by expression", mappings: withUID(apiserver.ClaimOrExpression{Expression: `claims.oid`}), payload: `{"sub":"a"}`, err: ErrClaim},

		// Extras are exactly those that are mapped.
		{name: "extra", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":"red"}`, want: &id{Name: "a", Extra: map[string][]string{"example.test/x": {"red"}}}},
		{name: "extra list", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":["red","","red"]}`, want: &id{Name: "a", Extra: map[string][]string{"example.test/x": {"red", "red"}}}},
		{name: "extra empty", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":""}`, want: &id{Name: "a"}},
		{name: "extra null", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":null}`, want: &id{Name: "a"}},
		{name: "extra empty list", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":[]}`, want: &id{Name: "a"}},
		{name: "extra absent", mappings: withExtra(`claims.team`), payload: `{"sub":"a"}`, err: ErrClaim},
		{name: "extra a number", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":1}`, err: ErrClaim},
		{name: "extra control character passes on", mappings: withExtra(`claims.team`), payload: `{"sub":"a","team":"a\nb"}`, want: &id{Name: "a", Extra: map[string][]string{"example.test/x": {"a\nb"}}}},
		{name: "jti makes no extra", mappings: subGroups, payload: `{"sub":"a","jti":"4711"}`, want: &id{Name: "a"}},

		// Rules.
		{name: "required claim", mappings: sub, rules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "x"}}, payload: `{"sub":"a","hd":"x"}`, want: &id{Name: "a"}},
		{name: "required claim differs", mappings: sub, rules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "x"}}, payload: `{"sub":"a","hd":"X"}`, err: ErrRule},
		{name: "required claim absent", mappings: sub, rules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "x"}}, payload: `{"sub":"a"}`, err: ErrRule},
		{name: "required claim in a list", mappings: sub, rules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "x"}}, payload: `{"sub":"a","hd":["x"]}`, err: ErrRule},
		{name: "required empty claim null", mappings: sub, rules: []apiserver.ClaimValidationRule{{Claim: "hd"}}, payload: `{"sub":"a","hd":null}`, err: ErrRule},
		{name: "claim rule", mappings: sub, rules: []apiserver.ClaimValidationRule{{Expression: `claims.n < 5`}}, payload: `{"sub":"a","n":4}`, want: &id{Name: "a"}},
		{name: "claim rule not met", mappings: sub, rules: []apiserver.ClaimValidationRule{{Expression: `true`}, {Expression: `claims.n < 5`}}, payload: `{"sub":"a","n":5}`, err: ErrRule},
		{name: "claim rule fails", mappings: sub, rules: []apiserver.ClaimValidationRule{{Expression: `claims.n < 5`}}, payload: `{"sub":"a"}`, err: ErrRule},
		{name: "rules hold in an overage too", mappings: subGroups, rules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "x"}}, payload: `{"sub":"a","_claim_names":{"groups":"s"}}`, err: ErrRule},
		{name: "user rule", mappings: subGroups, user: []apiserver.UserValidationRule{{Expression: `user.username == "a" && "x" in user.groups && user.uid == ""`}}, payload: `{"sub":"a","groups":["x"]}`, want: &id{Name: "a", Groups: []string{"x"}}},
		{name: "user rule not met", mappings: subGroups, user: []apiserver.UserValidationRule{{Expression: `!user.username.startsWith("system:")`}}, payload: `{"sub":"system:admin"}`, err: ErrRule},
		{name: "user rule sees prefixes", mappings: apiserver.ClaimMappings{Username: claim("sub", "p:")}, user: []apiserver.UserValidationRule{{Expression: `user.username == "p:a"`}}, payload: `{"sub":"a"}`, want: &id{Name: "p:a"}},
		{name: "user rule over extra", mappings: withExtra(`claims.team`), user: []apiserver.UserValidationRule{{Expression: `user.extra["example.test/x"] == ["red"]`}}, payload: `{"sub":"a","team":"red"}`, want: &id{Name: "a", Extra: map[string][]string{"example.test/x": {"red"}}}},
		{name: "user rule fails", mappings: sub, user: []apiserver.UserValidationRule{{Expression: `user.extra["example.test/x"] == ["red"]`}}, payload: `{"sub":"a"}`, err: ErrRule},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := mapped(t, apiserver.JWTAuthenticator{ClaimMappings: tt.mappings, ClaimValidationRules: tt.rules, UserValidationRules: tt.user}, tt.payload)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if err != tt.err {
				t.Errorf("got %v, want %v", err, tt.err)
			}
		})
	}
}

// Any list of strings is a list of groups, each value as it is, once.
func TestGroupsProperty(t *testing.T) {
	m := compile(t, apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: "https://idp.example.test", Audiences: []string{"a"}},
		ClaimMappings: apiserver.ClaimMappings{Username: claim("sub", ""), Groups: claim("groups", "p:")},
	})
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.SliceOf(rapid.String()).Draw(t, "groups")
		payload, err := json.Marshal(map[string]any{"sub": "alice", "groups": groups})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(payload)
		if err != nil {
			t.Fatal(err)
		}
		id, err := m.identity(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		want := []string{}
		for _, group := range groups {
			if !seen[group] {
				want = append(want, "p:"+group)
			}
			seen[group] = true
		}
		if got := append([]string{}, id.Groups...); !cmp.Equal(want, got) {
			t.Fatal(cmp.Diff(want, got))
		}
	})
}

// Whatever the payload is, there is an identity or a refusal.
func FuzzIdentity(f *testing.F) {
	for _, seed := range []string{
		`{"sub":"alice","groups":["dev"],"email_verified":true,"oid":"1","x":{"y":["z"]}}`,
		`{"sub":null,"groups":"ops","_claim_names":{"groups":"s"}}`, `{"sub":"","x":1e999}`, `{"sub":{},"x":[[]]}`,
	} {
		f.Add([]byte(seed))
	}
	issuer := apiserver.Issuer{URL: "https://idp.example.test", Audiences: []string{"a"}}
	var mappings []*Mapping
	for _, a := range []apiserver.JWTAuthenticator{
		{Issuer: issuer, ClaimMappings: apiserver.ClaimMappings{Username: claim("sub", "p:"), Groups: claim("groups", "g:"), UID: apiserver.ClaimOrExpression{Claim: "oid"}}},
		{Issuer: issuer, ClaimMappings: apiserver.ClaimMappings{
			Username: expression(`claims.sub`), Groups: expression(`claims.x.y`), UID: apiserver.ClaimOrExpression{Expression: `claims.?oid.orValue("")`},
			Extra: []apiserver.ExtraMapping{{Key: "example.test/x", ValueExpression: `claims.x`}}},
			ClaimValidationRules: []apiserver.ClaimValidationRule{{Expression: `claims.all(k, k != "")`}}},
	} {
		mappings = append(mappings, compile(f, a))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := Parse(payload)
		if err != nil {
			return
		}
		for _, m := range mappings {
			id, err := m.identity(t.Context(), c)
			if (id == nil) == (err == nil) {
				t.Fatalf("got %v, %v", id, err)
			}
			if id == nil {
				continue
			}
			if id.EmptyName != isBlank(strings.TrimPrefix(id.Name, prefix(m.mappings.Username.Prefix))) {
				t.Errorf("the name %q says EmptyName %t", id.Name, id.EmptyName)
			}
			if id.Overage && len(id.Groups) > 0 {
				t.Errorf("an overage with groups %q", id.Groups)
			}
		}
	})
}
