package compile

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// places are all the references an object can hold, with the path of each.
var places = map[string]func(*v1.ProxyKubeApiSpec, string, *string){
	"spec.cert.Secret": func(s *v1.ProxyKubeApiSpec, name string, namespace *string) {
		s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "k", Namespace: namespace}}
	},
	"spec.client_cert.cert.Secret": func(s *v1.ProxyKubeApiSpec, name string, namespace *string) {
		s.ClientCert = &v1.ClientCert{Cert: v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "k", Namespace: namespace}}}
	},
	"spec.client_cert.key.Secret": func(s *v1.ProxyKubeApiSpec, name string, namespace *string) {
		s.ClientCert = &v1.ClientCert{Key: v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "k", Namespace: namespace}}}
	},
	"spec.auth_config.oidc_provider.config_from.Secret": func(s *v1.ProxyKubeApiSpec, name string, namespace *string) {
		s.AuthConfig.OidcProvider = &v1.OidcProvider{ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: name, Namespace: namespace}}}
	},
	"spec.virtual_apis[1].list_fallback_token.Secret": func(s *v1.ProxyKubeApiSpec, name string, namespace *string) {
		s.VirtualAPIs = []v1.VirtualAPI{{Kind: "OpenShiftProject"}, {Kind: "OpenShiftProject", Enabled: ptr.To(false), ListFallbackToken: &v1.CertSource{
			Secret: &v1.KeyReference{Name: name, Key: "k", Namespace: namespace}}}}
	},
}

func TestReferencesStayInTheirNamespace(t *testing.T) { // API-4
	tests := map[string]struct {
		namespace *string
		opened    []string
		refused   bool
	}{
		"none":             {nil, nil, false},
		"empty":            {ptr.To(""), nil, false},
		"its own":          {ptr.To("team-a"), nil, false},
		"another":          {ptr.To("team-b"), nil, true},
		"the proxy's":      {ptr.To(k8stest.ProxyNamespace), nil, true},
		"another, opened":  {ptr.To("team-b"), []string{"shared", "team-b"}, false},
		"another is open":  {ptr.To("team-b"), []string{"shared"}, true},
		"almost opened":    {ptr.To("team-b"), []string{"team-"}, true},
		"a star is a name": {ptr.To("team-b"), []string{"*"}, true},
		"above":            {ptr.To("../team-a"), nil, true},
	}
	for path, set := range places {
		for name, test := range tests {
			t.Run(path+"/"+name, func(t *testing.T) {
				b := newBench(t, func(o *Options) { o.ReferenceNamespaces = test.opened })
				b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { set(s, "x", test.namespace) }))
				c := b.compile()
				problem := path + ".namespace: must be the namespace of the object"
				if test.refused {
					k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, problem)
					if len(b.store.Reads) != 0 {
						t.Errorf("read %v all the same", b.store.Reads)
					}
				} else if c.Ready.Reason == k8swatch.ReasonInvalidSpec && strings.Contains(c.Ready.Message, problem) {
					t.Errorf("refused: %s", c.Ready.Message)
				}
			})
		}
	}
}

func TestSecretsOfTheProductAreNoReference(t *testing.T) { // API-5
	for path, set := range places {
		for _, name := range []string{k8stest.FrontProxyName, "proxyauth-frontproxy-", "proxyauth-agent-team-a.edge"} {
			for namespace, opened := range map[string]string{"team-a": "", k8stest.ProxyNamespace: k8stest.ProxyNamespace} {
				t.Run(path+"/"+name+"/"+namespace, func(t *testing.T) {
					b := newBench(t, func(o *Options) { o.ReferenceNamespaces = []string{opened} })
					b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { set(s, name, ptr.To(namespace)) }))
					k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, path+".name: names a Secret of the proxy itself")
				})
			}
		}
	}
}

// A label protects as well as a name, also when it comes later: what was read
// before does not stay.
func TestALabelWithdrawsWhatWasRead(t *testing.T) { // API-5
	good := map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt}
	labelled := func(s *corev1.Secret) { s.Labels = map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue} }
	b := caBench(t, nil)
	b.putCA(good, labelled)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "spec.cert.Secret.name: names a Secret of the proxy itself")

	b = caBench(t, good)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	b.putCA(good, labelled)
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec)
	if !verifiesNothing(c.CA) {
		t.Error("the CA of a protected Secret is used")
	}
	b.fail(caRead, k8stest.ErrForbidden())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonReferenceNotFound)

	b = caBench(t, nil)
	b.putCA(good, func(s *corev1.Secret) { s.Labels = map[string]string{k8swatch.ManagedByLabel: "Helm"} })
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
}

func TestNamesOfReferences(t *testing.T) {
	tests := map[string]*v1.KeyReference{
		"spec.cert.Secret.name: must be the name of a Secret": {Name: "a/../b", Key: "k"},
		"spec.cert.Secret.key: is required":                   {Name: "a"},
	}
	for want, ref := range tests {
		b := newBench(t)
		b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Cert = &v1.CertSource{Secret: ref} }))
		k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, want)
		if len(b.store.Reads) != 0 {
			t.Errorf("read %v", b.store.Reads)
		}
	}
}

// One object never reads the certificate of another, whatever it names.
func TestReadsOfAnObject(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) {
		s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: "ca", Key: "ca.crt"}}
		s.VirtualAPIs = []v1.VirtualAPI{{Kind: "OpenShiftProject", ListFallbackToken: &v1.CertSource{Secret: &v1.KeyReference{Name: "token", Key: "k"}}}}
	}))
	b.putSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "ca"}})
	b.compile()
	want := map[string]bool{caRead: true, k8stest.FrontProxyRead: true}
	for _, read := range b.store.Reads {
		if !want[read] {
			t.Errorf("read %s", read)
		}
	}
}
