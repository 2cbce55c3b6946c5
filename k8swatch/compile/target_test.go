package compile

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func serviceOf(name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.1.2.3", Type: corev1.ServiceTypeClusterIP, Ports: ports},
	}
}

func TestExternalTargets(t *testing.T) { // CERT-2, URL-01
	tests := map[string]struct {
		url        string
		want       k8swatch.Target
		serverName string
	}{
		"host":           {"https://h.example.test", k8swatch.Target{Canonical: "external:https://h.example.test", Address: "h.example.test:443", Host: "h.example.test"}, "h.example.test"},
		"final slash":    {"https://h/", k8swatch.Target{Canonical: "external:https://h", Address: "h:443", Host: "h"}, "h"},
		"final slashes":  {"https://h/k8s//", k8swatch.Target{Canonical: "external:https://h/k8s", Address: "h:443", Host: "h", BasePath: "/k8s"}, "h"},
		"port":           {"https://10.0.0.10:6443", k8swatch.Target{Canonical: "external:https://10.0.0.10:6443", Address: "10.0.0.10:6443", Host: "10.0.0.10:6443"}, "10.0.0.10"},
		"port 443":       {"https://h:443", k8swatch.Target{Canonical: "external:https://h:443", Address: "h:443", Host: "h:443"}, "h"},
		"zeros":          {"https://h:0443", k8swatch.Target{Canonical: "external:https://h:0443", Address: "h:443", Host: "h:443"}, "h"},
		"base":           {"https://h:6443/k8s/c-1", k8swatch.Target{Canonical: "external:https://h:6443/k8s/c-1", Address: "h:6443", Host: "h:6443", BasePath: "/k8s/c-1"}, "h"},
		"base and slash": {"https://h/k8s/c-1/", k8swatch.Target{Canonical: "external:https://h/k8s/c-1", Address: "h:443", Host: "h", BasePath: "/k8s/c-1"}, "h"},
		"escaped base":   {"https://h/a%20b%2Fc", k8swatch.Target{Canonical: "external:https://h/a%20b%2Fc", Address: "h:443", Host: "h", BasePath: "/a%20b%2Fc"}, "h"},
		"colon, at":      {"https://h/a:1@b", k8swatch.Target{Canonical: "external:https://h/a:1@b", Address: "h:443", Host: "h", BasePath: "/a:1@b"}, "h"},
		"upper case":     {"https://API.Example.Test/Base", k8swatch.Target{Canonical: "external:https://API.Example.Test/Base", Address: "api.example.test:443", Host: "api.example.test", BasePath: "/Base"}, "api.example.test"},
		"IPv6":           {"https://[2001:DB8::10]:6443", k8swatch.Target{Canonical: "external:https://[2001:DB8::10]:6443", Address: "[2001:db8::10]:6443", Host: "[2001:db8::10]:6443"}, "2001:db8::10"},
		"IPv6, no port":  {"https://[::1]", k8swatch.Target{Canonical: "external:https://[::1]", Address: "[::1]:443", Host: "[::1]"}, "::1"},
		"punycode":       {"https://xn--bcher-kva.example", k8swatch.Target{Canonical: "external:https://xn--bcher-kva.example", Address: "xn--bcher-kva.example:443", Host: "xn--bcher-kva.example"}, "xn--bcher-kva.example"},
		"final dot":      {"https://h.example.test.", k8swatch.Target{Canonical: "external:https://h.example.test.", Address: "h.example.test.:443", Host: "h.example.test."}, "h.example.test."},
		"highest port":   {"https://h:65535", k8swatch.Target{Canonical: "external:https://h:65535", Address: "h:65535", Host: "h:65535"}, "h"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = test.url }))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			test.want.Kind = k8swatch.TargetExternal
			if diff := cmp.Diff(test.want, c.Target); diff != "" {
				t.Error(diff)
			}
			if c.ServerName != test.serverName {
				t.Errorf("ServerName %q, want %q", c.ServerName, test.serverName)
			}
		})
	}
}

