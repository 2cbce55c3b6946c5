package compile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// withExchange makes an object whose token_exchange is changed by change.
func withExchange(change ...func(*v1.TokenExchange)) *v1.ProxyKubeApi {
	return k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		e := &v1.TokenExchange{Enabled: true, TokenURL: "https://idp.example.test/token", ClientID: "machines", Forward: v1.ForwardIDToken}
		for _, c := range change {
			c(e)
		}
		s.AuthConfig.TokenExchange = e
	})
}

func TestTokenExchangeIsMapped(t *testing.T) { // AUTH-15
	const access, id = "urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:id_token"
	defaults := k8swatch.TokenExchange{
		Enabled: true, Forward: v1.ForwardIDToken, TokenURL: "https://idp.example.test/token", ClientID: "machines", Scopes: []string{"openid"},
		SubjectTokenType: access, RequestedTokenType: id,
	}
	with := func(change func(*k8swatch.TokenExchange)) *k8swatch.TokenExchange {
		e := defaults
		change(&e)
		return &e
	}
	ca := string(k8stest.Certificate(t).Crt)
	tests := map[string]struct {
		change func(*v1.TokenExchange)
		want   *k8swatch.TokenExchange
	}{
		"defaults":     {func(*v1.TokenExchange) {}, &defaults},
		"no forward":   {func(e *v1.TokenExchange) { e.Forward = "" }, &defaults},
		"access token": {func(e *v1.TokenExchange) { e.Forward = v1.ForwardAccessToken }, with(func(e *k8swatch.TokenExchange) { e.Forward, e.RequestedTokenType = v1.ForwardAccessToken, access })},
		"off":          {func(e *v1.TokenExchange) { e.Enabled = false }, nil},
		"no scopes":    {func(e *v1.TokenExchange) { e.Scopes = []string{} }, &defaults},
		"all it may be": {func(e *v1.TokenExchange) {
			*e = v1.TokenExchange{
				Enabled: true, TokenURL: "https://idp.example.test/t", CertificateAuthority: ca, ClientID: "c", ClientSecret: "s", Audience: "a",
				Scopes: []string{"openid", "groups_name"}, SubjectTokenType: "urn:s", RequestedTokenType: "urn:r", Resource: "https://r", Forward: v1.ForwardIDToken,
			}
		}, &k8swatch.TokenExchange{
			Enabled: true, Forward: v1.ForwardIDToken, TokenURL: "https://idp.example.test/t", CertificateAuthority: ca, ClientID: "c", ClientSecret: "s", Audience: "a",
			Scopes: []string{"openid", "groups_name"}, SubjectTokenType: "urn:s", RequestedTokenType: "urn:r", Resource: "https://r",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(withExchange(tt.change))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			if diff := cmp.Diff(tt.want, c.Auth.Exchange); diff != "" {
				t.Error(diff)
			}
			if b.put(withExchange(tt.change)); b.compile() != c {
				t.Error("a new value though nothing changed")
			}
		})
	}
}

