//go:build long

package node

import (
	"path/filepath"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// busy is a node behind a proxy, with a user who may do everything.
type busy struct {
	node *node.Node
	px   *proxy.Proxy
	idp  *oidc.Provider
}

func startBusy(t *testing.T) *busy {
	t.Helper()
	n := node.Start(t, node.Options{})
	b := &busy{node: n, idp: startProvider(t, n)}
	b.px = startProxy(t, n, b.idp)
	n.Kubectl(t).MustRun(t, "create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user="+prefix+oidc.Alice)
	return b
}

// client is a kubectl of one version that knows the cluster by one form of URL and
// speaks one version of HTTP.
type client struct {
	name string
	kube.Kubectl
	// url of the cluster, and protocol for proxy.Client.
	url, protocol string
}

// clients are kubectl of the pinned and of the oldest version, with both forms of
// URL and both versions of HTTP. Upgrades are on HTTP/1.1 in any case.
func (b *busy) clients(t *testing.T) []client {
	t.Helper()
	path, host := b.px.ClusterURL(tenant, "front"), "https://127.0.0.1:"+b.px.Value("port2")
	list := []client{
		{name: "path form, HTTP_2", url: path, protocol: "h2"},
		{name: "host form, HTTP_1.1", url: host, protocol: "h1"},
		{name: "1.29, path form, HTTP_1.1", url: path, protocol: "h1", Kubectl: kube.Kubectl{Tool: realtools.Kubectl129}},
		{name: "1.29, host form, HTTP_2", url: host, protocol: "h2", Kubectl: kube.Kubectl{Tool: realtools.Kubectl129}},
	}
	kubeconfigs := map[string]string{}
	for _, url := range []string{path, host} {
		kubeconfigs[url] = writeKubeconfig(t, kube.Access{Server: url, CA: b.px.CA.PEM, Token: b.idp.Token(oidc.Alice, nil)})
	}
	for i := range list {
		c := &list[i]
		c.Kubeconfig, c.Home, c.Namespaces = kubeconfigs[c.url], filepath.Join(t.TempDir(), "home"), b.node.Namespaces
		if c.protocol == "h1" {
			c.Env = []string{"DISABLE_HTTP2=1"} // a switch of client-go
		}
	}
	return list
}

// writeKubeconfig writes a kubeconfig and returns its path.
func writeKubeconfig(t *testing.T, access kube.Access) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, access); err != nil {
		t.Fatal(err)
	}
	return file
}
