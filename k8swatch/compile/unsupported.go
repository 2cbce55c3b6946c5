package compile

import (
	"fmt"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// unsupported lists the fields in use that restrict or authenticate and that this
// version does not implement. To ignore such a field would open what its author
// closed (API-8). A block that is switched off restricts nothing.
func (b *builder) unsupported() []problem {
	var problems []problem
	if a := b.spec.AuthConfig; a != nil && !a.DisableValidation {
		switch against := b.spec.ValidateAgainstOrDefault(); against {
		case v1.ValidateJwtAuthenticators, v1.ValidateKubernetes, v1.ValidateOidcProvider:
		default:
			problems = append(problems, unsupported("spec.auth_config.validate_against", text.Quote(string(against), k8swatch.MaxQuoted)))
		}
	}
	if s := b.spec.SecurityConfig; s != nil && s.EnabledOrDefault() {
		if len(s.AllowedResources) > 0 {
			problems = append(problems, unsupported("spec.security_config.allowed_resources", ""))
		}
		if len(s.AllowedRessources) > 0 {
			problems = append(problems, unsupported("spec.security_config.allowed_ressources", ""))
		}
	}
	return problems
}

// withoutEffect lists the fields that are accepted and do nothing (API-8).
func (b *builder) withoutEffect() []k8swatch.Condition {
	var fields []string
	add := func(used bool, path string) {
		if used {
			fields = append(fields, path)
		}
	}
	if a := b.spec.AuthConfig; a != nil {
		for i := range a.JWT {
			add(a.JWT[i].Issuer.EgressSelector == "cluster", fmt.Sprintf("spec.auth_config.jwt[%d].issuer.egress_selector", i))
		}
		add(a.OidcProvider != nil && a.OidcProvider.ExposeOAuthAuthorizationServer,
			"spec.auth_config.oidc_provider.expose_oauth_authorization_server")
	}
	if s := b.spec.SecurityConfig; s != nil && s.EnabledOrDefault() {
		add(s.Fail2LoginEqualBan != nil && s.Fail2LoginEqualBan.Enabled, "spec.security_config.fail2login_equal_ban")
		add(s.RateLimiting != nil && s.RateLimiting.Enabled, "spec.security_config.rate_limiting")
		add(len(s.PerUserGroupRateLimiting) > 0, "spec.security_config.per_user_group_rate_limiting")
	}
	for i := range b.spec.VirtualAPIs {
		add(b.spec.VirtualAPIs[i].EnabledOrDefault(), fmt.Sprintf("spec.virtual_apis[%d]", i))
	}
	if len(fields) == 0 {
		return nil
	}
	return []k8swatch.Condition{k8swatch.Notice(k8swatch.NoticeUnsupportedField, "has no effect in this version: "+strings.Join(fields, ", "))}
}
