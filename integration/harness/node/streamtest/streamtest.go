package streamtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Pod is the one the commands run on, in the namespace default. It echoes the
// lines of its standard input and serves its own name by HTTP. TerminalPod runs a
// shell on a terminal.
const (
	Pod         = "streams"
	TerminalPod = "terminal"
)

const (
	httpPort = 8080
	manifest = `
apiVersion: v1
kind: Pod
metadata: {name: streams}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox:test
    imagePullPolicy: Never
    stdin: true
    command:
    - sh
    - -c
    - |
      mkdir /tmp/www && hostname >/tmp/www/name && httpd -p 8080 -h /tmp/www
      echo started
      while read -r line; do echo "got $line"; done
`
	terminalManifest = `
apiVersion: v1
kind: Pod
metadata: {name: terminal}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "busybox:test", imagePullPolicy: Never, stdin: true, tty: true, command: [sh]}
`
)

// A Protocol is what kubectl speaks for exec, attach, cp and port-forward.
type Protocol struct {
	Name string
	// Env are kubectl's own switches.
	Env []string
	// verb is what the apiserver calls the request: a WebSocket opens with a
	// GET, SPDY with a POST.
	verb string
}

// Protocols are all.
var Protocols = []Protocol{
	{"WebSocket", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"}, "get"},
	{"SPDY", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}, "create"},
}

// With is kubectl speaking that protocol.
func (p Protocol) With(k kube.Kubectl) kube.Kubectl {
	k.Env = append(k.Env[:len(k.Env):len(k.Env)], p.Env...)
	return k
}

// Apply starts the pod of the tests.
func Apply(t *testing.T, n *node.Node) {
	t.Helper()
	n.MustApply(t, manifest)
	n.Kubectl(t).MustRun(t, "wait", "--for=condition=Ready", "pod/"+Pod, "--timeout=90s")
}

// ApplyTerminal starts the pod of AttachTerminal.
func ApplyTerminal(t *testing.T, n *node.Node) {
	t.Helper()
	n.MustApply(t, terminalManifest)
	n.Kubectl(t).MustRun(t, "wait", "--for=condition=Ready", "pod/"+TerminalPod, "--timeout=90s")
}

// Run runs all commands as user, who is k's user to the apiserver. Apply comes
// first.
func Run(t *testing.T, n *node.Node, k kube.Kubectl, user string) {
	for _, p := range Protocols {
		t.Run(p.Name, func(t *testing.T) {
			k := p.With(k)
			audit := func(t *testing.T, subresource string) {
				verb := p.verb
				if subresource == "portforward" && k.Tool == realtools.Kubectl129 {
					verb = "create" // it forwards ports over SPDY alone
				}
				n.API.MustAudit(t, func(e *auditv1.Event) bool {
					return e.ObjectRef != nil && e.ObjectRef.Subresource == subresource && e.Verb == verb &&
						e.User.Username == user && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusSwitchingProtocols
				})
			}
			t.Run("exec", func(t *testing.T) { testExec(t, k); audit(t, "exec") })
			t.Run("attach", func(t *testing.T) { testAttach(t, k); audit(t, "attach") })
			t.Run("cp", func(t *testing.T) { testCopy(t, k) })
			t.Run("port-forward", func(t *testing.T) { testForward(t, k); audit(t, "portforward") })
		})
	}
	t.Run("logs -f", func(t *testing.T) { testLogs(t, k) })
	t.Run("watch", func(t *testing.T) { testWatch(t, n, k) })
}

func testExec(t *testing.T, k kube.Kubectl) {
	k.Stdin = bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	r := k.MustRun(t, "exec", "-i", Pod, "--", "cat")
	if r.Stdout != string(k.Stdin) {
		t.Errorf("%d bytes came back of %d", len(r.Stdout), len(k.Stdin))
	}
	k.Stdin = nil
	r = k.MustEnd(t, "exec", Pod, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if r.ExitCode != 7 || r.Stdout != "out\n" || !strings.Contains(r.Stderr, "err\n") {
		t.Errorf("got %+v, want exit code 7 and both outputs apart", r)
	}
}

func testAttach(t *testing.T, k kube.Kubectl) {
	r := k.MustStart(t, "attach", "-i", Pod)
	if _, err := fmt.Fprintln(r.Stdin, t.Name()); err != nil {
		t.Fatal(err)
	}
	r.MustLine(t, "got "+t.Name())
}

func testCopy(t *testing.T, k kube.Kubectl) {
	content := bytes.Repeat([]byte(t.Name()+"\n"), 20_000)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	k.MustRun(t, "cp", file, Pod+":/tmp/file")
	k.MustRun(t, "cp", Pod+":/tmp/file", file+".back")
	back, err := os.ReadFile(file + ".back")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(back, content) {
		t.Errorf("%d bytes came back of %d", len(back), len(content))
	}
}

func testForward(t *testing.T, k kube.Kubectl) {
	address := k.MustForward(t, "pod/"+Pod, httpPort)
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: k.Namespaces.DialContext}}
	defer client.CloseIdleConnections()
	if body, err := fetch(client, "http://"+address+"/name"); err != nil || string(body) != Pod+"\n" {
		t.Errorf("got %q, %v", body, err)
	}
}

// fetch reads one answer whole.
func fetch(client *http.Client, url string) ([]byte, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("reading %s: %s", url, resp.Status)
	}
	return body, err
}

func testLogs(t *testing.T, k kube.Kubectl) {
	r := k.MustStart(t, "logs", "-f", Pod)
	r.MustLine(t, "started")
	// What is written once the logs are followed.
	k.MustRun(t, "exec", Pod, "--", "sh", "-c", "echo later "+t.Name()+" >/proc/1/fd/1")
	r.MustLine(t, "later "+t.Name())
}

func testWatch(t *testing.T, n *node.Node, k kube.Kubectl) {
	r := k.MustStart(t, "get", "pod", Pod, "--watch", "--output=jsonpath={.metadata.name} {.metadata.annotations.mark}{\"\\n\"}")
	r.MustLine(t, Pod)
	mark := strings.ReplaceAll(t.Name(), "/", "-")
	n.Kubectl(t).MustRun(t, "annotate", "--overwrite", "pod", Pod, "mark="+mark)
	r.MustLine(t, mark)
}
