//go:build long

package oldkube

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	prefix = "proxyauth:"
	// ns is the namespace of all clusters.
	ns = "team-a"
)

// world is apiservers of one version with the same authorities, that know an
// identity provider.
type world struct {
	idp  *oidc.Provider
	etcd *kube.Etcd
	pki  *kube.PKI
	tool realtools.Tool
	// right honours the proxy.
	right *kube.APIServer
}

func newWorld(t *testing.T, tool realtools.Tool) *world {
	t.Helper()
	w := worldOf(t, tool)
	isVersion(t, w.right, tool)
	return w
}

// worldOf is newWorld with an apiserver whose name says no version.
func worldOf(t *testing.T, tool realtools.Tool) *world {
	t.Helper()
	authorities, err := kube.NewPKI()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{idp: oidc.Start(t, oidc.Options{}), etcd: kube.StartSharedEtcd(t), pki: authorities, tool: tool}
	w.right = w.apiserver(t, nil)
	return w
}

// apiserver starts one whose request-header settings are changed.
func (w *world) apiserver(t *testing.T, change func(*kube.RequestHeader)) *kube.APIServer {
	t.Helper()
	header := w.pki.DefaultRequestHeader()
	if change != nil {
		change(header)
	}
	jwt := w.authenticator()
	return kube.Start(t, kube.Options{APIServer: w.tool, Etcd: w.etcd, PKI: w.pki, RequestHeader: header, OIDC: &jwt})
}

// isVersion fails the test unless the apiserver is what it is named after.
func isVersion(t *testing.T, a *kube.APIServer, tool realtools.Tool) {
	t.Helper()
	var version struct{ GitVersion string }
	text := a.Kubectl(t, "").MustRun(t, "get", "--raw", "/version").Stdout
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		t.Fatal(err)
	}
	if want := "v" + strings.TrimPrefix(tool.Name, "kube-apiserver-") + "."; !strings.HasPrefix(version.GitVersion, want) {
		t.Fatalf("the apiserver is %s, want %s", version.GitVersion, want)
	}
	t.Logf("the apiserver is %s", version.GitVersion)
}

func (w *world) authenticator() v1.JWTAuthenticator { return proxy.Authenticator(w.idp) }

// frontProxy is the objects of a cluster in FrontProxy.
func (w *world) frontProxy(name string, a *kube.APIServer, pair *pki.KeyPair) (*v1.ProxyKubeApi, any) {
	return proxy.FrontProxyCluster(ns, name, a.URL, w.pki.ServerCA, prefix, w.authenticator()),
		proxy.FrontProxySecret(ns, name, a.URL, pair)
}

// passthrough is a cluster in Passthrough.
func (w *world) passthrough(name string, against v1.ValidateAgainst) *v1.ProxyKubeApi {
	c := proxy.Cluster(ns, name, w.right.URL, w.pki.ServerCA)
	c.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: against}
	if against == v1.ValidateJwtAuthenticators {
		c.Spec.AuthConfig.JWT = []v1.JWTAuthenticator{w.authenticator()}
	}
	return c
}

func (w *world) alice() string { return w.idp.Token(oidc.Alice, nil) }

// audited waits for a request on that resource by a user with exactly those
// groups.
func audited(t *testing.T, a *kube.APIServer, verb, resource, user string, groups ...string) {
	t.Helper()
	a.MustAudit(t, func(e *auditv1.Event) bool {
		return e.Verb == verb && e.ObjectRef != nil && e.ObjectRef.Resource == resource &&
			e.User.Username == user && slices.Equal(e.User.Groups, groups) && strings.HasPrefix(e.UserAgent, "kubectl")
	})
}

func ptr[T any](v T) *T { return &v }
