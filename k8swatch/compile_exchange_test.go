package k8swatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// withExchange makes an object whose token_exchange is changed by change.
func withExchange(change ...func(*v1.TokenExchange)) *v1.ProxyKubeApi {
	return object(func(s *v1.ProxyKubeApiSpec) {
		e := &v1.TokenExchange{Enabled: true, TokenURL: "https://idp.example.test/token", ClientID: "machines", Forward: v1.ForwardIDToken}
		for _, c := range change {
			c(e)
		}
		s.AuthConfig.TokenExchange = e
	})
}

func TestTokenExchangeIsMapped(t *testing.T) { // AUTH-15
	const access, id = "urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:id_token"
	defaults := TokenExchange{
		TokenURL: "https://idp.example.test/token", ClientID: "machines", Scopes: []string{"openid"},
		SubjectTokenType: access, RequestedTokenType: id,
	}
	with := func(change func(*TokenExchange)) *TokenExchange {
		e := defaults
		change(&e)
		return &e
	}
	ca := string(certificate(t).crt)
	tests := map[string]struct {
		change func(*v1.TokenExchange)
		want   *TokenExchange
	}{
		"defaults":     {func(*v1.TokenExchange) {}, &defaults},
		"no forward":   {func(e *v1.TokenExchange) { e.Forward = "" }, &defaults},
		"access token": {func(e *v1.TokenExchange) { e.Forward = v1.ForwardAccessToken }, with(func(e *TokenExchange) { e.ForwardAccessToken, e.RequestedTokenType = true, access })},
		"off":          {func(e *v1.TokenExchange) { e.Enabled = false }, nil},
		"no scopes":    {func(e *v1.TokenExchange) { e.Scopes = []string{} }, &defaults},
		"all it may be": {func(e *v1.TokenExchange) {
			*e = v1.TokenExchange{
				Enabled: true, TokenURL: "https://idp.example.test/t", CertificateAuthority: ca, ClientID: "c", ClientSecret: "s", Audience: "a",
				Scopes: []string{"openid", "groups_name"}, SubjectTokenType: "urn:s", RequestedTokenType: "urn:r", Resource: "https://r", Forward: v1.ForwardIDToken,
			}
		}, &TokenExchange{
			TokenURL: "https://idp.example.test/t", CertificateAuthority: ca, ClientID: "c", ClientSecret: "s", Audience: "a",
			Scopes: []string{"openid", "groups_name"}, SubjectTokenType: "urn:s", RequestedTokenType: "urn:r", Resource: "https://r",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(withExchange(tt.change))
			c := b.compile()
			wantReady(t, c, ReasonServing)
			if diff := cmp.Diff(tt.want, c.Auth.Exchange); diff != "" {
				t.Error(diff)
			}
			if b.put(withExchange(tt.change)); b.compile() != c {
				t.Error("a new value though nothing changed")
			}
		})
	}
}
