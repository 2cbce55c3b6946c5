package hostile

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// silent accepts connections and says nothing.
func silent(t *testing.T, hello string) (host string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if hello != "" {
				_, _ = c.Write([]byte(hello))
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	return l.Addr().String()
}

// trouble is a fixture with a cluster for each way in which a request fails
// that no client is to blame for, and for those it is.
func trouble(t *testing.T) *proxy.Proxy {
	t.Helper()
	jwt := shared.authenticator()
	clusters := map[string]string{}
	add := func(name, url string, ca *pki.CA, change func(*v1.ProxyKubeApiSpec)) {
		object := proxy.Cluster(ns, name, url, ca)
		object.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{jwt}}
		if change != nil {
			change(&object.Spec)
		}
		clusters[name+".yaml"] = proxy.Manifests(object)
	}
	up := rawserver.Start(t, rawserver.Options{NoIdentity: true})
	down := rawserver.Start(t, rawserver.Options{})
	closed := down.URL
	down.Stop()
	add("down", closed, up.ServerCA, nil)
	add("timeout", "https://"+silent(t, ""), up.ServerCA, nil)
	add("plain", "https://"+silent(t, "HTTP/1.0 400 Bad Request\r\n\r\n"), up.ServerCA, nil)
	add("other-ca", up.URL, pki.MustCA("another"), nil)
	add("other-name", up.URL, up.ServerCA, func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = "other.example.test" })
	add("no-name", "https://no-such-host.invalid:6443", up.ServerCA, nil)
	rejecting := rawserver.Start(t, rawserver.Options{Handler: rawserver.Unauthorized})
	clusters["rejecting.yaml"] = frontProxy("rejecting", rejecting.URL, rejecting, jwt)
	distrusting := rawserver.Start(t, rawserver.Options{})
	clusters["distrusting.yaml"] = frontProxyWith("distrusting", distrusting, pki.Must(pki.MustCA("another").Client(rawserver.FrontProxyName)), jwt, nil)
	clusters["fp-down.yaml"] = frontProxy("fp-down", closed, up, jwt)
	px := startProxy(t, proxy.Options{}, nil)
	for file, manifest := range clusters {
		if err := px.WriteManifest(file, manifest); err != nil {
			t.Fatal(err)
		}
	}
	for file := range clusters {
		px.MustCluster(t, ns, strings.TrimSuffix(file, ".yaml"), func(s *proxy.ClusterStatus) bool { return s.Ready() != "" })
	}
	return px
}

// failures are what each of them is answered with (section 13).
func failures() []struct {
	name    string
	c       call
	code    int
	message string
} {
	valid := token(nil)
	return []struct {
		name    string
		c       call
		code    int
		message string
	}{
		{"no token", call{cluster: fpH2, path: "/api"}, 401, "no bearer token was sent"},
		{"bad token", call{cluster: fpH2, path: "/api"}.bearer("bad"), 401, "the token is opaque, and this cluster accepts signed ones only"},
		{"expired token", call{cluster: fpH2, path: "/api"}.bearer(token(map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})), 401, "the token has expired"},
		{"refused identity", call{cluster: fpH2, path: "/api"}.bearer(token(map[string]any{"groups": "a\x01"})), 403, "has a value it cannot forward"},
		{"unknown cluster", call{cluster: "none", path: "/api"}.bearer(valid), 404, "no such cluster"},
		{"UP down", call{cluster: "down", path: "/api"}.bearer(valid), 502, "cannot be reached"},
		{"UP timeout", call{cluster: "timeout", path: "/api"}.bearer(valid), 502, "did not answer in time"},
		{"UP is no TLS server", call{cluster: "plain", path: "/api"}.bearer(valid), 502, "TLS handshake"},
		{"UP of another CA", call{cluster: "other-ca", path: "/api"}.bearer(valid), 502, "cannot be verified"},
		{"UP of another name", call{cluster: "other-name", path: "/api"}.bearer(valid), 502, "cannot be verified"},
		{"UP without address", call{cluster: "no-name", path: "/api"}.bearer(valid), 502, "cannot be resolved"},
		{"UP answers 401", call{cluster: "rejecting", path: "/api"}.bearer(valid), 502, distrust},
		{"UP distrusts the certificate", call{cluster: "distrusting", path: "/api"}.bearer(valid), 503, "this cluster is not ready for upstream mode FrontProxy: FrontProxyNotTrusted"},
		{"UP down, FrontProxy", call{cluster: "fp-down", path: "/api"}.bearer(valid), 503, "this cluster is not ready for upstream mode FrontProxy: UpstreamTrustUnknown"},
	}
}

// OBS-03, ANS-1, section 13: every error is a Status with its code, whatever
// the client accepts and however it asks.
func TestOBS03Errors(t *testing.T) {
	px := trouble(t)
	for _, tc := range failures() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // some of them are time-outs
			for _, accept := range []string{"", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "text/html", "application/cbor", "*/*"} {
				c := tc.c
				if accept != "" {
					c = c.with("Accept: " + accept)
				}
				if tc.name == "UP timeout" && accept != "application/vnd.kubernetes.protobuf" {
					continue // ten seconds each
				}
				var wg sync.WaitGroup
				for _, send := range []func() rawclient.Answer{
					func() rawclient.Answer { return do(t, px, h1, c) },
					func() rawclient.Answer { return do(t, px, h2, c) },
					func() rawclient.Answer { return upgradeTo(t, px, c, "SPDY/3.1") },
					func() rawclient.Answer { return upgradeTo(t, px, c, "websocket") },
				} {
					wg.Go(func() { wantStatus(t, send(), tc.code, tc.message) })
				}
				wg.Wait()
			}
		})
	}
}

