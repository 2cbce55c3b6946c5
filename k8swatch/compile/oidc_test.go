package compile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// withProvider makes an object in Passthrough whose oidc_provider is changed by
// change.
func withProvider(change ...func(*v1.OidcProvider)) *v1.ProxyKubeApi {
	return k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		p := &v1.OidcProvider{Enabled: true, IssuerURL: "https://idp.example.test/realm", ClientID: "proxy-a", ClaimsSource: v1.ClaimsSourceUserInfo}
		for _, c := range change {
			c(p)
		}
		s.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: p}
	})
}

// provider compiles an object that must be served.
func (b *bench) provider(o *v1.ProxyKubeApi) *k8swatch.OIDCProvider {
	b.t.Helper()
	b.put(o)
	c := b.compile()
	k8stest.WantReady(b.t, c, k8swatch.ReasonServing)
	if c.Auth.OIDC == nil || c.Auth.JWT != nil || c.Auth.ValidateAgainst != v1.ValidateOidcProvider {
		b.t.Fatalf("Auth %+v", c.Auth)
	}
	return c.Auth.OIDC
}

// claimsOf is what can be compared of the claims.
func claimsOf(p *k8swatch.OIDCProvider) apiserver.JWTAuthenticator { return p.Claims.Authenticator }

func TestOidcProviderIsMapped(t *testing.T) { // AUTH-6, AUTH-7
	ca := string(k8stest.Certificate(t).Crt)
	p := newBench(t).provider(withProvider(func(p *v1.OidcProvider) {
		p.ClientSecret, p.Audience, p.CertificateAuthority = ptr.To("hunter2"), "aud", &ca
		p.AcceptAuthorizedParty, p.ClaimsSource = true, v1.ClaimsSourceToken
		p.ClaimMappings = &v1.ClaimMappings{
			Username: &v1.PrefixedClaimOrExpression{Claim: ptr.To("sub"), Prefix: ptr.To("oidc:")},
			Groups:   &v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.groups")},
			Extra:    []v1.ExtraMapping{{Key: "example.test/team", ValueExpression: "claims.team"}},
		}
	}))
	want := k8swatch.OIDCProvider{
		IssuerURL: "https://idp.example.test/realm", ClientID: "proxy-a", ClientSecret: "hunter2", Audience: "aud",
		CertificateAuthority: ca, AcceptAuthorizedParty: true, ClaimsFromToken: true,
	}
	got := *p
	got.Claims = k8swatch.JWT{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantClaims := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{
			URL: want.IssuerURL, CertificateAuthority: ca, Audiences: []string{"aud"},
			AudienceMatchPolicy: apiserver.AudienceMatchPolicyMatchAny,
		},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: ptr.To("oidc:")},
			Groups:   apiserver.PrefixedClaimOrExpression{Expression: "claims.groups"},
			Extra:    []apiserver.ExtraMapping{{Key: "example.test/team", ValueExpression: "claims.team"}},
		},
	}
	if diff := cmp.Diff(wantClaims, claimsOf(p)); diff != "" {
		t.Error(diff)
	}
	if m := p.Claims.Mapper; m.Username != nil || m.Groups == nil || m.Extra == nil {
		t.Errorf("mapper %+v", m)
	}
}

func TestOidcProviderDefaults(t *testing.T) { // AUTH-7, AUTH-9
	p := newBench(t).provider(withProvider())
	if p.Audience != "proxy-a" || p.ClientSecret != "" || p.ClaimsFromToken || p.AcceptAuthorizedParty || p.CertificateAuthority != "" {
		t.Errorf("audience %q, %+v", p.Audience, *p)
	}
	want := apiserver.ClaimMappings{
		Username: apiserver.PrefixedClaimOrExpression{Claim: "preferred_username", Prefix: ptr.To("")},
		Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: ptr.To("")},
	}
	if diff := cmp.Diff(want, claimsOf(p).ClaimMappings); diff != "" {
		t.Error(diff)
	}
}

