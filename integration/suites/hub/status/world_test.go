package status

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	prefix = "proxyauth:"
	// mine is the namespace of the objects, opened the one that the proxy admin
	// opens to their references.
	mine, opened = "team-a", "team-b"
)

// world is a hub that lets the proxy read Secrets and ConfigMaps in two
// namespaces, a target, and a proxy.
type world struct {
	idp    *oidc.Provider
	hub    *hub.Hub
	target *kube.APIServer
	px     *proxy.Proxy
	// temporary is the proxy's TMPDIR.
	temporary string
}

func TestStatus(t *testing.T) {
	etcd := kube.StartSharedEtcd(t)
	w := &world{idp: oidc.Start(t, oidc.Options{}), temporary: t.TempDir()}
	w.hub = hub.Start(t, kube.Options{Etcd: etcd}, "rbac.secretNamespaces={"+mine+","+opened+"}")
	w.target = kube.Start(t, kube.Options{Etcd: etcd})
	w.px = proxy.Start(t, proxy.Options{Hub: w.hub.Kubeconfig, Env: []string{"TMPDIR=" + w.temporary}})
	t.Run("REC-4 a good cluster", w.goodCluster)
	t.Run("API-8 fields without effect", w.withoutEffect)
	t.Run("REC-5 what closes", w.closes)
	t.Run("REC-5 kubectl wait", w.waits)
	t.Run("SIG-5 health", w.health)
	t.Run("API-4 an opened namespace", w.openedNamespace)
	t.Run("CERT-4 the certificate outlives its object", w.outlives)
	w.hub.MustNotHaveBeenForbidden(t)
	w.written(t)
}

// approve writes the front-proxy Secret of a cluster, and returns its pair.
func (w *world) approve(t *testing.T, name string) *pki.KeyPair {
	t.Helper()
	pair := pki.Must(w.target.FrontProxy())
	w.hub.Apply(t, proxy.FrontProxySecret(mine, name, w.target.URL, pair))
	return pair
}

// cluster is an object in FrontProxy for the target.
func (w *world) cluster(name string) *v1.ProxyKubeApi {
	return proxy.FrontProxyCluster(mine, name, w.target.URL, w.target.PKI.ServerCA, prefix, proxy.Authenticator(w.idp))
}

// ask sends a review of alice's own to a cluster.
func (w *world) ask(t *testing.T, name string) *kube.Review {
	t.Helper()
	client := w.px.Client("h2")
	defer client.CloseIdleConnections()
	return kube.MustWhoAmI(t, client, w.px.ClusterURL(mine, name), kube.Bearer(w.idp.Token(oidc.Alice, nil)))
}

// answers waits until a cluster answers so.
func (w *world) answers(t *testing.T, name string, code int) *kube.Review {
	t.Helper()
	var r *kube.Review
	w.hub.Eventually(t, "the answer of "+name, func() bool { r = w.ask(t, name); return r.Code == code })
	return r
}
