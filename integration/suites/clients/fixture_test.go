//go:build long

package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

const (
	tenant = "tenant"
	prefix = "proxyauth:"
	user   = prefix + oidc.Alice
)

// access is one way for alice to the cluster, with a namespace for what she does
// there. The embedded Kubectl also runs other clients.
type access struct {
	kube.Kubectl
	name, namespace string
}

// with is another client with the same kubeconfig.
func (a access) with(t realtools.Tool) kube.Kubectl {
	a.Tool = t
	return a.Kubectl
}

// apply applies manifests.
func (a access) apply(t *testing.T, manifests string) {
	t.Helper()
	a.Stdin = []byte(manifests)
	a.MustRun(t, "apply", "-f", "-")
}

// hostForm is a site whose every request is for the cluster front.
const hostForm = `https://127.0.0.1:%{port2} {
	bind 127.0.0.1
	tls %{cert} %{key}
	proxyauth {
		cluster ` + tenant + `/front
	}
}`

// talker is a pod that writes a line a second and serves its name by HTTP.
const talker = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: talker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox:test
    imagePullPolicy: Never
    command:
    - sh
    - -c
    - |
      mkdir /tmp/www && hostname >/tmp/www/name && httpd -p 8080 -h /tmp/www
      i=0; while :; do i=$((i+1)); echo "%[1]s tick $i"; sleep 1; done
---
`

// ways starts a proxy on the node, and returns all ways to the cluster.
func ways(t *testing.T, n *node.Node) []access {
	t.Helper()
	var idp *oidc.Provider
	err := n.Namespaces.Do(func() (err error) {
		idp, err = oidc.New(oidc.Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(idp.Stop)
	api := n.API
	front := proxy.FrontProxyCluster(tenant, "front", api.URL, api.PKI.ServerCA, prefix, proxy.Authenticator(idp))
	px := proxy.Start(t, proxy.Options{
		Namespaces: n.Namespaces, Sites: hostForm,
		Manifests: map[string]string{
			"front.yaml": proxy.Manifests(front, proxy.FrontProxySecret(tenant, "front", api.URL, pki.Must(api.FrontProxy()))),
		},
	})
	px.MustServe(t, tenant, "front")
	n.Kubectl(t).MustRun(t, "create", "clusterrolebinding", "alice", "--clusterrole=cluster-admin", "--user="+user)

	pair := pki.Must(api.PKI.ClientCA.Client(user))
	// Longer than the tests take, as a login that is renewed would be.
	token := idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(2 * time.Hour).Unix()})
	return []access{
		way(t, n, "direct", kube.Access{Server: api.URL, CA: api.PKI.ServerCA.PEM, ClientCert: pair.CertPEM, ClientKey: pair.KeyPEM}),
		way(t, n, "path", kube.Access{Server: px.ClusterURL(tenant, "front"), CA: px.CA.PEM, Token: token}),
		way(t, n, "host", kube.Access{Server: "https://127.0.0.1:" + px.Value("port2"), CA: px.CA.PEM, TokenCommand: login(t, token)}),
	}
}

// login is a command that prints a token for a kubeconfig, as kubelogin does.
func login(t *testing.T, token string) []string {
	t.Helper()
	credential, err := json.Marshal(map[string]any{
		"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": map[string]string{"token": token},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(file, credential, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"cat", file}
}

// way makes the namespace of a way, with two talkers.
func way(t *testing.T, n *node.Node, name string, cfg kube.Access) access {
	t.Helper()
	cfg.Namespace = name + "-way"
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := kube.WriteKubeconfig(file, cfg); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	a := access{kube.Kubectl{Kubeconfig: file, Home: home, Namespaces: n.Namespaces}, name, cfg.Namespace}
	a.MustRun(t, "create", "namespace", a.namespace)
	a.apply(t, fmt.Sprintf(talker, "one")+fmt.Sprintf(talker, "two"))
	a.MustRun(t, "wait", "--for=condition=Ready", "pods", "--all", "--timeout=90s")
	return a
}

// testdata is the absolute path of a file there: clients run in their home.
func testdata(t *testing.T, elements ...string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(append([]string{"testdata"}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return file
}