func TestRefusedURLs(t *testing.T) {
	tests := map[string]struct {
		url  string
		want error
	}{
		"http":                  {"http://h", errURLScheme},
		"upper-case scheme":     {"HTTPS://h", errURLScheme},
		"no scheme":             {"h:6443", errURLScheme},
		"empty":                 {"", errURLScheme},
		"space before":          {" https://h", errURLScheme},
		"no host":               {"https://", errURLHost},
		"only a path":           {"https:///x", errURLHost},
		"user":                  {"https://u@h", errURLUser},
		"user and password":     {"https://u:p@h:6443/x", errURLUser},
		"query":                 {"https://h?x=1", errURLQuery},
		"query after a path":    {"https://h/a?x=1", errURLQuery},
		"empty query":           {"https://h/?", errURLQuery},
		"fragment":              {"https://h/#f", errURLFragment},
		"empty fragment":        {"https://h#", errURLFragment},
		"bare IPv6":             {"https://2001:db8::10:6443", errURLHost},
		"IPv4 in brackets":      {"https://[10.0.0.1]", errURLHost},
		"IPv6 with a zone":      {"https://[fe80::1%25eth0]", errURLHost},
		"open bracket":          {"https://[::1", errURLHost},
		"text after bracket":    {"https://[::1]x", errURLHost},
		"nothing in brackets":   {"https://[]", errURLHost},
		"port name":             {"https://h:port", errURLPort},
		"port 0":                {"https://h:0", errURLPort},
		"port 65536":            {"https://h:65536", errURLPort},
		"six digits":            {"https://h:006443", errURLPort},
		"signed port":           {"https://h:+443", errURLPort},
		"empty port":            {"https://h:", errURLPort},
		"empty port, path":      {"https://h:/x", errURLPort},
		"IDN":                   {"https://bücher.example", errURLHost},
		"host with a space":     {"https://h h", errURLHost},
		"host with a NUL":       {"https://h\x00", errURLHost},
		"host with an escape":   {"https://h%2e", errURLHost},
		"backslash in host":     {`https://h\evil`, errURLHost},
		"two hosts":             {"https://a,b", errURLHost},
		"dot segment":           {"https://h/a/../b", errURLDots},
		"final dot segment":     {"https://h/a/..", errURLDots},
		"one dot":               {"https://h/./a", errURLDots},
		"escaped dots":          {"https://h/%2e%2E/a", errURLDots},
		"half-escaped dots":     {"https://h/.%2e/a", errURLDots},
		"dots behind %2F":       {"https://h/a%2F..%2Fb", errURLDots},
		"empty segment":         {"https://h/a//b", errURLEmpty},
		"empty first segment":   {"https://h//evil.test/a", errURLEmpty},
		"empty segment by %2F":  {"https://h/a%2F/b", errURLEmpty},
		"space":                 {"https://h/a b", errURLEscape},
		"line break":            {"https://h/a HTTP/1.1\r\nX-Remote-User: root", errURLEscape},
		"line feed alone":       {"https://h/a\nb", errURLEscape},
		"DEL":                   {"https://h/a\x7f", errURLEscape},
		"beyond ASCII":          {"https://h/é", errURLEscape},
		"backslash":             {`https://h/a\b`, errURLEscape},
		"braces":                {"https://h/{x}", errURLEscape},
		"quote":                 {`https://h/"`, errURLEscape},
		"caret":                 {"https://h/^", errURLEscape},
		"bad escape":            {"https://h/%zz", errURLEscape},
		"cut escape":            {"https://h/%2", errURLEscape},
		"brackets in the path":  {"https://h/[x]", errURLEscape},
		"semicolon in the host": {"https://h;x", errURLHost},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = test.url }))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.service.ExternalService.url: "+test.want.Error())
			if c.Target != (k8swatch.Target{}) {
				t.Errorf("a refused URL has a target: %+v", c.Target)
			}
			if c.FrontProxy != nil || c.Probe {
				t.Error("a refused URL is presented a certificate")
			}
		})
	}
}

