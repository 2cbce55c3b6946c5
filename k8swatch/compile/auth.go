package compile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiservervalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

// authentication is the resolved auth_config.
type authentication struct {
	auth     k8swatch.Auth
	problems []problem
	stale    []string
}

// compiledAuth is what an auth_config was compiled to. It is carried over while
// the auth_config stays the same.
type compiledAuth struct {
	hash     string
	jwt      []k8swatch.JWT
	oidc     *k8swatch.OIDCProvider
	exchange *k8swatch.TokenExchange
	problems []problem
}

func (b *builder) authentication() authentication {
	var config v1.AuthConfig
	if b.spec.AuthConfig != nil {
		config = *b.spec.AuthConfig
	}
	provider := b.provider()
	if provider.spec != nil {
		config.OidcProvider = provider.spec
	}
	a := authentication{stale: provider.stale, auth: k8swatch.Auth{
		DisableValidation: config.DisableValidation,
		ValidateAgainst:   b.spec.ValidateAgainstOrDefault(),
		Hash:              hashJSON("auth_config", &config), // AUTH-12
	}}
	if b.carried.auth.hash != a.auth.Hash {
		b.carried.auth = b.compileAuthentication(a.auth.Hash, &config)
	}
	a.problems = slices.Concat(provider.problems, b.carried.auth.problems)
	if a.auth.DisableValidation {
		return a
	}
	a.auth.Exchange = b.carried.auth.exchange
	switch a.auth.ValidateAgainst {
	case v1.ValidateJwtAuthenticators:
		a.auth.JWT = b.carried.auth.jwt
	case v1.ValidateOidcProvider:
		if provider.spec != nil {
			a.auth.OIDC = b.carried.auth.oidc
		}
	}
	return a
}

// compileAuthentication validates all claim mappings of an object, also those
// that are not in use: the author learns of an error when it is written, not when
// the mappings are switched on (API-2).
func (b *builder) compileAuthentication(hash string, config *v1.AuthConfig) compiledAuth {
	out := compiledAuth{hash: hash}
	b.cel = &objectCEL{Compiler: b.compiler.cel()}
	discovery := map[string]bool{}
	for i := range config.JWT {
		path := fmt.Sprintf("spec.auth_config.jwt[%d]", i)
		compiled, problems := b.compileJWT(path, &config.JWT[i])
		if url := compiled.Authenticator.Issuer.DiscoveryURL; url != "" {
			if discovery[url] {
				problems = append(problems, invalid(path+".issuer.discovery_url", "must be unique in jwt"))
			}
			discovery[url] = true
		}
		out.jwt = append(out.jwt, compiled)
		out.problems = append(out.problems, problems...)
	}
	var problems []problem
	out.oidc, problems = b.compileProvider(config.OidcProvider)
	out.problems = append(out.problems, problems...)
	out.exchange, problems = tokenExchange(config)
	out.problems = slices.Concat(out.problems, problems, b.deniedProviders(config))
	return out
}

func (b *builder) compileJWT(path string, spec *v1.JWTAuthenticator) (k8swatch.JWT, []problem) {
	compiled := k8swatch.JWT{Authenticator: jwtAuthenticator(spec)}
	mapper, errs := apiservervalidation.CompileAndValidateJWTAuthenticator(b.cel, compiled.Authenticator, nil)
	compiled.Mapper = mapper
	problems := translate(path, errs)
	// Empty would mean the system roots, which is not what its author wrote (API-6).
	if ca := spec.Issuer.CertificateAuthority; ca != nil && strings.TrimSpace(*ca) == "" {
		problems = append(problems, invalid(path+".issuer.certificate_authority", errEmptyCA.Error()))
	} else if ca != nil {
		// CompileAndValidateJWTAuthenticator has said whether it is PEM.
		if _, err := keypair.ParseCertificates([]byte(*ca)); errors.Is(err, keypair.ErrLargeBundle) || errors.Is(err, keypair.ErrLargeKey) {
			problems = append(problems, invalid(path+".issuer.certificate_authority", err.Error()))
		}
	}
	return compiled, problems
}

