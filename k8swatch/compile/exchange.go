package compile

import (
	"cmp"
	"fmt"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The types of tokens (RFC 8693 section 3).
const (
	accessTokenType = "urn:ietf:params:oauth:token-type:access_token"
	idTokenType     = "urn:ietf:params:oauth:token-type:id_token"
)

const exchangePath = "spec.auth_config.token_exchange"

// tokenExchange fills in the defaults of AUTH-15. It returns nil when nothing is
// exchanged, and when there are problems.
func tokenExchange(config *v1.AuthConfig) (*k8swatch.TokenExchange, []problem) {
	spec := config.TokenExchange
	if spec == nil || !spec.Enabled {
		return nil, nil
	}
	problems := exchangeProblems(spec)
	if config.DisableValidation {
		// It would do nothing: what came is relayed as it came (AUTH-3).
		problems = append(problems, invalid(exchangePath, "cannot be used with disable_validation: true"))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	e := k8swatch.TokenExchange(*spec.DeepCopy())
	e.SubjectTokenType = cmp.Or(e.SubjectTokenType, accessTokenType)
	requested := idTokenType
	if e.Forward = cmp.Or(e.Forward, v1.ForwardIDToken); e.Forward == v1.ForwardAccessToken {
		requested = accessTokenType
	}
	e.RequestedTokenType = cmp.Or(e.RequestedTokenType, requested)
	if len(e.Scopes) == 0 {
		e.Scopes = []string{"openid"}
	}
	return &e, nil
}

// exchangeProblems checks what admission does not look at.
func exchangeProblems(spec *v1.TokenExchange) []problem {
	var problems []problem
	check := func(field string, errs ...error) {
		if err := cmp.Or(errs...); err != nil {
			problems = append(problems, invalid(exchangePath+"."+field, err.Error()))
		}
	}
	check("token_url", checkName(spec.TokenURL, maxURL), checkTokenURL(spec.TokenURL))
	check("client_id", checkName(spec.ClientID, maxName))
	check("client_secret", checkValue(spec.ClientSecret, maxSecret))
	check("audience", checkValue(spec.Audience, maxName))
	check("subject_token_type", checkValue(spec.SubjectTokenType, maxName))
	check("requested_token_type", checkValue(spec.RequestedTokenType, maxName))
	for i, scope := range spec.Scopes {
		check(fmt.Sprintf("scopes[%d]", i), checkValue(scope, maxName), checkScope(scope))
	}
	if spec.Resource != "" {
		check("resource", checkValue(spec.Resource, maxURL), checkURI(spec.Resource))
	}
	if spec.CertificateAuthority != "" {
		check("certificate_authority", checkCA(spec.CertificateAuthority, maxCA))
	}
	return problems
}