// What is accepted goes onto the wire as it is written, on one request line,
// to the host that is dialled.
func FuzzParseTargetURL(f *testing.F) {
	for _, seed := range []string{k8stest.URL, "https://h/k8s/c-1/", "https://[::1]:1/a%2Fb", "https://h//x", "https://u@h", "https://H:443/%2e", "https://h/\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		target, host, err := parseTargetURL(raw)
		if err != nil {
			if target != (k8swatch.Target{}) || host != "" {
				t.Fatalf("%q is refused and has a target", raw)
			}
			return
		}
		dialled, port, err := net.SplitHostPort(target.Address)
		if err != nil || dialled != host || port == "" || port == "0" {
			t.Fatalf("%q dials %q for host %q", raw, target.Address, host)
		}
		u, err := url.Parse("https://" + target.Host + target.BasePath + "/api")
		if err != nil {
			t.Fatalf("%q gives what is no URL: %v", raw, err)
		}
		if u.Host != target.Host || u.Hostname() != host || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q is read as %+v", raw, u)
		}
		if u.EscapedPath() != target.BasePath+"/api" {
			t.Fatalf("%q: net/url writes %q for %q", raw, u.EscapedPath(), target.BasePath)
		}
		if strings.HasSuffix(target.BasePath, "/") || strings.Contains(target.BasePath, "//") {
			t.Fatalf("%q has base %q", raw, target.BasePath)
		}
		if _, err := http.NewRequest(http.MethodGet, u.String(), nil); err != nil {
			t.Fatalf("%q gives no request: %v", raw, err)
		}
		again, _, err := parseTargetURL(strings.TrimPrefix(target.Canonical, "external:"))
		if err != nil || again != target {
			t.Fatalf("%q: its canonical form is another target: %+v", raw, again)
		}
	})
}

