package compile

import (
	"crypto/tls"
	"crypto/x509"
	"reflect"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func TestSameCluster(t *testing.T) {
	base := func() *k8swatch.Cluster {
		return &k8swatch.Cluster{Notices: []k8swatch.Condition{k8swatch.Notice("A", "b")}, Auth: k8swatch.Auth{
			JWT: make([]k8swatch.JWT, 1), Hash: "h", OIDC: &k8swatch.OIDCProvider{}, Exchange: &k8swatch.TokenExchange{TokenURL: "https://t"},
		}}
	}
	a := base()
	same := *a
	if !sameCluster(a, &same) {
		t.Error("a copy is not the same")
	}
	changes := map[string]func(*k8swatch.Cluster){
		"notice":       func(c *k8swatch.Cluster) { c.Notices = []k8swatch.Condition{k8swatch.Notice("A", "c")} },
		"ready":        func(c *k8swatch.Cluster) { c.Ready.Message = "x" },
		"pool":         func(c *k8swatch.Cluster) { c.CA = x509.NewCertPool() },
		"certificate":  func(c *k8swatch.Cluster) { c.FrontProxy = &k8swatch.ClientCertificate{TLS: tls.Certificate{}} },
		"client_cert":  func(c *k8swatch.Cluster) { c.ClientCert = &k8swatch.ClientCertificate{TLS: tls.Certificate{}} },
		"jwt":          func(c *k8swatch.Cluster) { c.Auth.JWT = make([]k8swatch.JWT, 1) },
		"no jwt":       func(c *k8swatch.Cluster) { c.Auth.JWT = nil },
		"oidc":         func(c *k8swatch.Cluster) { c.Auth.OIDC = &k8swatch.OIDCProvider{} },
		"exchange":     func(c *k8swatch.Cluster) { c.Auth.Exchange = &k8swatch.TokenExchange{} },
		"recompile at": func(c *k8swatch.Cluster) { c.RecompileAt = k8stest.Now },
		"missing":      func(c *k8swatch.Cluster) { c.Missing = []k8swatch.Condition{{}} },
		"denied":       func(c *k8swatch.Cluster) { c.DeniedTargets = new(egress.Policy) },
	}
	for name, change := range changes {
		changed := *a
		change(&changed)
		if sameCluster(a, &changed) {
			t.Errorf("%s: the same", name)
		}
	}
	if sameCluster(nil, a) || sameCluster(a, nil) {
		t.Error("nothing is the same as a cluster")
	}
}

// A field added to Cluster is compared, or this test says where to think of it.
func TestSameClusterKnowsAllThatCannotBeCompared(t *testing.T) {
	special := map[string]bool{"CA": true, "DeniedTargets": true, "FrontProxy": true, "ClientCert": true, "Auth": true}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(k8swatch.Cluster{})) {
		switch f.Type.Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Func, reflect.Map, reflect.Chan:
			if !special[f.Name] {
				t.Errorf("sameCluster compares %s by what it points to", f.Name)
			}
		}
	}
}