// SIG-3: what holds a secret prints without it, however it is printed.
func TestSecretsOfAuthDoNotPrint(t *testing.T) {
	b := newBench(t)
	o := withProvider(func(p *v1.OidcProvider) { p.ClientSecret = ptr.To("hunter2") })
	o.Spec.AuthConfig.TokenExchange = &v1.TokenExchange{Enabled: true, TokenURL: "https://idp.example.test/token", ClientID: "c", ClientSecret: "hunter2"}
	b.put(o)
	c := b.compile()
	for _, v := range []any{c, *c, c.Auth, c.Auth.OIDC, *c.Auth.OIDC, c.Auth.Exchange, *c.Auth.Exchange} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") {
				t.Errorf("%s of a %T: %s", verb, v, text)
			}
		}
	}
	for _, v := range []any{c.Auth.OIDC, *c.Auth.OIDC, c.Auth.Exchange, *c.Auth.Exchange} {
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), "idp.example.test") {
			t.Errorf("%T as JSON: %s, %v", v, text, err)
		}
	}
}

// The pointer stays what it is, so that an authenticator is made once.
func TestOidcProviderIsCompiledOnce(t *testing.T) {
	b := newBench(t)
	first := b.provider(withProvider())
	if again := b.provider(withProvider()); again != first {
		t.Error("compiled again what did not change")
	}
	if other := b.provider(withProvider(func(p *v1.OidcProvider) { p.AcceptAuthorizedParty = true })); other == first {
		t.Error("the same value though a field changed")
	}
}

