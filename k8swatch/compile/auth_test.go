package compile

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// withJWT makes an object whose authenticator is changed by change.
func withJWT(change func(*v1.JWTAuthenticator)) *v1.ProxyKubeApi {
	return k8stest.Object(func(s *v1.ProxyKubeApiSpec) { change(&s.AuthConfig.JWT[0]) })
}

func TestJWTAuthenticatorsAreMapped(t *testing.T) { // AUTH-4
	b := newBench(t)
	b.put(withJWT(func(a *v1.JWTAuthenticator) {
		a.Issuer.DiscoveryURL = ptr.To("https://discovery.example.test/x")
		a.Issuer.CertificateAuthority = ptr.To(string(k8stest.Certificate(t).Crt))
		a.Issuer.Audiences = []string{"a", "b"}
		a.Issuer.EgressSelector = "cluster"
		a.ClaimValidationRules = []v1.ClaimValidationRule{
			{Claim: ptr.To("hd"), RequiredValue: "example.test"},
			{Expression: ptr.To("claims.x == 'y'"), Message: "no x"},
		}
		a.ClaimMappings = &v1.ClaimMappings{
			Username: &v1.PrefixedClaimOrExpression{Claim: ptr.To("sub"), Prefix: ptr.To("oidc:")},
			Groups:   &v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.groups")},
			UID:      &v1.ClaimOrExpression{Claim: ptr.To("jti")},
			Extra:    []v1.ExtraMapping{{Key: "example.test/team", ValueExpression: "claims.team"}},
		}
		a.UserValidationRules = []v1.UserValidationRule{{Expression: "user.username != 'root'", Message: "no root"}}
	}))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	jwt := c.Auth.JWT[0]
	want := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{
			URL: "https://idp.example.test/realm", DiscoveryURL: "https://discovery.example.test/x",
			CertificateAuthority: jwt.Authenticator.Issuer.CertificateAuthority,
			Audiences:            []string{"a", "b"}, AudienceMatchPolicy: apiserver.AudienceMatchPolicyMatchAny,
		},
		ClaimValidationRules: []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "example.test"}, {Expression: "claims.x == 'y'", Message: "no x"}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: ptr.To("oidc:")},
			Groups:   apiserver.PrefixedClaimOrExpression{Expression: "claims.groups"},
			UID:      apiserver.ClaimOrExpression{Claim: "jti"},
			Extra:    []apiserver.ExtraMapping{{Key: "example.test/team", ValueExpression: "claims.team"}},
		},
		UserValidationRules: []apiserver.UserValidationRule{{Expression: "user.username != 'root'", Message: "no root"}},
	}
	if diff := cmp.Diff(want, jwt.Authenticator); diff != "" {
		t.Error(diff)
	}
	m := jwt.Mapper
	if m.Username != nil || m.Groups == nil || m.UID != nil || m.Extra == nil || m.ClaimValidationRules == nil || m.UserValidationRules == nil {
		t.Errorf("mapper %+v", m)
	}
}

