package k8swatch

import (
	"cmp"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const oidcPath = "spec.auth_config.oidc_provider"

// compileProvider compiles the claim mappings of an oidc_provider, whether it is
// in use or not, by the rules of jwt.
func (b *builder) compileProvider(spec *v1.OidcProvider) (*OIDCProvider, []problem) {
	if spec == nil {
		return nil, nil
	}
	mappings := spec.ClaimMappings
	if mappings == nil {
		mappings = defaultClaims()
	}
	p := &OIDCProvider{
		IssuerURL:             spec.IssuerURL,
		ClientID:              spec.ClientID,
		ClientSecret:          orDefault(spec.ClientSecret, ""),
		Audience:              cmp.Or(spec.Audience, spec.ClientID),
		CertificateAuthority:  orDefault(spec.CertificateAuthority, ""),
		AcceptAuthorizedParty: spec.AcceptAuthorizedParty,
		ClaimsFromToken:       spec.ClaimsSource == v1.ClaimsSourceToken,
	}
	// The mappings are looked at alone, under an issuer that passes.
	claims, problems := b.compileJWT(oidcPath, &v1.JWTAuthenticator{
		Issuer:        v1.Issuer{URL: "https://issuer.invalid", Audiences: []string{"none"}},
		ClaimMappings: mappings,
	})
	claims.Authenticator.Issuer.URL = p.IssuerURL
	claims.Authenticator.Issuer.Audiences = []string{p.Audience}
	claims.Authenticator.Issuer.CertificateAuthority = p.CertificateAuthority
	p.Claims = claims
	return p, problems
}

// defaultClaims are what is taken without claim_mappings (AUTH-9).
func defaultClaims() *v1.ClaimMappings {
	claim := func(name string) *v1.PrefixedClaimOrExpression {
		none := ""
		return &v1.PrefixedClaimOrExpression{Claim: &name, Prefix: &none}
	}
	return &v1.ClaimMappings{Username: claim("preferred_username"), Groups: claim("groups")}
}