// OBS-03: kubectl shows the message, where it hides the Status too, and never
// stumbles over it.
func TestOBS03Kubectl(t *testing.T) {
	px := trouble(t)
	for _, tc := range failures() {
		switch tc.name {
		case "UP timeout", "UP of another name", "UP without address", "expired token":
			continue // the same to kubectl as one of the others
		}
		t.Run(tc.name, func(t *testing.T) {
			credential := ""
			for _, line := range tc.c.lines {
				credential = strings.TrimPrefix(line, "Authorization: Bearer ")
			}
			k := px.Kubectl(t, ns, tc.c.cluster, credential)
			if credential == "" {
				// Without any credential kubectl asks for a password first.
				pair := pki.Must(pki.MustCA("nobody").Client("nobody"))
				access := kube.Access{Server: px.ClusterURL(ns, tc.c.cluster), CA: px.CA.PEM, ClientCert: pair.CertPEM, ClientKey: pair.KeyPEM}
				if err := kube.WriteKubeconfig(k.Kubeconfig, access); err != nil {
					t.Fatal(err)
				}
			}
			r := k.MustEnd(t, "get", "pods", "--request-timeout=20s")
			output := r.Stdout + r.Stderr
			if r.ExitCode == 0 || !strings.Contains(output, tc.message) {
				t.Errorf("exit code %d, no %q in:\n%s", r.ExitCode, tc.message, output)
			}
			for _, stumble := range []string{"decode", "unmarshal", "unable to parse", "invalid character", "the server was unable to return a response", "unknown (get"} {
				if strings.Contains(output, stumble) {
					t.Errorf("kubectl stumbles (%q):\n%s", stumble, output)
				}
			}
		})
	}
	t.Run("exec", func(t *testing.T) {
		k := px.Kubectl(t, ns, "rejecting", token(nil))
		r := k.MustEnd(t, "exec", "x", "--request-timeout=20s", "--", "true")
		if r.ExitCode == 0 || !strings.Contains(r.Stdout+r.Stderr, distrust) {
			t.Errorf("exit code %d:\n%s%s", r.ExitCode, r.Stdout, r.Stderr)
		}
	})
}

// Section 13: an identity provider that cannot be asked is a 503, never a 401.
func TestOBS03ProviderDown(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{Users: users()})
	up := rawserver.Start(t, rawserver.Options{})
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": frontProxy("a", up.URL, up, proxy.Authenticator(idp))}})
	px.MustServe(t, ns, "a")
	bearer := idp.Token(oidc.Alice, nil)
	idp.Suspend()
	bothProtocols(t, func(t *testing.T, protocol string) {
		w := way{px: px, protocol: protocol, cluster: "a", up: up}
		w.refused(t, call{path: "/api"}.bearer(bearer), http.StatusServiceUnavailable, "the identity provider cannot be asked")
		// What needs no provider to be refused still is.
		w.refused(t, call{path: "/api"}.bearer("bad"), http.StatusUnauthorized, "")
		w.refused(t, call{path: "/api"}, http.StatusUnauthorized, "")
	})
	wantStatus(t, upgradeTo(t, px, call{cluster: "a", path: "/api"}.bearer(bearer), "websocket"), http.StatusServiceUnavailable, "the identity provider cannot be asked")
	if err := idp.Resume(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for do(t, px, h1, call{cluster: "a", path: "/api"}.bearer(bearer)).Code != http.StatusOK {
		if time.Now().After(deadline) {
			t.Fatal("the cluster does not recover")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// SIG-1, SIG-2: each answer is counted once under its cluster and code, and
// has one audit line.
func TestAuditAndCounters(t *testing.T) {
	px := shared.px
	for name, tc := range refusals() {
		bothProtocols(t, func(t *testing.T, protocol string) {
			c := tc.c
			c.cluster = fpH2
			c.path = fmt.Sprintf("/api/%x-%s", name, protocol)
			cluster := fpH2
			switch name {
			case "unknown cluster":
				c.target, cluster = "/clusters/team-a/none"+c.path, ""
			case "dot segment":
				c.path += "/..%2F"
			}
			namespace := map[bool]string{true: ns}[cluster != ""]
			series := fmt.Sprintf("proxyauth_requests_total{cluster=%q,code=\"%d\",namespace=%q}", cluster, tc.code, namespace)
			before := px.MustCounter(t, series)
			do(t, px, protocol, c.with("User-Agent: x"))
			if got := px.MustCounter(t, series) - before; got != 1 {
				t.Errorf("%s: %s grew by %d", name, series, got)
			}
			e := audited(t, px, c.path)
			if e["response_status"] != float64(tc.code) || e.Text("verb") != "GET" || e.Text("source_ip") != "127.0.0.1" || e.Text("reason") == "" || e.Text("message") == "" {
				t.Errorf("%s: %v", name, e)
			}
		})
	}
}
