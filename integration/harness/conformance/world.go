package conformance

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

const (
	tenant  = "team-a"
	cluster = "front"
	prefix  = "proxyauth:"
)

// hostForm is a site whose every request is for the cluster.
const hostForm = `https://127.0.0.1:%{port2} {
	bind 127.0.0.1
	tls %{cert} %{key}
	proxyauth {
		cluster ` + tenant + `/` + cluster + `
	}
}`

// ForwardImpersonation is a setting of the proxy, and a remedy of the list.
const ForwardImpersonation = "impersonation forward"

// tokenLife is longer than any run.
const tokenLife = 12 * time.Hour

// World is a cluster with a proxy in front.
type World struct {
	Node *node.Node
	// Direct, Path and Host are kubeconfigs: the administrator's own, and those
	// of a user behind the proxy who is bound to cluster-admin.
	Direct, Path, Host string
	// Impersonation is Path through a proxy with `impersonation forward`.
	Impersonation string
}

// Start starts a node with the images of the tests, and a proxy on it.
func Start(t *testing.T) *World {
	t.Helper()
	n := node.Start(t, node.Options{LargeImages: true, APIServer: kube.Options{ExtraArgs: []string{"--allow-privileged=true"}}})
	list, err := images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range list {
		n.LoadImage(t, image)
	}
	var idp *oidc.Provider
	if err := n.Namespaces.Do(func() (err error) {
		idp, err = oidc.New(oidc.Options{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(idp.Stop)
	api := n.API
	object := proxy.FrontProxyCluster(tenant, cluster, api.URL, api.PKI.ServerCA, prefix, proxy.Authenticator(idp))
	manifests := proxy.Manifests(object, proxy.FrontProxySecret(tenant, cluster, api.URL, pki.Must(api.FrontProxy())))
	start := func(settings string) *proxy.Proxy {
		px := proxy.Start(t, proxy.Options{
			Namespaces: n.Namespaces, Sites: hostForm, LogLevel: "INFO", Settings: settings,
			Manifests: map[string]string{"front.yaml": manifests},
		})
		px.MustServe(t, tenant, cluster)
		return px
	}
	px, forwarding := start(""), start(ForwardImpersonation)
	n.Kubectl(t).MustRun(t, "create", "clusterrolebinding", "conformance", "--clusterrole=cluster-admin", "--user="+prefix+oidc.Alice)
	token := idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(tokenLife).Unix()})
	dir := t.TempDir()
	w := &World{Node: n, Direct: api.Kubeconfig}
	for _, access := range []struct {
		file      *string
		name, url string
		px        *proxy.Proxy
	}{
		{&w.Path, "path", px.ClusterURL(tenant, cluster), px},
		{&w.Host, "host", "https://127.0.0.1:" + px.Value("port2"), px},
		{&w.Impersonation, "impersonation", forwarding.ClusterURL(tenant, cluster), forwarding},
	} {
		*access.file = filepath.Join(dir, access.name)
		if err := kube.WriteKubeconfig(*access.file, kube.Access{Server: access.url, CA: access.px.CA.PEM, Token: token}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}
