package compile

import (
	"cmp"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const oidcPath = "spec.auth_config.oidc_provider"

// The longest values, in characters, as admission bounds the fields.
const (
	maxURL    = 2048
	maxName   = 253
	maxSecret = 4096
	maxScopes = 1024
	maxCA     = 128 << 10
)

// valueFault is a value of an oidc_provider that cannot be used.
type valueFault struct {
	field string
	err   error
}

func (f valueFault) problem() problem { return invalid(oidcPath+"."+f.field, f.err.Error()) }

// providerFaults checks what an oidc_provider says of the provider.
func providerFaults(p *v1.OidcProvider) []valueFault {
	var faults []valueFault
	check := func(field string, errs ...error) {
		if err := cmp.Or(errs...); err != nil {
			faults = append(faults, valueFault{field, err})
		}
	}
	check("issuer_url", checkName(p.IssuerURL, maxURL), checkIssuerURL(p.IssuerURL))
	check("client_id", checkName(p.ClientID, maxName))
	check("client_secret", checkValue(ptr.Deref(p.ClientSecret, ""), maxSecret))
	check("audience", checkValue(p.Audience, maxName))
	check("extra_scope", checkValue(p.ExtraScope, maxScopes), checkScopes(p.ExtraScope))
	if p.CertificateAuthority != nil {
		check("certificate_authority", checkCA(*p.CertificateAuthority, maxCA))
	}
	return faults
}

// compileProvider compiles the claim mappings of an oidc_provider, whether it is
// in use or not, by the rules of jwt.
func (b *builder) compileProvider(spec *v1.OidcProvider) (*k8swatch.OIDCProvider, []problem) {
	if spec == nil {
		return nil, nil
	}
	mappings := spec.ClaimMappings
	if mappings == nil {
		mappings = defaultClaims()
	}
	p := &k8swatch.OIDCProvider{
		IssuerURL:             spec.IssuerURL,
		ClientID:              spec.ClientID,
		ClientSecret:          ptr.Deref(spec.ClientSecret, ""),
		Audience:              cmp.Or(spec.Audience, spec.ClientID),
		ExtraScope:            spec.ExtraScope,
		CertificateAuthority:  ptr.Deref(spec.CertificateAuthority, ""),
		AcceptAuthorizedParty: spec.AcceptAuthorizedParty,
		ClaimsFromToken:       spec.ClaimsSource == v1.ClaimsSourceToken,
	}
	// The mappings are looked at alone, under an issuer that passes.
	claims, problems := b.compileJWT(oidcPath, &v1.JWTAuthenticator{
		Issuer:        v1.Issuer{URL: "https://issuer.invalid", Audiences: []string{"none"}},
		ClaimMappings: mappings,
	})
	for i := range problems {
		// An oidc_provider has no such rules.
		problems[i].text = strings.ReplaceAll(problems[i].text, " or claim_validation_rules[*].expression", "")
	}
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
