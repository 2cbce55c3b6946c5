package compile

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// What restricts or authenticates and is not built closes the cluster, unless
// it is switched off.
func TestFieldsThatAreNotBuilt(t *testing.T) { // API-8
	allow := []v1.AllowedResource{{Path: &v1.PathRule{Path: "/api"}}}
	tests := map[string]struct {
		change func(*v1.ProxyKubeApiSpec)
		want   string
	}{
		"no auth_config":        {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig = nil }, ""},
		"no validate_against":   {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig = &v1.AuthConfig{} }, ""},
		"Kubernetes":            {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.ValidateAgainst = v1.ValidateKubernetes }, ""},
		"another validator":     {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.ValidateAgainst = "Oracle\n" }, `spec.auth_config.validate_against is not supported by this version: "Oracle\n"`},
		"not validating at all": {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig = &v1.AuthConfig{DisableValidation: true} }, ""},
		"disabled, OidcProvider": {func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig = &v1.AuthConfig{DisableValidation: true, ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: &v1.OidcProvider{Enabled: true}}
		}, ""},
		"an unused oidc_provider": {func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.OidcProvider = &v1.OidcProvider{Enabled: true, IssuerURL: "https://idp"}
		}, ""},
		"token_exchange off": {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.TokenExchange = &v1.TokenExchange{TokenURL: "https://idp"} }, ""},
		"allowed_resources":  {func(s *v1.ProxyKubeApiSpec) { s.SecurityConfig = &v1.SecurityConfig{AllowedResources: allow} }, "spec.security_config.allowed_resources is not supported by this version"},
		"allowed_ressources": {func(s *v1.ProxyKubeApiSpec) {
			s.SecurityConfig = &v1.SecurityConfig{Enabled: ptr.To(true), AllowedRessources: allow}
		}, "spec.security_config.allowed_ressources is not supported by this version"},
		"allow list off": {func(s *v1.ProxyKubeApiSpec) {
			s.SecurityConfig = &v1.SecurityConfig{Enabled: ptr.To(false), AllowedResources: allow}
		}, ""},
		"allow list empty": {func(s *v1.ProxyKubeApiSpec) {
			s.SecurityConfig = &v1.SecurityConfig{AllowedResources: []v1.AllowedResource{}}
		}, ""},
		"Agent": {func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{Agent: &v1.Agent{}} }, "spec.service.Agent is not supported by this version"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(test.change))
			c := b.compile()
			if test.want == "" {
				k8stest.WantReady(t, c, k8swatch.ReasonServing)
				k8stest.WantNoNotice(t, c, k8swatch.NoticeUnsupportedField)
				return
			}
			k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, test.want)
		})
	}
}

// What neither restricts nor authenticates is told in a notice.
func TestFieldsWithoutEffect(t *testing.T) { // API-8
	tests := map[string]struct {
		change func(*v1.ProxyKubeApiSpec)
		want   string
	}{
		"egress_selector cluster":      {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.JWT[0].Issuer.EgressSelector = "cluster" }, "spec.auth_config.jwt[0].issuer.egress_selector"},
		"egress_selector controlplane": {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.JWT[0].Issuer.EgressSelector = "controlplane" }, ""},
		"expose oauth": {func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.OidcProvider = &v1.OidcProvider{ExposeOAuthAuthorizationServer: true}
		}, "spec.auth_config.oidc_provider.expose_oauth_authorization_server"},
		"ban":              {security(&v1.SecurityConfig{Fail2LoginEqualBan: &v1.Fail2LoginEqualBan{Enabled: true}}), "spec.security_config.fail2login_equal_ban"},
		"ban off":          {security(&v1.SecurityConfig{Fail2LoginEqualBan: &v1.Fail2LoginEqualBan{}}), ""},
		"quota":            {security(&v1.SecurityConfig{RateLimiting: &v1.RateLimiting{Enabled: true}}), "spec.security_config.rate_limiting"},
		"quota off":        {security(&v1.SecurityConfig{RateLimiting: &v1.RateLimiting{}}), ""},
		"quota of a group": {security(&v1.SecurityConfig{PerUserGroupRateLimiting: []v1.GroupRateLimiting{{Group: "g"}}}), "spec.security_config.per_user_group_rate_limiting"},
		"all off":          {security(&v1.SecurityConfig{Enabled: ptr.To(false), RateLimiting: &v1.RateLimiting{Enabled: true}, PerUserGroupRateLimiting: []v1.GroupRateLimiting{{}}}), ""},
		"virtual API":      {func(s *v1.ProxyKubeApiSpec) { s.VirtualAPIs = []v1.VirtualAPI{{Enabled: ptr.To(false)}, {}} }, "spec.virtual_apis[1]"},
		"virtual API off":  {func(s *v1.ProxyKubeApiSpec) { s.VirtualAPIs = []v1.VirtualAPI{{Enabled: ptr.To(false)}} }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(test.change))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			if test.want == "" {
				k8stest.WantNoNotice(t, c, k8swatch.NoticeUnsupportedField)
				return
			}
			k8stest.WantNotice(t, c, k8swatch.NoticeUnsupportedField, test.want)
		})
	}
	t.Run("all in one notice", func(t *testing.T) {
		b := newBench(t)
		b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
			for _, test := range tests {
				if test.want != "" {
					test.change(s)
				}
			}
			s.SecurityConfig = &v1.SecurityConfig{RateLimiting: &v1.RateLimiting{Enabled: true}, Fail2LoginEqualBan: &v1.Fail2LoginEqualBan{Enabled: true}}
		}))
		n, _ := k8stest.FindNotice(b.compile().Notices, k8swatch.NoticeUnsupportedField)
		if strings.Count(n.Message, "spec.") != 5 {
			t.Errorf("message %q", n.Message)
		}
	})
}

func security(c *v1.SecurityConfig) func(*v1.ProxyKubeApiSpec) {
	return func(s *v1.ProxyKubeApiSpec) { s.SecurityConfig = c }
}
