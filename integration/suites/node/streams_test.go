package node

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// testStreams runs kubectl's streaming commands through the proxy (RELAY-2).
func testStreams(t *testing.T, n *node.Node) {
	idp := startProvider(t, n)
	px := startProxy(t, n, idp)
	streamtest.Apply(t, n)

	admin := n.Kubectl(t)
	account := "system:serviceaccount:default:streamer"
	admin.MustRun(t, "create", "serviceaccount", "streamer")
	admin.MustRun(t, "create", "rolebinding", "streams", "--clusterrole=edit", "--user="+prefix+oidc.Alice, "--serviceaccount=default:streamer")
	token := strings.TrimSpace(admin.MustRun(t, "create", "token", "streamer").Stdout)

	for _, mode := range []struct {
		name string
		k    kube.Kubectl
		user string
	}{
		{"FrontProxy", px.Kubectl(t, tenant, "front", idp.Token(oidc.Alice, nil)), prefix + oidc.Alice},
		{"Passthrough", px.Kubectl(t, tenant, "pass", token), account},
	} {
		t.Run(mode.name, func(t *testing.T) { streamtest.Run(t, n, mode.k, mode.user) })
	}
	for _, p := range streamtest.Protocols {
		t.Run("terminal, "+p.Name, func(t *testing.T) {
			streamtest.Terminal(t, p.With(px.Kubectl(t, tenant, "front", idp.Token(oidc.Alice, nil))))
		})
	}
	t.Run("refused", func(t *testing.T) { testRefused(t, px, idp) })
	t.Run("redirects", func(t *testing.T) { testRedirects(t, n, px, idp.Token(oidc.Alice, nil), token) })
	t.Run("volume", func(t *testing.T) { testVolume(t, px, px.Kubectl(t, tenant, "front", idp.Token(oidc.Alice, nil))) })
}

// startProvider starts an identity provider that the node can reach.
func startProvider(t *testing.T, n *node.Node) *oidc.Provider {
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
	return idp
}

// hostForm is a site whose every request is for the cluster front.
const hostForm = `https://127.0.0.1:%{port2} {
	bind 127.0.0.1
	tls %{cert} %{key}
	proxyauth {
		cluster ` + tenant + `/front
	}
}`

// startProxy starts a proxy on the node with a cluster for each mode.
func startProxy(t *testing.T, n *node.Node, idp *oidc.Provider) *proxy.Proxy {
	t.Helper()
	api := n.API
	front := proxy.FrontProxyCluster(tenant, "front", api.URL, api.PKI.ServerCA, prefix, proxy.Authenticator(idp))
	pass := proxy.Cluster(tenant, "pass", api.URL, api.PKI.ServerCA)
	pass.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	px := proxy.Start(t, proxy.Options{
		Namespaces: n.Namespaces,
		Sites:      hostForm,
		Manifests: map[string]string{
			"front.yaml": proxy.Manifests(front, proxy.FrontProxySecret(tenant, "front", api.URL, pki.Must(api.FrontProxy()))),
			"pass.yaml":  proxy.Manifests(pass),
		},
	})
	px.MustServe(t, tenant, "front")
	px.MustServe(t, tenant, "pass")
	return px
}

// RELAY-4: an upgrade that the apiserver refuses ends as its plain answer.
func testRefused(t *testing.T, px *proxy.Proxy, idp *oidc.Provider) {
	for _, p := range streamtest.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			k := p.With(px.Kubectl(t, tenant, "front", idp.Token(oidc.Elodie, nil)))
			r := k.MustEnd(t, "exec", streamtest.Pod, "--", "true")
			if r.ExitCode != 1 || !strings.Contains(r.Stderr, `"proxyauth:élodie" cannot`) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// LIM-02, RELAY-6: 200 MiB through exec in each direction arrive, and the
// proxy does not keep them.
func testVolume(t *testing.T, px *proxy.Proxy, k kube.Kubectl) {
	const size = 200 << 20
	before := peakMemory(t, px.PID())
	for _, p := range streamtest.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Run("up", func(t *testing.T) { streamtest.Upload(t, p.With(k), size) })
			t.Run("down", func(t *testing.T) { streamtest.Download(t, p.With(k), size) })
		})
	}
	if grown := peakMemory(t, px.PID()) - before; grown > 64<<10 {
		t.Errorf("the proxy's memory grew by %d KiB", grown)
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is the most that a process has ever held, in KiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := highWater.FindSubmatch(status)
	if found == nil {
		t.Fatalf("no peak memory of process %d", pid)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