// jwtAuthenticator gives an authenticator the type that apiserver's packages
// take. The egress selector stays behind: the proxy has one way out (API-8).
func jwtAuthenticator(spec *v1.JWTAuthenticator) apiserver.JWTAuthenticator {
	a := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{
			URL:                  spec.Issuer.URL,
			DiscoveryURL:         ptr.Deref(spec.Issuer.DiscoveryURL, ""),
			CertificateAuthority: ptr.Deref(spec.Issuer.CertificateAuthority, ""),
			Audiences:            spec.Issuer.Audiences,
			AudienceMatchPolicy:  apiserver.AudienceMatchPolicyType(spec.Issuer.AudienceMatchPolicy),
		},
		ClaimMappings: claimMappings(spec.ClaimMappings),
	}
	if a.Issuer.AudienceMatchPolicy == "" {
		a.Issuer.AudienceMatchPolicy = apiserver.AudienceMatchPolicyMatchAny
	}
	for _, r := range spec.ClaimValidationRules {
		a.ClaimValidationRules = append(a.ClaimValidationRules, apiserver.ClaimValidationRule{
			Claim:         ptr.Deref(r.Claim, ""),
			RequiredValue: r.RequiredValue,
			Expression:    ptr.Deref(r.Expression, ""),
			Message:       r.Message,
		})
	}
	for _, r := range spec.UserValidationRules {
		a.UserValidationRules = append(a.UserValidationRules, apiserver.UserValidationRule{Expression: r.Expression, Message: r.Message})
	}
	return a
}

func claimMappings(spec *v1.ClaimMappings) apiserver.ClaimMappings {
	if spec == nil {
		return apiserver.ClaimMappings{}
	}
	m := apiserver.ClaimMappings{
		Username: prefixedClaimOrExpression(spec.Username),
		Groups:   prefixedClaimOrExpression(spec.Groups),
	}
	if spec.UID != nil {
		m.UID = apiserver.ClaimOrExpression{Claim: ptr.Deref(spec.UID.Claim, ""), Expression: ptr.Deref(spec.UID.Expression, "")}
	}
	for _, e := range spec.Extra {
		m.Extra = append(m.Extra, apiserver.ExtraMapping{Key: e.Key, ValueExpression: e.ValueExpression})
	}
	return m
}

func prefixedClaimOrExpression(spec *v1.PrefixedClaimOrExpression) apiserver.PrefixedClaimOrExpression {
	if spec == nil {
		return apiserver.PrefixedClaimOrExpression{}
	}
	return apiserver.PrefixedClaimOrExpression{
		Claim:      ptr.Deref(spec.Claim, ""),
		Prefix:     spec.Prefix,
		Expression: ptr.Deref(spec.Expression, ""),
	}
}

// snakeCase gives the names of apiserver's fields as ours spell them. Longer
// names stand before those they begin with.
var snakeCase = strings.NewReplacer(
	"audienceMatchPolicy", "audience_match_policy",
	"certificateAuthority", "certificate_authority",
	"claimMappings", "claim_mappings",
	"claimValidationRules", "claim_validation_rules",
	"discoveryURL", "discovery_url",
	"egressSelectorType", "egress_selector",
	"requiredValue", "required_value",
	"userValidationRules", "user_validation_rules",
	"valueExpression", "value_expression",
)

// translate gives errors of apiserver's validation in the words of the object.
func translate(path string, errs field.ErrorList) []problem {
	problems := fromFaults(admission.Faults(errs))
	for i := range problems {
		p := &problems[i]
		p.path = path + "." + snakeCase.Replace(p.path)
		switch {
		case strings.HasPrefix(p.text, "parse "):
			// url.Parse repeats the URL, which may hold a password.
			p.text = "is not a URL"
		case strings.HasPrefix(p.text, "at least one "):
			// The text repeats the name of the field, without its path.
			p.text = "at least one is required"
		case strings.HasPrefix(p.text, celFailure):
			p.text = celText(p.text)
		default:
			p.text = snakeCase.Replace(p.text)
		}
	}
	return problems
}

const celFailure = "compilation failed: "

// celMarker is a line of a CEL error that repeats the source or points at it.
var celMarker = regexp.MustCompile(`^ \| `)

// celText puts the errors of the CEL compiler on one line each, without the
// source they repeat.
func celText(text string) string {
	var lines []string
	for _, line := range strings.Split(strings.TrimPrefix(text, celFailure), "\n") {
		if celMarker.MatchString(line) {
			continue
		}
		line = strings.TrimPrefix(line, "ERROR: <input>:")
		lines = append(lines, strings.TrimSuffix(line, " (in container '')"))
	}
	return "does not compile: " + strings.Join(lines, ", ")
}
