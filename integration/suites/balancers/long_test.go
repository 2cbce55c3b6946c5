//go:build long

package balancers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// quiet is longer than the minute after which many balancers end a connection unless
// they are told otherwise.
const quiet = 70 * time.Second

// RELAY-6: 100 MiB through each balancer, of which the proxy keeps nothing.
func TestLongBalancersUpload(t *testing.T) {
	s := newSet(t)
	before := peakMemory(t, s.px.PID())
	for _, k := range kinds {
		address := k.start(t, s.px, nil, nil)
		for _, protocol := range k.protocols {
			t.Run(k.file+" "+strings.ReplaceAll(protocol, "/", "_"), func(t *testing.T) { testUpload(t, s, address, protocol, 100) })
		}
	}
	if grown := peakMemory(t, s.px.PID()) - before; grown > 64<<10 {
		t.Errorf("the proxy's memory grew by %d KiB", grown)
	}
}

// RELAY-2, STR-06: whatever kubectl streams passes each balancer, 100 MiB of standard
// input too, and watches and logs that are quiet for longer than a minute stay.
func TestLongBalancersKubectl(t *testing.T) {
	install(t)
	n := node.Start(t, node.Options{})
	px, token := nodeProxy(t, n)
	streamtest.Apply(t, n)
	admin := n.Kubectl(t)
	admin.MustRun(t, "create", "rolebinding", "streams", "--clusterrole=edit", "--user="+prefix+oidc.Alice)

	addresses := make([]string, len(kinds))
	for i, k := range kinds {
		addresses[i] = k.start(t, px, n.Namespaces, nil)
		kubectl := kubectlAt(t, n, px, addresses[i], token)
		t.Run(k.file, func(t *testing.T) {
			streamtest.Run(t, n, kubectl, prefix+oidc.Alice)
			for _, p := range streamtest.Protocols {
				t.Run("volume "+p.Name, func(t *testing.T) { streamtest.Upload(t, p.With(kubectl), 100<<20) })
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		var watches, logs []*kube.Running
		for _, address := range addresses {
			for _, env := range [][]string{nil, {"DISABLE_HTTP2=1"}} {
				kubectl := kubectlAt(t, n, px, address, token)
				kubectl.Env = append(kubectl.Env, env...)
				w := kubectl.MustStart(t, "get", "pod", streamtest.Pod, "--watch-only", "--output=jsonpath={.metadata.annotations.quiet}{\"\\n\"}")
				l := kubectl.MustStart(t, "logs", "-f", "--tail=1", streamtest.Pod)
				watches, logs = append(watches, w), append(logs, l)
			}
		}
		for _, l := range logs {
			l.MustLine(t, "") // what was there
		}
		time.Sleep(quiet)
		admin.MustRun(t, "annotate", "pod", streamtest.Pod, "quiet=over")
		admin.MustRun(t, "exec", streamtest.Pod, "--", "sh", "-c", "echo quiet is over >/proc/1/fd/1")
		for i := range watches {
			watches[i].MustLine(t, "over")
			logs[i].MustLine(t, "quiet is over")
		}
	})
}

// nodeProxy starts a proxy on a node, behind its own balancers, and a provider.
func nodeProxy(t *testing.T, n *node.Node) (*proxy.Proxy, string) {
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
	object := proxy.FrontProxyCluster(ns, cluster, n.API.URL, n.API.PKI.ServerCA, prefix, proxy.Authenticator(idp))
	px := proxy.Start(t, proxy.Options{
		Namespaces: n.Namespaces, Global: serversBlock(t), Hosts: []string{publicName},
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(object, proxy.FrontProxySecret(ns, cluster, n.API.URL, pki.Must(n.API.FrontProxy())))},
	})
	px.MustServe(t, ns, cluster)
	return px, idp.Token(oidc.Alice, nil)
}

// kubectlAt is a kubectl on the node that speaks to a balancer.
func kubectlAt(t *testing.T, n *node.Node, px *proxy.Proxy, address, token string) kube.Kubectl {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := kube.WriteKubeconfig(file, kube.Access{Server: "https://" + address + base, CA: px.CA.PEM, Token: token}); err != nil {
		t.Fatal(err)
	}
	return kube.Kubectl{Kubeconfig: file, Home: filepath.Join(dir, "home"), Namespaces: n.Namespaces}
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