// What admission does not look at is told with the path of the field, and no
// value is repeated (API-2, API-6).
func TestInvalidOidcProviders(t *testing.T) {
	broken := strings.Replace(string(k8stest.Certificate(t).Crt), "MII", "MIX", 1)
	url := func(u string) func(*v1.OidcProvider) { return func(p *v1.OidcProvider) { p.IssuerURL = u } }
	username := func(u v1.PrefixedClaimOrExpression) func(*v1.OidcProvider) {
		return func(p *v1.OidcProvider) { p.ClaimMappings = &v1.ClaimMappings{Username: &u} }
	}
	const email = "claim_mappings.username.expression: claims.email_verified must be used in claim_mappings.username.expression or claim_mappings.extra[*].value_expression"
	tests := map[string]struct {
		change func(*v1.OidcProvider)
		want   string // empty: it is served
	}{
		"issuer http":              {url("http://idp.example.test"), "issuer_url: must be an https:// URL"},
		"issuer without scheme":    {url("idp.example.test/hunter2"), "issuer_url: must be an https:// URL"},
		"issuer empty":             {url(""), "issuer_url: must not be empty"},
		"issuer query":             {url("https://idp.example.test?hunter2"), "issuer_url: must not contain a query"},
		"issuer empty query":       {url("https://idp.example.test/?"), "issuer_url: must not contain a query"},
		"issuer fragment":          {url("https://idp.example.test/#hunter2"), "issuer_url: must not contain a fragment"},
		"issuer user":              {url("https://hunter2@idp.example.test"), "issuer_url: must not contain a user or password"},
		"issuer port":              {url("https://idp.example.test:hunter2"), "issuer_url: has a port that is not 1 to 65535"},
		"issuer host":              {url("https:///realm"), "issuer_url: needs a host"},
		"issuer space":             {url("https://idp.example.test/a b"), "issuer_url: has a path with a character that must be percent-encoded"},
		"issuer line break":        {url("https://idp.example.test/\nhunter2"), "issuer_url: has a control character"},
		"issuer, last slash":       {url("https://idp.example.test:8443/realms/a%20b/"), ""},
		"issuer, IPv6":             {url("https://[2001:db8::1]/dex"), ""},
		"issuer, double slash":     {url("https://idp.example.test//realm"), ""},
		"client_id empty":          {func(p *v1.OidcProvider) { p.ClientID = " " }, "client_id: must not be empty"},
		"client_id control":        {func(p *v1.OidcProvider) { p.ClientID = "hunter2\x7f" }, "client_id: has a control character"},
		"client_secret control":    {func(p *v1.OidcProvider) { p.ClientSecret = ptr.To("hunter2\n") }, "client_secret: has a control character"},
		"client_secret empty":      {func(p *v1.OidcProvider) { p.ClientSecret = ptr.To("") }, ""},
		"client_secret, all signs": {func(p *v1.OidcProvider) { p.ClientSecret = ptr.To("p:%&=+ ü\"") }, ""},
		"audience control":         {func(p *v1.OidcProvider) { p.Audience = "hunter2\t" }, "audience: has a control character"},
		"audience, URI":            {func(p *v1.OidcProvider) { p.Audience = "api://x" }, ""},
		"extra_scope":              {func(p *v1.OidcProvider) { p.ExtraScope = "openid gr\\oups" }, "extra_scope: must be a scope"},
		"extra_scope, tab":         {func(p *v1.OidcProvider) { p.ExtraScope = "openid\tgroups" }, "extra_scope: has a control character"},
		"extra_scope, several":     {func(p *v1.OidcProvider) { p.ExtraScope = " openid https://graph.example.test/.default " }, ""},
		"CA empty (API-6)":         {func(p *v1.OidcProvider) { p.CertificateAuthority = ptr.To("") }, "certificate_authority: is empty; leave it out for the system roots"},
		"CA blank (API-6)":         {func(p *v1.OidcProvider) { p.CertificateAuthority = ptr.To(" \n") }, "certificate_authority: is empty"},
		"CA no PEM (API-6)":        {func(p *v1.OidcProvider) { p.CertificateAuthority = ptr.To("hunter2") }, "certificate_authority: holds no PEM certificate"},
		"CA broken (API-6)":        {func(p *v1.OidcProvider) { p.CertificateAuthority = ptr.To(string(k8stest.Certificate(t).Crt) + broken) }, "certificate_authority: holds a certificate"},
		"CEL":                      {username(v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.sub +")}), "claim_mappings.username.expression: does not compile"},
		"no username":              {func(p *v1.OidcProvider) { p.ClaimMappings = &v1.ClaimMappings{} }, "claim_mappings.username: claim or expression is required"},
		"e-mail (AUTH-11)":         {username(v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.email")}), email},
		"e-mail verified":          {username(v1.PrefixedClaimOrExpression{Expression: ptr.To("claims.email_verified ? claims.email : ''")}), ""},
		"claim email":              {username(v1.PrefixedClaimOrExpression{Claim: ptr.To("email"), Prefix: ptr.To("")}), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(withProvider(tt.change))
			c := b.compile()
			if tt.want == "" {
				k8stest.WantReady(t, c, k8swatch.ReasonServing)
				return
			}
			k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.auth_config.oidc_provider."+tt.want)
			if c.Auth.OIDC != nil && !strings.HasPrefix(tt.want, "claim_mappings") {
				t.Errorf("OIDC %v", c.Auth.OIDC)
			}
			if strings.Contains(c.Ready.Message, "hunter2") || strings.Contains(c.Ready.Message, "claim_validation_rules") {
				t.Errorf("message %q", c.Ready.Message)
			}
		})
	}
}

// An oidc_provider that is not in use may be half written; its mappings may not
// (API-2).
func TestOidcProvidersNotInUse(t *testing.T) {
	half := func(a *v1.AuthConfig) {
		a.OidcProvider.IssuerURL, a.OidcProvider.CertificateAuthority = "http://idp", ptr.To("")
	}
	tests := map[string]struct {
		change func(*v1.AuthConfig)
		want   string // empty: it is served
	}{
		"Kubernetes":    {func(a *v1.AuthConfig) { a.ValidateAgainst = v1.ValidateKubernetes }, ""},
		"absent":        {func(a *v1.AuthConfig) { a.ValidateAgainst = "" }, ""},
		"no validation": {func(a *v1.AuthConfig) { a.DisableValidation = true }, ""},
		"not enabled":   {func(a *v1.AuthConfig) { a.OidcProvider.Enabled = false }, "spec.auth_config: validate_against: OidcProvider needs oidc_provider.enabled: true"},
		"none":          {func(a *v1.AuthConfig) { a.OidcProvider = nil }, "spec.auth_config: validate_against: OidcProvider needs oidc_provider.enabled: true"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			o := withProvider()
			half(o.Spec.AuthConfig)
			tt.change(o.Spec.AuthConfig)
			b.put(o)
			c := b.compile()
			if tt.want != "" {
				k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, tt.want)
			} else {
				k8stest.WantReady(t, c, k8swatch.ReasonServing)
			}
			if c.Auth.OIDC != nil {
				t.Errorf("OIDC %v", c.Auth.OIDC)
			}
		})
	}
}
