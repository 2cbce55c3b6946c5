package node

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Start is New for a test, with which the node ends.
func Start(tb testing.TB, o Options) *Node {
	tb.Helper()
	process.NeedRoot(tb, "a node with real pods")
	n, err := New(tb.Context(), tb.TempDir(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("node ready in %s", n.StartTime.Round(100*time.Millisecond))
	tb.Cleanup(func() {
		if tb.Failed() {
			n.logState(tb)
		}
		if err := n.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// logState tells what may explain a failed test.
func (n *Node) logState(tb testing.TB) {
	tb.Log(n.lastLines())
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	k := kube.Kubectl{Kubeconfig: n.API.Kubeconfig, Home: n.path("kubectl"), Namespaces: n.Namespaces}
	for _, args := range [][]string{
		{"get", "pods", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"},
	} {
		r, err := k.Run(ctx, args...)
		tb.Logf("kubectl %q: %v\n%s%s", args, err, r.Stdout, r.Stderr)
	}
}

// Kubectl is the administrator's kubectl on the node.
func (n *Node) Kubectl(tb testing.TB) kube.Kubectl { return n.API.Kubectl(tb, "") }

// LoadImage is AddImage for a test.
func (n *Node) LoadImage(tb testing.TB, image Image) {
	tb.Helper()
	if err := n.AddImage(tb.Context(), image); err != nil {
		tb.Fatal(err)
	}
}

// LoadProxy builds the product and gives its image to the node.
func (n *Node) LoadProxy(tb testing.TB, name string) {
	tb.Helper()
	image, err := ProxyImage(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	n.LoadImage(tb, image)
}

// MustApply applies manifests.
func (n *Node) MustApply(tb testing.TB, manifests string) {
	tb.Helper()
	k := n.Kubectl(tb)
	k.Stdin = []byte(manifests)
	k.MustRun(tb, "apply", "-f", "-")
}

// AuditEvents is every event of the apiserver's audit log so far.
func (n *Node) AuditEvents(tb testing.TB) []auditv1.Event {
	tb.Helper()
	events, err := n.API.AuditEvents()
	if err != nil {
		tb.Fatal(err)
	}
	return events
}

// Helm runs helm as the administrator to its end.
func (n *Node) Helm(tb testing.TB, args ...string) kube.Result {
	tb.Helper()
	home := filepath.Join(tb.TempDir(), "home")
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, realtools.Need(tb, realtools.Helm), args...)
	cmd.Env = append(process.ThriftyCommand(), "PATH="+os.Getenv("PATH"), "HOME="+home, "KUBECONFIG="+n.API.Kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := n.Run(cmd); err != nil && cmd.ProcessState == nil {
		tb.Fatalf("running helm %q: %v", args, err)
	}
	return kube.Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}
}
