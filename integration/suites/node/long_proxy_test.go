//go:build long

package node

import (
	"bufio"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
)

var serving = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// testKubectlProxy runs `kubectl proxy` in front of the proxy, and behind it a
// plain client, a watch and kubectl exec. --append-server-path makes it keep the
// path of the cluster; in the host form there is none to keep.
func testKubectlProxy(t *testing.T, c client) {
	r := c.MustStart(t, "proxy", "--port=0", "--append-server-path", "--reject-paths=^$")
	url := "http://" + serving.FindString(r.MustLine(t, "Starting to serve on 127.0.0.1:"))
	plain := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: c.Namespaces.DialContext}}
	defer plain.CloseIdleConnections()
	const pods = "/api/v1/namespaces/default/pods"
	resp, err := plain.Get(url + pods + "?watch=true&fieldSelector=metadata.name%3D" + streamtest.Pod)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	event, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(event, `"name":"`+streamtest.Pod+`"`) {
		t.Errorf("a watch: %s, %v, %.300s", resp.Status, err, event)
	}
	for _, p := range streamtest.Protocols {
		k := p.With(c.Kubectl)
		k.Kubeconfig = writeKubeconfig(t, kube.Access{Server: url})
		if got := k.MustRun(t, "get", "pod", streamtest.Pod, "--output=name").Stdout; got != "pod/"+streamtest.Pod+"\n" {
			t.Errorf("get: %q", got)
		}
		k.Stdin = []byte("through two proxies\n")
		if got := k.MustRun(t, "exec", "-i", streamtest.Pod, "--", "cat").Stdout; got != string(k.Stdin) {
			t.Errorf("exec over %s: %q", p.Name, got)
		}
	}
}