// What admission does not look at is told with the path of the field, and no
// value is repeated (API-2, API-6).
func TestInvalidTokenExchanges(t *testing.T) {
	url := func(u string) func(*v1.TokenExchange) { return func(e *v1.TokenExchange) { e.TokenURL = u } }
	scopes := func(s ...string) func(*v1.TokenExchange) { return func(e *v1.TokenExchange) { e.Scopes = s } }
	tests := map[string]struct {
		change func(*v1.TokenExchange)
		want   string // empty: it is served
	}{
		"no token_url":       {url(""), "token_url: must not be empty"},
		"http":               {url("http://idp.example.test/token"), "token_url: must be an https:// URL"},
		"user":               {url("https://u:hunter2@idp.example.test/token"), "token_url: must not contain a user or password"},
		"user before query":  {url("https://hunter2@idp?x"), "token_url: must not contain a user or password"},
		"fragment":           {url("https://idp.example.test/token#hunter2"), "token_url: must not contain a fragment"},
		"fragment in query":  {url("https://idp.example.test/token?a=b#hunter2"), "token_url: must not contain a fragment"},
		"no host":            {url("https://?x"), "token_url: needs a host"},
		"line break":         {url("https://idp.example.test/token?\r\nhunter2"), "token_url: has a control character"},
		"space in query":     {url("https://idp.example.test/token?a b"), "token_url: has a query with a character that must be percent-encoded"},
		"escape in query":    {url("https://idp.example.test/token?a=%zz"), "token_url: has a query with a character"},
		"query":              {url("https://idp.example.test/token?tenant=a%20b&x=?"), ""},
		"no client_id":       {func(e *v1.TokenExchange) { e.ClientID = "" }, "client_id: must not be empty"},
		"client_id control":  {func(e *v1.TokenExchange) { e.ClientID = "hunter2\n" }, "client_id: has a control character"},
		"secret control":     {func(e *v1.TokenExchange) { e.ClientSecret = "hunter2\n" }, "client_secret: has a control character"},
		"audience control":   {func(e *v1.TokenExchange) { e.Audience = "hunter2\n" }, "audience: has a control character"},
		"subject control":    {func(e *v1.TokenExchange) { e.SubjectTokenType = "hunter2\n" }, "subject_token_type: has a control character"},
		"requested control":  {func(e *v1.TokenExchange) { e.RequestedTokenType = "hunter2\n" }, "requested_token_type: has a control character"},
		"resource control":   {func(e *v1.TokenExchange) { e.Resource = "https://hunter2\n" }, "resource: has a control character"},
		"resource no URI":    {func(e *v1.TokenExchange) { e.Resource = "hunter2" }, "resource: must be an absolute URI without a fragment"},
		"resource fragment":  {func(e *v1.TokenExchange) { e.Resource = "https://hunter2#" }, "resource: must be an absolute URI without a fragment"},
		"resource URN":       {func(e *v1.TokenExchange) { e.Resource = "urn:example:cluster" }, ""},
		"scope with a space": {scopes("openid", "groups hunter2"), "scopes[1]: must be a scope"},
		"scope empty":        {scopes(""), "scopes[0]: must not be empty"},
		"scope control":      {scopes("hunter2\n"), "scopes[0]: has a control character"},
		"scope with a quote": {scopes(`hunter2"`), "scopes[0]: must be a scope"},
		"scope backslash":    {scopes(`hunter2\`), "scopes[0]: must be a scope"},
		"scope not ASCII":    {scopes("é"), "scopes[0]: must be a scope"},
		"scope, all signs":   {scopes("!#[]~"), ""},
		"CA blank (API-6)":   {func(e *v1.TokenExchange) { e.CertificateAuthority = "\n" }, "certificate_authority: is empty"},
		"CA no PEM (API-6)":  {func(e *v1.TokenExchange) { e.CertificateAuthority = "hunter2" }, "certificate_authority: holds no PEM certificate"},
		"off":                {func(e *v1.TokenExchange) { *e = v1.TokenExchange{TokenURL: "http://x"} }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(withExchange(tt.change))
			c := b.compile()
			if tt.want == "" {
				k8stest.WantReady(t, c, k8swatch.ReasonServing)
				return
			}
			k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.auth_config.token_exchange."+tt.want)
			if c.Auth.Exchange != nil {
				t.Errorf("Exchange %v", c.Auth.Exchange)
			}
			if strings.Contains(c.Ready.Message, "hunter2") {
				t.Errorf("message %q", c.Ready.Message)
			}
		})
	}
}

// AUTH-3: without validation nothing would be exchanged, which is told rather
// than ignored (API-8).
func TestTokenExchangeWithoutValidation(t *testing.T) {
	b := newBench(t)
	o := withExchange()
	o.Spec.AuthConfig.DisableValidation = true
	b.put(o)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.auth_config.token_exchange: cannot be used with disable_validation: true")
	o = withExchange(func(e *v1.TokenExchange) { e.Enabled = false })
	o.Spec.AuthConfig.DisableValidation = true
	b.put(o)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
}

func TestTokenExchangeWithEachValidator(t *testing.T) { // AUTH-14
	for _, against := range []v1.ValidateAgainst{v1.ValidateKubernetes, v1.ValidateJwtAuthenticators, v1.ValidateOidcProvider, ""} {
		b := newBench(t)
		o := withProvider()
		o.Spec.AuthConfig.JWT = []v1.JWTAuthenticator{k8stest.Authenticator()}
		o.Spec.AuthConfig.TokenExchange = withExchange().Spec.AuthConfig.TokenExchange
		o.Spec.AuthConfig.ValidateAgainst = against
		b.put(o)
		c := b.compile()
		k8stest.WantReady(t, c, k8swatch.ReasonServing)
		if c.Auth.Exchange == nil {
			t.Errorf("%q exchanges nothing", against)
		}
	}
}
