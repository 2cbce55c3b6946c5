package compile

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// withAdmission makes a bench on the rules of the CRD.
func withAdmission(t testing.TB) *bench {
	t.Helper()
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	return newBench(t, func(o *Options) { o.Revalidate = validator.Revalidate })
}

// The rules of the CRD and the compiler's own meet in one message (API-3).
func TestCompileWithTheRulesOfTheCRD(t *testing.T) {
	tests := map[string]struct {
		change func(*v1.ProxyKubeApiSpec)
		reason string
		part   string
		probe  bool
	}{
		"Passthrough":       {func(*v1.ProxyKubeApiSpec) {}, k8swatch.ReasonServing, "", false},
		"FrontProxy":        {k8stest.InFrontProxy, k8swatch.ReasonServing, "", true},
		"no user_prefix":    {func(s *v1.ProxyKubeApiSpec) { k8stest.InFrontProxy(s); s.UpstreamAuth.UserPrefix = nil }, k8swatch.ReasonInvalidSpec, "spec.upstream_auth.user_prefix: user_prefix is required and must not be empty when mode is FrontProxy", false},
		"reserved prefix":   {func(s *v1.ProxyKubeApiSpec) { k8stest.InFrontProxy(s); s.UpstreamAuth.GroupPrefix = ptr.To("system:x") }, k8swatch.ReasonInvalidSpec, "spec.upstream_auth.group_prefix: group_prefix must not start with system:", false},
		"control character": {func(s *v1.ProxyKubeApiSpec) { k8stest.InFrontProxy(s); s.UpstreamAuth.GroupPrefix = ptr.To("a\tb") }, k8swatch.ReasonInvalidSpec, "control character", false},
		"no validation":     {func(s *v1.ProxyKubeApiSpec) { k8stest.InFrontProxy(s); s.AuthConfig.DisableValidation = true }, k8swatch.ReasonInvalidSpec, "FrontProxy cannot be used with auth_config.disable_validation: true", true},
		"Kubernetes":        {func(s *v1.ProxyKubeApiSpec) { k8stest.InFrontProxy(s); s.AuthConfig = nil }, k8swatch.ReasonInvalidSpec, "FrontProxy cannot be used with validate_against: Kubernetes", true},
		"unknown mode":      {func(s *v1.ProxyKubeApiSpec) { k8stest.InFrontProxy(s); s.UpstreamAuth.Mode = "Future" }, k8swatch.ReasonUpstreamModeUnknown, "Future", false},
		"proxy_group empty": {func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = ptr.To("") }, k8swatch.ReasonInvalidSpec, "proxy_group must not be empty", false},
		"two services":      {func(s *v1.ProxyKubeApiSpec) { s.Service.Agent = &v1.Agent{} }, k8swatch.ReasonInvalidSpec, "exactly one of ExternalService, KubernetesService, Agent must be set", false},
		"no service":        {func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{} }, k8swatch.ReasonInvalidSpec, "exactly one of ExternalService, KubernetesService, Agent must be set", false},
		"two certs": {func(s *v1.ProxyKubeApiSpec) {
			s.Cert = &v1.CertSource{SystemRoots: ptr.To(true), Insecure: ptr.To(true)}
		}, k8swatch.ReasonInvalidSpec, "spec.cert: cert: exactly one of", false},
		"http":              {func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = "http://h" }, k8swatch.ReasonInvalidSpec, "spec.service.ExternalService.url: url must be an https:// URL", false},
		"two issuers alike": {func(s *v1.ProxyKubeApiSpec) { s.AuthConfig.JWT = append(s.AuthConfig.JWT, k8stest.Authenticator()) }, k8swatch.ReasonInvalidSpec, "issuer.url must be unique in jwt", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := withAdmission(t)
			b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
			b.put(k8stest.Object(test.change))
			c := b.compile()
			k8stest.WantReady(t, c, test.reason, test.part)
			if c.Probe != test.probe {
				t.Errorf("Probe %v, want %v", c.Probe, test.probe)
			}
			for _, message := range strings.Split(c.Ready.Message, "; spec.")[1:] {
				if strings.Count(c.Ready.Message, message) > 1 {
					t.Errorf("said twice: %s", c.Ready.Message)
				}
			}
		})
	}
}

// REC-7 with the rules of the CRD: each one that FrontProxy would break.
func TestPreparationWithTheRulesOfTheCRD(t *testing.T) {
	b := withAdmission(t)
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.UpstreamAuth = &v1.UpstreamAuth{UserPrefix: ptr.To("system:"), GroupPrefix: ptr.To(strings.Repeat("g", 65))}
		s.AuthConfig.DisableValidation = true
	}))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	var fields []string
	for _, m := range c.Missing {
		path, _, _ := strings.Cut(m.Message, ": ")
		fields = append(fields, m.Reason+" "+path)
	}
	want := []string{
		"InvalidSpec spec.auth_config.disable_validation",
		"InvalidSpec spec.upstream_auth.group_prefix",
		"InvalidSpec spec.upstream_auth.user_prefix",
	}
	if !reflect.DeepEqual(fields, want) || c.Probe {
		t.Errorf("Missing %v, Probe %v", c.Missing, c.Probe)
	}
}

func BenchmarkRevalidate(b *testing.B) {
	validator, err := admission.Default()
	if err != nil {
		b.Fatal(err)
	}
	o := k8stest.Object(k8stest.InFrontProxy)
	b.ReportAllocs()
	for b.Loop() {
		validator.Revalidate(o)
	}
}