// Errors in what admission does not look at close the cluster and name the
// field as the object spells it.
func TestInvalidAuthenticators(t *testing.T) { // API-2, AUTH-11
	username := func(u *v1.PrefixedClaimOrExpression) func(*v1.JWTAuthenticator) {
		return func(a *v1.JWTAuthenticator) { a.ClaimMappings.Username = u }
	}
	extra := func(e ...v1.ExtraMapping) func(*v1.JWTAuthenticator) {
		return func(a *v1.JWTAuthenticator) { a.ClaimMappings.Extra = e }
	}
	const key = "claim_mappings.extra[0].key: "
	tests := map[string]struct {
		change func(*v1.JWTAuthenticator)
		want   string
	}{
		"syntax":           {username(&v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.sub +")}), "claim_mappings.username.expression: does not compile: 1:13: Syntax error"},
		"unknown variable": {username(&v1.PrefixedClaimOrExpression{Expression: ptr.To("claimz.sub")}), "claim_mappings.username.expression: does not compile: 1:1: undeclared reference to 'claimz'"},
		"filter of claims": {func(a *v1.JWTAuthenticator) {
			a.ClaimMappings.Groups = &v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.groups.filter(g, g != '')")}
		}, "claim_mappings.groups.expression: does not compile: 1:7:"},
		"uid":               {func(a *v1.JWTAuthenticator) { a.ClaimMappings.UID = &v1.ClaimOrExpression{Expression: ptr.To(")")} }, "claim_mappings.uid.expression: does not compile"},
		"e-mail unverified": {username(&v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.email")}), "claim_mappings.username.expression: claims.email_verified must be used in claim_mappings.username.expression or claim_mappings.extra[*].value_expression or claim_validation_rules[*].expression"},
		"no mappings":       {func(a *v1.JWTAuthenticator) { a.ClaimMappings = nil }, "claim_mappings.username: claim or expression is required"},
		"no prefix":         {username(&v1.PrefixedClaimOrExpression{Claim: ptr.To("sub")}), "claim_mappings.username.prefix: prefix is required when claim is set"},
		"both":              {username(&v1.PrefixedClaimOrExpression{Claim: ptr.To("sub"), Expression: ptr.To("claims.sub")}), "claim_mappings.username: claim and expression can't both be set"},
		"rule, no bool": {func(a *v1.JWTAuthenticator) {
			a.ClaimValidationRules = []v1.ClaimValidationRule{{Expression: ptr.To("1 + 1"), Message: "m"}}
		}, "claim_validation_rules[0].expression: must evaluate to bool"},
		"rule, both": {func(a *v1.JWTAuthenticator) {
			a.ClaimValidationRules = []v1.ClaimValidationRule{{Expression: ptr.To("true"), RequiredValue: "x"}}
		}, "claim_validation_rules[0].required_value: may not be specified when expression is set"},
		"user rule": {func(a *v1.JWTAuthenticator) {
			a.UserValidationRules = []v1.UserValidationRule{{Expression: "user.nme == ''"}}
		}, "user_validation_rules[0].expression: does not compile: 1:5: undefined field 'nme'"},
		"extra, no domain":  {extra(v1.ExtraMapping{Key: "team", ValueExpression: "'a'"}), key + "must be a domain-prefixed path"},
		"extra, upper case": {extra(v1.ExtraMapping{Key: "example.test/Team", ValueExpression: "'a'"}), key + "must be lowercase"},
		"extra, k8s.io":     {extra(v1.ExtraMapping{Key: "x.k8s.io/team", ValueExpression: "'a'"}), key + "k8s.io, kubernetes.io and their subdomains are reserved"},
		"extra, kubernetes": {extra(v1.ExtraMapping{Key: "kubernetes.io/team", ValueExpression: "'a'"}), key + "k8s.io, kubernetes.io and their subdomains are reserved"},
		"extra, empty":      {extra(v1.ExtraMapping{ValueExpression: "'a'"}), key},
		"extra, no value":   {extra(v1.ExtraMapping{Key: "example.test/team"}), "claim_mappings.extra[0].value_expression: is required"},
		"extra, twice":      {extra(v1.ExtraMapping{Key: "example.test/team", ValueExpression: "'a'"}, v1.ExtraMapping{Key: "example.test/team", ValueExpression: "'b'"}), "claim_mappings.extra[1].key: is given more than once"},
		"issuer http":       {func(a *v1.JWTAuthenticator) { a.Issuer.URL = "http://idp" }, "issuer.url: URL scheme must be https"},
		"issuer user":       {func(a *v1.JWTAuthenticator) { a.Issuer.URL = "https://u:hunter2@idp" }, "issuer.url: URL must not contain a username or password"},
		"issuer no URL":     {func(a *v1.JWTAuthenticator) { a.Issuer.URL = "https://u:hunter2@idp:port" }, "issuer.url: is not a URL"},
		"no audience":       {func(a *v1.JWTAuthenticator) { a.Issuer.Audiences = nil }, "issuer.audiences: at least one is required"},
		"audience policy":   {func(a *v1.JWTAuthenticator) { a.Issuer.AudienceMatchPolicy = "MatchAll" }, "issuer.audience_match_policy: audience_match_policy must be empty or MatchAny"},
		"discovery is url":  {func(a *v1.JWTAuthenticator) { a.Issuer.DiscoveryURL = ptr.To(a.Issuer.URL + "/") }, "issuer.discovery_url: discovery_url must be different from URL"},
		"CA, not PEM":       {func(a *v1.JWTAuthenticator) { a.Issuer.CertificateAuthority = ptr.To("hunter2") }, "issuer.certificate_authority: data does not contain any valid"},
		"CA, empty (API-6)": {func(a *v1.JWTAuthenticator) { a.Issuer.CertificateAuthority = ptr.To("") }, "issuer.certificate_authority: is empty"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(withJWT(test.change))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.auth_config.jwt[0]."+test.want)
			if strings.Contains(c.Ready.Message, "hunter2") || strings.ContainsAny(c.Ready.Message, "\n|^") {
				t.Errorf("message %q", c.Ready.Message)
			}
		})
	}
}

// An error is told where it is written, whether the mappings are in use or not.
func TestMappingsThatAreNotInUseAreValidated(t *testing.T) { // API-2
	bad := &v1.ClaimMappings{
		Username: &v1.PrefixedClaimOrExpression{Claim: ptr.To("sub"), Prefix: ptr.To("")},
		Extra:    []v1.ExtraMapping{{Key: "bad", ValueExpression: "'a'"}},
	}
	b := newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.OidcProvider = &v1.OidcProvider{ClaimMappings: bad} }))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.auth_config.oidc_provider.claim_mappings.extra[0].key: must be a domain-prefixed path")
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.AuthConfig.DisableValidation = true
		s.AuthConfig.JWT[0].ClaimMappings = bad
	}))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.auth_config.jwt[0].claim_mappings.extra[0].key")
}

