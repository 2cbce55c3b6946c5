//go:build long

package node

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// quiet is a ConfigMap that is watched, and a pod that writes nothing on its own,
// echoes the lines of its standard input and whatever comes to port 9000.
const quiet = `
apiVersion: v1
kind: ConfigMap
metadata: {name: quiet}
data: {event: first}
---
apiVersion: v1
kind: Pod
metadata: {name: quiet}
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
      nc -ll -p 9000 -e cat &
      echo started
      while read -r line; do echo "got $line"; done
`

// silence is longer than any timeout that proxies have by default.
const silence = 6 * time.Minute

// silent is a stream on which nothing happens before its event.
type silent struct {
	name string
	// event makes something happen, and wants to see it.
	event func(t *testing.T)
}

// TestLongSTR06 keeps streams of each kind silent for six minutes, after which one
// event arrives on each. Meanwhile slow clients are cut (STR-06, RELAY-3).
func TestLongSTR06(t *testing.T) {
	t.Parallel()
	b := startBusy(t)
	b.node.MustApply(t, quiet)
	admin := b.node.Kubectl(t)
	admin.MustRun(t, "wait", "--for=condition=Ready", "pod/quiet", "--timeout=90s")
	var streams []silent
	for _, c := range b.clients(t) {
		streams = append(streams, silentStreams(t, admin, c)...)
		if c.protocol == "h1" {
			streams = append(streams, silentWebSocket(t, b, c))
		}
	}
	start := time.Now()
	t.Run("slow clients", func(t *testing.T) { testSlowClients(t, b) })
	time.Sleep(silence - time.Since(start)) // which is what is tested
	for _, s := range streams {
		t.Run(s.name, s.event)
	}
}

// silentStreams opens one stream of each kind.
func silentStreams(t *testing.T, admin kube.Kubectl, c client) []silent {
	t.Helper()
	line := "event for " + c.name
	watch := c.MustStart(t, "get", "configmap", "quiet", "--watch", `--output=jsonpath={.data.event}{"\n"}`)
	watch.MustLine(t, "first")
	logs := c.MustStart(t, "logs", "--follow", "quiet")
	logs.MustLine(t, "started")
	streams := []silent{
		{c.name + ", watch", func(t *testing.T) {
			admin.MustRun(t, "patch", "configmap", "quiet", fmt.Sprintf(`--patch={"data":{"event":%q}}`, line))
			watch.MustLine(t, line)
		}},
	}
	for _, p := range streamtest.Protocols {
		k := p.With(c.Kubectl)
		exec, attach, forwarded := k.MustStart(t, "exec", "-i", "quiet", "--", "cat"), k.MustStart(t, "attach", "-i", "quiet"), mustForward(t, k)
		line := line + " over " + p.Name
		streams = append(streams,
			silent{c.name + ", " + p.Name + ", exec", func(t *testing.T) {
				mustWrite(t, exec.Stdin, line)
				exec.MustLine(t, line)
			}},
			silent{c.name + ", " + p.Name + ", attach and logs", func(t *testing.T) {
				mustWrite(t, attach.Stdin, line)
				attach.MustLine(t, "got "+line)
				logs.MustLine(t, "got "+line)
			}},
			silent{c.name + ", " + p.Name + ", port-forward", func(t *testing.T) {
				mustWrite(t, forwarded, line)
				mustRead(t, forwarded, line)
			}},
		)
	}
	return streams
}

// silentWebSocket opens an exec without kubectl, which sends a ping every five
// seconds: here not a byte moves.
func silentWebSocket(t *testing.T, b *busy, c client) silent {
	t.Helper()
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	var ws *rawclient.WebSocket
	err = b.node.Namespaces.Do(func() (err error) {
		target := u.Path + "/api/v1/namespaces/default/pods/quiet/exec?command=cat&stdin=true&stdout=true"
		ws, err = rawclient.DialWebSocket(t.Context(), u.Host, b.px.CA.Pool(), target, "v5.channel.k8s.io", "Authorization: Bearer "+b.idp.Token(oidc.Alice, nil))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	return silent{c.name + ", exec without pings", func(t *testing.T) {
		const stdin, stdout = "\x00", "\x01"
		if err := ws.Send(rawclient.Binary, []byte(stdin+"event\n")); err != nil {
			t.Fatal(err)
		}
		for {
			_, payload, err := ws.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if string(payload) == stdout+"event\n" {
				return
			}
		}
	}}
}

// mustForward opens a connection to the port of the pod.
func mustForward(t *testing.T, k kube.Kubectl) net.Conn {
	t.Helper()
	conn, err := k.Namespaces.DialContext(t.Context(), "tcp", k.MustForward(t, "pod/quiet", 9000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	mustWrite(t, conn, "hello")
	mustRead(t, conn, "hello")
	return conn
}

func mustWrite(t *testing.T, w io.Writer, line string) {
	t.Helper()
	if _, err := io.WriteString(w, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := bufio.NewReader(conn).ReadString('\n'); err != nil || got != line+"\n" {
		t.Fatalf("%q, %v", got, err)
	}
}
