package k8swatch

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/apis/apiserver"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// withProvider makes an object in Passthrough whose oidc_provider is changed by
// change.
func withProvider(change ...func(*v1.OidcProvider)) *v1.ProxyKubeApi {
	return object(func(s *v1.ProxyKubeApiSpec) {
		p := &v1.OidcProvider{Enabled: true, IssuerURL: "https://idp.example.test/realm", ClientID: "proxy-a", ClaimsSource: v1.ClaimsSourceUserInfo}
		for _, c := range change {
			c(p)
		}
		s.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: p}
	})
}

// provider compiles an object that must be served.
func (b *bench) provider(o *v1.ProxyKubeApi) *OIDCProvider {
	b.t.Helper()
	b.put(o)
	c := b.compile()
	wantReady(b.t, c, ReasonServing)
	if c.Auth.OIDC == nil || c.Auth.JWT != nil || c.Auth.ValidateAgainst != v1.ValidateOidcProvider {
		b.t.Fatalf("Auth %+v", c.Auth)
	}
	return c.Auth.OIDC
}

// claimsOf is what can be compared of the claims.
func claimsOf(p *OIDCProvider) apiserver.JWTAuthenticator { return p.Claims.Authenticator }

func TestOidcProviderIsMapped(t *testing.T) { // AUTH-6, AUTH-7
	ca := string(certificate(t).crt)
	p := newBench(t).provider(withProvider(func(p *v1.OidcProvider) {
		p.ClientSecret, p.Audience, p.CertificateAuthority = ptr("hunter2"), "aud", &ca
		p.AcceptAuthorizedParty, p.ClaimsSource = true, v1.ClaimsSourceToken
		p.ClaimMappings = &v1.ClaimMappings{
			Username: &v1.PrefixedClaimOrExpression{Claim: ptr("sub"), Prefix: ptr("oidc:")},
			Groups:   &v1.PrefixedClaimOrExpression{Expression: ptr("claims.groups")},
			Extra:    []v1.ExtraMapping{{Key: "example.test/team", ValueExpression: "claims.team"}},
		}
	}))
	want := OIDCProvider{
		IssuerURL: "https://idp.example.test/realm", ClientID: "proxy-a", ClientSecret: "hunter2", Audience: "aud",
		CertificateAuthority: ca, AcceptAuthorizedParty: true, ClaimsFromToken: true,
	}
	got := *p
	got.Claims = JWT{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantClaims := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{
			URL: want.IssuerURL, CertificateAuthority: ca, Audiences: []string{"aud"},
			AudienceMatchPolicy: apiserver.AudienceMatchPolicyMatchAny,
		},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: ptr("oidc:")},
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
		Username: apiserver.PrefixedClaimOrExpression{Claim: "preferred_username", Prefix: ptr("")},
		Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: ptr("")},
	}
	if diff := cmp.Diff(want, claimsOf(p).ClaimMappings); diff != "" {
		t.Error(diff)
	}
}

// SIG-3: what holds a secret prints without it, however it is printed.
func TestSecretsOfAuthDoNotPrint(t *testing.T) {
	b := newBench(t)
	o := withProvider(func(p *v1.OidcProvider) { p.ClientSecret = ptr("hunter2") })
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
