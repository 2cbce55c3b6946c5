package faults

import (
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// way is a validator's way to an answer over one endpoint of a provider.
type way struct {
	name     string
	endpoint oidc.Endpoint
	// auth is how a cluster validates its tokens.
	auth func(s *site) *v1.AuthConfig
	// token is a bearer that was not sent before, and user is its owner.
	token func(s *site) string
	user  string
}

// ways are all that validators ask of providers.
var ways = []way{
	{"jwt-discovery", oidc.Discovery, jwtAuthenticators, (*site).jwt, oidc.Alice},
	{"jwt-keys", oidc.Keys, jwtAuthenticators, (*site).jwt, oidc.Alice},
	{"oidc-discovery", oidc.Discovery, oidcProvider, (*site).jwt, oidc.Alice},
	{"oidc-keys", oidc.Keys, oidcProvider, (*site).jwt, oidc.Alice},
	{"oidc-userinfo", oidc.Userinfo, oidcProvider, (*site).jwt, oidc.Alice},
	{"oidc-introspection", oidc.Introspection, oidcProvider, (*site).opaque, oidc.Alice},
	{"exchange", oidc.Token, exchanging, (*site).machine, oidc.Robot},
	{"exchange-keys", oidc.Keys, exchanging, (*site).machine, oidc.Robot},
	{"exchange-userinfo", oidc.Userinfo, exchangingOIDC, (*site).machine, oidc.Robot},
}

// local says whether the way needs the endpoint for keys only, which are asked
// for rarely.
func (w *way) local() bool { return w.endpoint == oidc.Discovery || w.endpoint == oidc.Keys }

// site is a provider, a front before one of its endpoints, and what a cluster
// has to know of both.
type site struct {
	way
	idp   *oidc.Provider
	front *front
}

// newSite starts a provider whose endpoint for the way is behind a front, that
// refuses connections until told otherwise.
func newSite(w way) (*site, error) {
	f, err := newFront()
	if err != nil {
		return nil, err
	}
	s := &site{way: w, front: f}
	var o oidc.Options
	if w.endpoint == oidc.Discovery {
		o.Public = f.addr // its place follows from the issuer, and so all are there
	}
	if s.idp, err = oidc.New(o); err != nil {
		f.close()
		return nil, err
	}
	f.provider = s.idp.Addr()
	if member := members[w.endpoint]; member != "" {
		s.idp.SetFault(oidc.Discovery, oidc.Fault{Edit: func(document map[string]any) {
			document[member] = s.behind(document[member].(string))
		}})
	}
	return s, nil
}

// members of a discovery document that announce endpoints.
var members = map[oidc.Endpoint]string{
	oidc.Keys: "jwks_uri", oidc.Userinfo: "userinfo_endpoint", oidc.Introspection: "introspection_endpoint",
}

func (s *site) close() {
	s.front.close()
	s.idp.Stop()
}

// behind is the URL of an endpoint behind the front.
func (s *site) behind(url string) string { return strings.Replace(url, s.idp.Addr(), s.front.addr, 1) }

func (s *site) jwt() string     { return s.idp.Token(oidc.Alice, nil) }
func (s *site) opaque() string  { return s.idp.OpaqueToken(oidc.Alice, oidc.OpaqueClientID) }
func (s *site) machine() string { return s.idp.APIToken(oidc.Robot) }

func jwtAuthenticators(s *site) *v1.AuthConfig {
	return &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(s.idp)}}
}

// oidcProvider may introspect, and takes the tokens of people, which are for
// ClientID.
func oidcProvider(s *site) *v1.AuthConfig {
	ca, secret := string(s.idp.CA.PEM), oidc.ClientSecret
	return &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: &v1.OidcProvider{
		Enabled: true, IssuerURL: s.idp.Issuer, CertificateAuthority: &ca,
		ClientID: oidc.SecretClientID, ClientSecret: &secret, Audience: oidc.ClientID,
		ClaimMappings: proxy.Authenticator(s.idp).ClaimMappings,
	}}
}

// exchanging lets machines in beside people.
func exchanging(s *site) *v1.AuthConfig {
	auth := jwtAuthenticators(s)
	auth.TokenExchange = exchange(s)
	return auth
}

// exchangingOIDC is the same, with the claims of userinfo.
func exchangingOIDC(s *site) *v1.AuthConfig {
	auth := oidcProvider(s)
	auth.TokenExchange = exchange(s)
	auth.TokenExchange.Forward = v1.ForwardAccessToken
	return auth
}

func exchange(s *site) *v1.TokenExchange {
	url := s.idp.Issuer + "/oauth/token"
	if s.endpoint == oidc.Token {
		url = s.behind(url)
	}
	return &v1.TokenExchange{
		Enabled: true, TokenURL: url, CertificateAuthority: string(s.idp.CA.PEM),
		ClientID: oidc.ClientID, Audience: oidc.ClientID,
	}
}
