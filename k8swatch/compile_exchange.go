package k8swatch

import (
	"cmp"
	"slices"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The types of tokens (RFC 8693 section 3).
const (
	accessTokenType = "urn:ietf:params:oauth:token-type:access_token"
	idTokenType     = "urn:ietf:params:oauth:token-type:id_token"
)

// tokenExchange fills in the defaults of AUTH-15; nil when nothing is exchanged.
func tokenExchange(spec *v1.TokenExchange) *TokenExchange {
	if spec == nil || !spec.Enabled {
		return nil
	}
	e := &TokenExchange{
		TokenURL:             spec.TokenURL,
		CertificateAuthority: spec.CertificateAuthority,
		ClientID:             spec.ClientID,
		ClientSecret:         spec.ClientSecret,
		Audience:             spec.Audience,
		Resource:             spec.Resource,
		SubjectTokenType:     cmp.Or(spec.SubjectTokenType, accessTokenType),
		Scopes:               slices.Clone(spec.Scopes),
		ForwardAccessToken:   spec.Forward == v1.ForwardAccessToken,
	}
	requested := idTokenType
	if e.ForwardAccessToken {
		requested = accessTokenType
	}
	e.RequestedTokenType = cmp.Or(spec.RequestedTokenType, requested)
	if len(e.Scopes) == 0 {
		e.Scopes = []string{"openid"}
	}
	return e
}