func TestServiceTargets(t *testing.T) { // API-6, CERT-2
	https := corev1.ServicePort{Name: "https", Port: 443}
	tests := map[string]struct {
		ref       v1.KubernetesService
		service   *corev1.Service
		reason    string
		part      string
		canonical string
		host      string
	}{
		"neither port nor name": {v1.KubernetesService{Name: "api"}, serviceOf("api", https), k8swatch.ReasonServing, "", "service:team-a/api:443", "api.team-a.svc"},
		"port":                  {v1.KubernetesService{Name: "api", Port: ptr.To(int32(6443))}, serviceOf("api", https, corev1.ServicePort{Port: 6443}), k8swatch.ReasonServing, "", "service:team-a/api:6443", "api.team-a.svc:6443"},
		"port name":             {v1.KubernetesService{Name: "api", PortName: ptr.To("alt")}, serviceOf("api", https, corev1.ServicePort{Name: "alt", Port: 8443}), k8swatch.ReasonServing, "", "service:team-a/api:8443", "api.team-a.svc:8443"},
		"empty port name":       {v1.KubernetesService{Name: "api", PortName: ptr.To("")}, serviceOf("api", https), k8swatch.ReasonServing, "", "service:team-a/api:443", "api.team-a.svc"},
		"own namespace":         {v1.KubernetesService{Name: "api", Namespace: ptr.To("team-a")}, serviceOf("api", https), k8swatch.ReasonServing, "", "service:team-a/api:443", "api.team-a.svc"},
		"empty namespace":       {v1.KubernetesService{Name: "api", Namespace: ptr.To("")}, serviceOf("api", https), k8swatch.ReasonServing, "", "service:team-a/api:443", "api.team-a.svc"},
		"headless, any number": {v1.KubernetesService{Name: "api", Port: ptr.To(int32(6443))}, func() *corev1.Service {
			s := serviceOf("api")
			s.Spec.ClusterIP = corev1.ClusterIPNone
			return s
		}(), k8swatch.ReasonServing, "", "service:team-a/api:6443", "api.team-a.svc:6443"},
		"absent":              {v1.KubernetesService{Name: "gone"}, nil, k8swatch.ReasonServiceNotFound, "Service team-a/gone does not exist", "service:team-a/gone:443", "gone.team-a.svc"},
		"absent, port name":   {v1.KubernetesService{Name: "gone", PortName: ptr.To("https")}, nil, k8swatch.ReasonServiceNotFound, "does not exist", "", ""},
		"no such port name":   {v1.KubernetesService{Name: "api", PortName: ptr.To("nope")}, serviceOf("api", https), k8swatch.ReasonServiceNotFound, `no TCP port named "nope"`, "", ""},
		"no such port":        {v1.KubernetesService{Name: "api", Port: ptr.To(int32(1))}, serviceOf("api", https), k8swatch.ReasonServiceNotFound, "no TCP port 1", "service:team-a/api:1", "api.team-a.svc:1"},
		"no port 443":         {v1.KubernetesService{Name: "api"}, serviceOf("api", corev1.ServicePort{Port: 6443}), k8swatch.ReasonServiceNotFound, "no TCP port 443", "service:team-a/api:443", "api.team-a.svc"},
		"UDP":                 {v1.KubernetesService{Name: "api"}, serviceOf("api", corev1.ServicePort{Port: 443, Protocol: corev1.ProtocolUDP}), k8swatch.ReasonServiceNotFound, "no TCP port 443", "service:team-a/api:443", "api.team-a.svc"},
		"name is no label":    {v1.KubernetesService{Name: "evil.example.com."}, nil, k8swatch.ReasonInvalidSpec, "spec.service.KubernetesService.name", "", ""},
		"name with a slash":   {v1.KubernetesService{Name: "a/b"}, nil, k8swatch.ReasonInvalidSpec, "spec.service.KubernetesService.name", "", ""},
		"no name":             {v1.KubernetesService{}, nil, k8swatch.ReasonInvalidSpec, "spec.service.KubernetesService.name", "", ""},
		"namespace no label":  {v1.KubernetesService{Name: "api", Namespace: ptr.To("a.b")}, nil, k8swatch.ReasonInvalidSpec, "spec.service.KubernetesService.namespace", "", ""},
		"port out of range":   {v1.KubernetesService{Name: "api", Port: ptr.To(int32(70000))}, nil, k8swatch.ReasonInvalidSpec, "spec.service.KubernetesService.port", "", ""},
		"ExternalName (API6)": {v1.KubernetesService{Name: "ext"}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "ext"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "evil.test", Ports: []corev1.ServicePort{https}}}, k8swatch.ReasonInvalidSpec, "ExternalName", "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if s := test.service; s != nil {
				b.store.Services[k8swatch.Key{Namespace: s.Namespace, Name: s.Name}] = s
			}
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{KubernetesService: &test.ref} }))
			c := b.compile()
			k8stest.WantReady(t, c, test.reason, test.part)
			if c.Target.Canonical != test.canonical || c.Target.Host != test.host {
				t.Errorf("target %+v, want %s, %s", c.Target, test.canonical, test.host)
			}
			if test.reason == k8swatch.ReasonServing {
				// The final dot keeps resolv.conf's search domains out.
				if want := test.ref.Name + ".team-a.svc"; c.ServerName != want || !strings.HasPrefix(c.Target.Address, want+".cluster.local.:") {
					t.Errorf("ServerName %q, Address %q", c.ServerName, c.Target.Address)
				}
			}
		})
	}
}

func TestServiceInAnotherNamespace(t *testing.T) { // API-6
	b := newBench(t)
	s := serviceOf("kubernetes", corev1.ServicePort{Port: 443})
	b.store.Services[k8swatch.Key{Namespace: "default", Name: "kubernetes"}] = s
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "kubernetes", Namespace: ptr.To("default"), Port: ptr.To(int32(443))}}
	}))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	if c.Target.Canonical != "service:default/kubernetes:443" || c.ServerName != "kubernetes.default.svc" {
		t.Errorf("target %+v, %s", c.Target, c.ServerName)
	}
}

