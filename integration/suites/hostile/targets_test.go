package hostile

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// withHosts makes Linux namespaces in which a file takes the place of /etc/hosts.
func withHosts(t *testing.T, hosts string) *process.Namespaces {
	t.Helper()
	process.NeedRoot(t, "another /etc/hosts")
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && echo ready && exec sleep 600`, hosts)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("mounting: %q, %v", line, err)
	}
	n, err := process.OpenNamespaces(cmd.Process.Pid, "mnt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// Section 15, denied_targets: a name that led to an allowed address leads, from
// the next connection on, to no denied one, and again to the allowed one.
func TestNameThatChanges(t *testing.T) {
	t.Parallel()
	hosts := filepath.Join(t.TempDir(), "hosts")
	name := func(address string) {
		t.Helper()
		if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+address+" changing.example.test\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	name("127.0.0.1")
	namespaces := withHosts(t, hosts)
	up := rawserver.Start(t, rawserver.Options{})
	_, port, _ := strings.Cut(up.Host, ":")
	c := proxy.Cluster(ns, "changing", "https://changing.example.test:"+port, up.ServerCA)
	c.Spec.TLSServerName = "127.0.0.1"
	c.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	px := proxy.Start(t, proxy.Options{
		Manifests: map[string]string{"c.yaml": proxy.Manifests(c)}, Namespaces: namespaces, Settings: "denied_targets 127.0.0.3 link-local",
	})
	answers := func(code int, message string) {
		t.Helper()
		client := px.Client("h2")
		defer client.CloseIdleConnections()
		var r *kube.Review
		// Go reads /etc/hosts again after five seconds.
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if r = kube.MustWhoAmI(t, client, px.ClusterURL(ns, "changing"), kube.Bearer("x")); r.Code == code && r.Status.Message == message {
				return
			}
		}
		t.Fatalf("%d %q, want %d %q", r.Code, r.Status.Message, code, message)
	}
	answers(http.StatusUnauthorized, "Unauthorized") // the server's own answer
	for _, address := range []string{"127.0.0.3", "::ffff:127.0.0.3", "169.254.169.254", "64:ff9b::169.254.169.254"} {
		name(address)
		up.Suspend() // so that the next request connects anew
		answers(http.StatusBadGateway, "the cluster's apiserver is at an address to which this proxy does not connect (denied_targets)")
		if err := up.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	name("127.0.0.1")
	answers(http.StatusUnauthorized, "Unauthorized")
}