func TestDiscoveryURLsAreUnique(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		second := k8stest.Authenticator()
		second.Issuer.URL = "https://two.example.test"
		second.Issuer.DiscoveryURL, s.AuthConfig.JWT[0].Issuer.DiscoveryURL = ptr.To("https://d.example.test"), ptr.To("https://d.example.test")
		s.AuthConfig.JWT = append(s.AuthConfig.JWT, second)
	}))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.auth_config.jwt[1].issuer.discovery_url: must be unique in jwt")
}

func TestAuthenticatorsInUse(t *testing.T) { // AUTH-3
	b := newBench(t)
	b.put(k8stest.Object())
	if a := b.compile().Auth; len(a.JWT) != 1 || a.ValidateAgainst != v1.ValidateJwtAuthenticators || a.DisableValidation {
		t.Errorf("Auth %+v", a)
	}
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.DisableValidation = true }))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	if a := c.Auth; len(a.JWT) != 0 || !a.DisableValidation {
		t.Errorf("Auth %+v", a)
	}
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig = nil }))
	if a := b.compile().Auth; len(a.JWT) != 0 || a.ValidateAgainst != v1.ValidateKubernetes {
		t.Errorf("Auth %+v", a)
	}
}

// Objects that are older than the defaults of the CRD mean what they would with
// them (API-3).
func TestAudiencePolicyDefault(t *testing.T) {
	b := newBench(t)
	b.put(withJWT(func(a *v1.JWTAuthenticator) {
		a.Issuer.Audiences, a.Issuer.AudienceMatchPolicy, a.Issuer.EgressSelector = []string{"a", "b"}, "", ""
	}))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
}