// The cluster's own DNS domain is dialled; the TLS server name and the Host header
// stay as they are.
func TestServiceInAnotherClusterDomain(t *testing.T) {
	b := newBench(t, func(o *Options) { o.ClusterDomain = "k8s.example.com" })
	b.store.Services[k8swatch.Key{Namespace: "team-a", Name: "api"}] = serviceOf("api", corev1.ServicePort{Port: 6443})
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "api", Port: ptr.To(int32(6443))}}
	}))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	if c.Target.Address != "api.team-a.svc.k8s.example.com.:6443" || c.Target.Host != "api.team-a.svc:6443" || c.ServerName != "api.team-a.svc" {
		t.Errorf("target %+v, %s", c.Target, c.ServerName)
	}
}

// A Service that goes away closes the cluster and leaves the target what it
// was, since only a change of spec.service ends streams (STREAM-1). A read that
// fails closes nothing.
func TestServiceThatGoesAway(t *testing.T) {
	b := newBench(t)
	key := k8swatch.Key{Namespace: "team-a", Name: "api"}
	b.store.Services[key] = serviceOf("api", corev1.ServicePort{Name: "https", Port: 8443})
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "api", PortName: ptr.To("https")}}
	}))
	target := b.compile().Target

	b.fail("Service team-a/api", k8stest.ErrForbidden())
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNotice(t, c, k8swatch.NoticeReferenceStale, "get Service team-a/api: forbidden")
	b.heal("Service team-a/api")

	delete(b.store.Services, key)
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServiceNotFound)
	if c.Target != target {
		t.Errorf("the target changed to %+v", c.Target)
	}
	b.fail("Service team-a/api", k8stest.ErrForbidden())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServiceNotFound, "cannot be read (get): forbidden")
}

func TestAgentTargets(t *testing.T) { // CERT-2, API-8
	for name, want := range map[string]string{"": "agent:team-a/prod", "edge-1": "agent:team-a/edge-1"} {
		b := newBench(t)
		b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{Agent: &v1.Agent{Name: name}} }))
		c := b.compile()
		k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "spec.service.Agent is not supported by this version")
		if c.Target.Canonical != want || c.ServerName != "kubernetes.default.svc" {
			t.Errorf("target %+v, server name %s", c.Target, c.ServerName)
		}
	}
	b := newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{Agent: &v1.Agent{Name: "a/../b"}} }))
	if c := b.compile(); c.Target != (k8swatch.Target{}) {
		t.Errorf("target %+v", c.Target)
	}
}

func TestNoService(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{} }))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.service: exactly one of")
}

func TestServerName(t *testing.T) {
	tests := map[string]struct {
		name, want, reason string
	}{
		"default":      {"", "10.0.0.10", k8swatch.ReasonServing},
		"name":         {"Kubernetes.default.svc", "kubernetes.default.svc", k8swatch.ReasonServing},
		"underscore":   {"k8s_api.internal", "k8s_api.internal", k8swatch.ReasonServing},
		"IPv4":         {"10.0.0.1", "10.0.0.1", k8swatch.ReasonServing},
		"IPv6":         {"2001:db8::1", "2001:db8::1", k8swatch.ReasonServing},
		"space":        {"a b", "10.0.0.10", k8swatch.ReasonInvalidSpec},
		"port":         {"h:443", "10.0.0.10", k8swatch.ReasonInvalidSpec},
		"control":      {"h\x00", "10.0.0.10", k8swatch.ReasonInvalidSpec},
		"wildcard":     {"*.example.test", "10.0.0.10", k8swatch.ReasonInvalidSpec},
		"empty label":  {"a..b", "10.0.0.10", k8swatch.ReasonInvalidSpec},
		"long label":   {strings.Repeat("a", 64), "10.0.0.10", k8swatch.ReasonInvalidSpec},
		"beyond ASCII": {"bücher.example", "10.0.0.10", k8swatch.ReasonInvalidSpec},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = test.name }))
			c := b.compile()
			k8stest.WantReady(t, c, test.reason)
			if c.ServerName != test.want {
				t.Errorf("ServerName %q, want %q", c.ServerName, test.want)
			}
		})
	}
}
