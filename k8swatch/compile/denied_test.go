package compile

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func deniedTargets(t *testing.T, more ...string) *egress.Policy {
	t.Helper()
	denied, err := egress.Parse(append(strings.Fields(egress.Default), more...))
	if err != nil {
		t.Fatal(err)
	}
	return denied
}

// Section 15, denied_targets: a host that is denied as it is written closes the
// object, whichever URL has it.
func TestDeniedHosts(t *testing.T) {
	server := func(url string) func(*v1.ProxyKubeApiSpec) {
		return func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = url }
	}
	issuer := func(url, discovery string) func(*v1.ProxyKubeApiSpec) {
		return func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.JWT[0].Issuer.URL = url
			if discovery != "" {
				s.AuthConfig.JWT[0].Issuer.DiscoveryURL = &discovery
			}
		}
	}
	service := func(name, namespace string) func(*v1.ProxyKubeApiSpec) {
		return func(s *v1.ProxyKubeApiSpec) {
			s.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: name, Namespace: &namespace}}
		}
	}
	const external, not = "spec.service.ExternalService.url", ", to which this proxy does not connect (denied_targets)"
	for name, tt := range map[string]struct {
		change func(*v1.ProxyKubeApiSpec)
		want   string // empty: served
	}{
		"a name that may resolve to it": {server("https://localhost:6443"), ""},
		"a private address":             {server("https://10.0.0.10:6443"), ""},
		"loopback":                      {server("https://127.0.0.1:6443"), external + ": leads to 127.0.0.1" + not},
		"loopback, IPv6":                {server("https://[::1]:6443"), external + ": leads to ::1" + not},
		"mapped":                        {server("https://[::ffff:169.254.169.254]"), external + ": leads to ::ffff:169.254.169.254" + not},
		"unspecified":                   {server("https://0.0.0.0"), external + ": leads to 0.0.0.0" + not},
		"a name":                        {server("https://Metadata.Example.Test"), external + ": leads to metadata.example.test" + not},
		"a name with a dot":             {server("https://metadata.example.test."), external + ": leads to metadata.example.test." + not},
		"tls_server_name leads nowhere": {func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = "metadata.example.test" }, ""},

		"a Service":               {service("api", "team-a"), ""},
		"a Service, by full name": {service("vault", "team-a"), "spec.service.KubernetesService: leads to vault.team-a.svc.cluster.local." + not},
		"a Service, in short":     {service("secrets", "team-a"), "spec.service.KubernetesService: leads to secrets.team-a.svc" + not},

		"an issuer":                   {issuer("https://169.254.169.254", ""), "spec.auth_config.jwt[0].issuer.url: leads to 169.254.169.254" + not},
		"a discovery_url":             {issuer("https://idp.example.test", "https://127.0.0.1/x"), "spec.auth_config.jwt[0].issuer.discovery_url: leads to 127.0.0.1" + not},
		"an issuer that is not asked": {issuer("https://127.0.0.1", "https://idp.example.test/x"), ""},
		"a provider": {func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig = withProvider().Spec.AuthConfig
			s.AuthConfig.OidcProvider.IssuerURL = "https://[fe80::1]/realm"
		}, "spec.auth_config.oidc_provider.issuer_url: leads to fe80::1" + not},
		"a token_url": {func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig = withExchange(func(e *v1.TokenExchange) { e.TokenURL = "https://127.0.0.1:8443/token" }).Spec.AuthConfig
		}, "spec.auth_config.token_exchange.token_url: leads to 127.0.0.1" + not},
		"both are named": {func(s *v1.ProxyKubeApiSpec) {
			server("https://127.0.0.1")(s)
			issuer("https://[::1]", "")(s)
		}, external + ": leads to 127.0.0.1" + not + "; spec.auth_config.jwt[0].issuer.url: leads to ::1" + not},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				o.DeniedTargets = deniedTargets(t, "metadata.example.test", "*.metadata.example.test", "vault.team-a.svc.cluster.local", "secrets.team-a.svc")
			})
			for _, name := range []string{"api", "vault", "secrets"} {
				b.store.Services[k8swatch.Key{Namespace: "team-a", Name: name}] = serviceOf(name, corev1.ServicePort{Port: 443})
			}
			b.put(k8stest.Object(tt.change))
			c := b.compile()
			if c.DeniedTargets != b.options.DeniedTargets {
				t.Error("the cluster does not say where no connection may lead")
			}
			if tt.want == "" {
				k8stest.WantReady(t, c, k8swatch.ReasonServing)
				return
			}
			k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec)
			if c.Ready.Message != tt.want || c.TargetKnown && strings.HasPrefix(tt.want, "spec.service") {
				t.Errorf("TargetKnown %t, message\n%s, want\n%s", c.TargetKnown, c.Ready.Message, tt.want)
			}
		})
	}
}

// API-7: an issuer that a Secret names is judged as one in the object.
func TestDeniedIssuerOfConfigFrom(t *testing.T) {
	b := newBench(t, func(o *Options) { o.DeniedTargets = deniedTargets(t) })
	b.putConfig(map[string]string{"issuer_url": "https://169.254.169.254", "client_id": "x"})
	b.put(withConfigFrom())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.auth_config.oidc_provider.issuer_url: leads to 169.254.169.254")
}

// Section 15, disable_validation off: the field is refused, in preparation too.
func TestDisableValidationIsNotEnabled(t *testing.T) {
	const want = "spec.auth_config.disable_validation: is not enabled on this proxy installation; the option disable_validation opens it"
	b := newBench(t, func(o *Options) { o.RequireValidation = true })
	b.put(k8stest.Object())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.AuthConfig = nil }))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.AuthConfig.DisableValidation = true
		s.UpstreamAuth = &v1.UpstreamAuth{UserPrefix: ptr.To("u:"), GroupPrefix: ptr.To("g:")}
	}))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec)
	if c.Ready.Message != want {
		t.Errorf("message %q, want %q", c.Ready.Message, want)
	}
	b.options.RequireValidation = false
	b.Compiler = New(b.options)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
}