// Programs are shared between objects, the messages of rules are not.
func TestExpressionsAreShared(t *testing.T) {
	b := newBench(t)
	compiled := map[string]k8swatch.JWT{}
	for _, name := range []string{"one", "two"} {
		o := withJWT(func(a *v1.JWTAuthenticator) {
			a.ClaimValidationRules = []v1.ClaimValidationRule{{Expression: ptr.To("claims.ok"), Message: "of " + name}}
			a.ClaimMappings.Username = &v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.sub")}
		})
		// A rule must be a bool: the same text as a mapping is another program.
		o.Spec.AuthConfig.JWT[0].ClaimValidationRules[0].Expression = ptr.To("claims.ok == true")
		key := k8swatch.Key{Namespace: "team-a", Name: name}
		o.Name = name
		b.store.Objects[key] = &k8swatch.Object{ProxyKubeApi: o}
		c := b.at(key)
		k8stest.WantReady(t, c, k8swatch.ReasonServing)
		compiled[name] = c.Auth.JWT[0]
	}
	for name, jwt := range compiled {
		values := types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{"ok": true, "sub": "alice"})
		results, err := jwt.Mapper.ClaimValidationRules.EvalClaimMappings(context.Background(), values)
		if err != nil || len(results) != 1 || results[0].EvalResult != types.True {
			t.Fatalf("rule of %s: %v, %v", name, results, err)
		}
		if rule := fmt.Sprintf("%+v", results[0].ExpressionAccessor); !strings.Contains(rule, "of "+name) {
			t.Errorf("rule of %s: %s", name, rule)
		}
		user, err := jwt.Mapper.Username.EvalClaimMapping(context.Background(), values)
		if err != nil || user.EvalResult.Value() != "alice" {
			t.Errorf("username of %s: %v, %v", name, user, err)
		}
	}
	if n := b.Compiler.cel().(*sharedCEL).results.Len(); n != 2 {
		t.Errorf("%d programs for 2 expressions", n)
	}
}

func TestSharedExpressionsKeepKindsApart(t *testing.T) {
	b := newBench(t)
	// As a mapping it compiles, as a rule it is no bool.
	b.put(withJWT(func(a *v1.JWTAuthenticator) {
		a.ClaimMappings.Username = &v1.PrefixedClaimOrExpression{Expression: ptr.To("'x'")}
	}))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.put(withJWT(func(a *v1.JWTAuthenticator) {
		a.ClaimValidationRules = []v1.ClaimValidationRule{{Expression: ptr.To("'x'"), Message: "m"}}
	}))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "must evaluate to bool")
}

// Two auth_configs have one hash only when they are written alike (AUTH-12).
func TestAuthHash(t *testing.T) {
	configs := rapid.Custom(func(t *rapid.T) *v1.AuthConfig {
		word := rapid.SampledFrom([]string{"", "a", "b", "ab", `a","b`, "a\x00b"})
		c := &v1.AuthConfig{
			DisableValidation: rapid.Bool().Draw(t, "disable"),
			ValidateAgainst:   v1.ValidateAgainst(word.Draw(t, "against")),
		}
		for range rapid.IntRange(0, 2).Draw(t, "jwt") {
			a := k8stest.Authenticator()
			a.Issuer.URL = word.Draw(t, "url")
			a.Issuer.Audiences = rapid.SliceOfN(word, 1, 3).Draw(t, "audiences")
			a.ClaimMappings.Username.Prefix = ptr.To(word.Draw(t, "prefix"))
			c.JWT = append(c.JWT, a)
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := configs.Draw(t, "a"), configs.Draw(t, "b")
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if (hashJSON("auth_config", a) == hashJSON("auth_config", b)) != (string(x) == string(y)) {
			t.Fatalf("hashes of %s and %s", x, y)
		}
	})
}

func BenchmarkCompileUnchanged(b *testing.B) {
	bench := newBench(b)
	bench.put(k8stest.Object(k8stest.InFrontProxy))
	bench.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(b)))
	bench.at(k8stest.Key)
	b.ReportAllocs()
	for b.Loop() {
		bench.at(k8stest.Key)
	}
}
