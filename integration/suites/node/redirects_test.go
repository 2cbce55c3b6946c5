package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// startProgram starts a program on the node that redirects to where `to` says, and
// tells what it was asked for otherwise, and returns its address.
func startProgram(t *testing.T, n *node.Node) string {
	t.Helper()
	var l net.Listener
	err := n.Namespaces.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(node.Address, "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if to := r.URL.Query().Get("to"); to != "" {
			w.Header()["Location"] = []string{to}
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	})}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// testRedirects follows redirects of programs behind the proxy subresource, which
// the apiserver rewrites or leaves as they are (RELAY-4).
func testRedirects(t *testing.T, n *node.Node, px *proxy.Proxy, front, pass string) {
	address := startProgram(t, n)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	// The apiserver passes requests on to addresses of pods alone, as the program's is
	// with a pod on the network of the node.
	n.MustApply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: program}
spec:
  ports: [{port: 80, targetPort: %[2]s}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: program, labels: {kubernetes.io/service-name: program}}
addressType: IPv4
ports: [{name: "", port: %[2]s, protocol: TCP}]
endpoints: [{addresses: [%[1]s], targetRef: {kind: Pod, name: program, namespace: default}}]
---
apiVersion: v1
kind: Pod
metadata: {name: program}
spec:
  terminationGracePeriodSeconds: 1
  hostNetwork: true
  containers: [{name: main, image: "busybox:test", imagePullPolicy: Never, command: [sleep, "1000000"]}]
`, host, port))
	n.Kubectl(t).MustRun(t, "wait", "--for=condition=Ready", "pod/program", "--timeout=60s")
	n.Kubectl(t).MustRun(t, "exec", streamtest.Pod, "--", "sh", "-c", "mkdir -p /tmp/www/dir && echo -n landed >/tmp/www/dir/index.html")

	const service = "/api/v1/namespaces/default/services/program/proxy"
	pod := "/api/v1/namespaces/default/pods/program:" + port + "/proxy"
	for name, way := range map[string]struct{ url, bearer string }{
		"path form":   {px.ClusterURL(tenant, "front"), front},
		"host form":   {"https://127.0.0.1:" + px.Value("port2"), front},
		"Passthrough": {px.ClusterURL(tenant, "pass"), pass},
	} {
		t.Run(name, func(t *testing.T) {
			client := px.Client("h2")
			client.CheckRedirect = nil
			t.Cleanup(client.CloseIdleConnections)
			ask := func(method, path, body string, header ...string) (int, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, way.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = kube.Bearer(way.bearer)
				for i := 0; i < len(header); i += 2 {
					req.Header.Set(header[i], header[i+1])
				}
				res, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				return res.StatusCode, string(text)
			}
			code, text := ask("GET", service+"/", "")
			for deadline := time.Now().Add(30 * time.Second); code != http.StatusOK; code, text = ask("GET", service+"/", "") {
				if time.Now().After(deadline) {
					t.Fatalf("the program is not reached: %d %s", code, text)
				}
				time.Sleep(50 * time.Millisecond)
			}
			for _, tc := range []struct{ path, want string }{
				{"", "GET / "}, // the apiserver adds the slash
				{"/a/b?to=/landed%3Fx=1", "GET /landed?x=1 "},
				{"/a/b?to=landed", "GET /a/landed "},
				{"/a/b?to=http://" + address + "/landed", "GET /landed "},
				{"/a/b?to=/clusters/" + tenant + "/pass/api", "GET /clusters/" + tenant + "/pass/api "},
				{"/a/b?to=https://attacker.test/x", ""},
				{"/a/b?to=//attacker.test/x", ""},
				{"/a/b?to=../landed", ""},
				{"/a/b?to=..", ""},
			} {
				code, text := ask("GET", service+tc.path, "")
				if tc.want == "" {
					if code != http.StatusBadGateway || !strings.Contains(text, "redirects to another place") {
						t.Errorf("%s: %d %s", tc.path, code, text)
					}
				} else if code != http.StatusOK || text != tc.want {
					t.Errorf("%s: %d %q, want %q", tc.path, code, text, tc.want)
				}
			}
			if code, text := ask("GET", pod+"/a/b?to=/landed", ""); code != http.StatusOK || text != "GET /landed " {
				t.Errorf("a pod: %d %q", code, text)
			}
			if code, text := ask("POST", service+"/a/b?to=/landed", "body"); code != http.StatusOK || text != "POST /landed body" {
				t.Errorf("a POST: %d %q", code, text)
			}
			if code, text := ask("GET", "/api/v1/namespaces/default/pods/"+streamtest.Pod+":8080/proxy/dir", ""); code != http.StatusOK || text != "landed" {
				t.Errorf("a folder of a pod: %d %q", code, text)
			}
			testRedirectedUpgrades(t, px, way.url+service, way.bearer)
		})
	}
}

// testRedirectedUpgrades asks a program for an upgrade, which it redirects: the
// apiserver refuses such an answer itself.
func testRedirectedUpgrades(t *testing.T, px *proxy.Proxy, url, bearer string) {
	client := px.Client("h1")
	defer client.CloseIdleConnections()
	for _, to := range []string{"/landed", "https://attacker.test/x"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/a/b?to="+to, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = kube.Bearer(bearer)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusInternalServerError || res.Header.Get("Location") != "" {
			t.Errorf("an upgrade redirected to %s: %s, Location %q", to, res.Status, res.Header.Get("Location"))
		}
	}
}
