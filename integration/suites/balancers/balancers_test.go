package balancers

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

const (
	ns, cluster = "team-a", "prod"
	base        = "/clusters/" + ns + "/" + cluster
	prefix      = "t:"
	h1, h2      = "http/1.1", "h2"

	// client is the address of a user, forged what one claims to have, balancer that
	// of the balancers.
	client, forged, balancer = "127.0.0.5", "203.0.113.9", "127.0.0.1"
)

// set is a proxy with a server behind it.
type set struct {
	up     *rawserver.Server
	px     *proxy.Proxy
	bearer string
}

func newSet(t *testing.T) set {
	t.Helper()
	install(t)
	idp, err := oidc.New(oidc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(idp.Stop)
	up := rawserver.Start(t, rawserver.Options{})
	object := proxy.FrontProxyCluster(ns, cluster, up.URL, up.ServerCA, prefix, proxy.Authenticator(idp))
	px := proxy.Start(t, proxy.Options{
		Global: serversBlock(t), Hosts: []string{publicName},
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(object, proxy.FrontProxySecret(ns, cluster, up.URL, up.FrontProxy(1)))},
	})
	px.MustServe(t, ns, cluster)
	return set{up, px, idp.Token(oidc.Alice, nil)}
}

// Every configuration of docs/balancers does what docs/load-balancers.md says of it.
func TestBalancers(t *testing.T) {
	s := newSet(t)
	for _, k := range kinds {
		t.Run(k.file, func(t *testing.T) {
			address := k.start(t, s.px, nil, nil)
			for _, protocol := range k.protocols {
				t.Run(protocol, func(t *testing.T) {
					t.Run("requests", func(t *testing.T) { testRequests(t, s, address, protocol) })
					t.Run("HDR08", func(t *testing.T) { testAddress(t, s, k, address, protocol) })
					t.Run("watch", func(t *testing.T) { testWatch(t, s, address, protocol) })
					t.Run("upload", func(t *testing.T) { testUpload(t, s, address, protocol, 16) })
				})
			}
			t.Run("upgrades", func(t *testing.T) { testUpgrades(t, s, address) })
		})
	}
	t.Run("HDR08, who may speak the PROXY protocol", func(t *testing.T) { testForgedProxyProtocol(t, s) })
	t.Run("quiet streams", func(t *testing.T) {
		for _, k := range kinds {
			t.Run(k.file, func(t *testing.T) { testQuiet(t, s, k) })
		}
	})
	t.Run("health checks", func(t *testing.T) {
		for _, k := range kinds {
			if !k.nginx() {
				t.Run(k.file, func(t *testing.T) { testHealth(t, s, k) })
			}
		}
	})
}

// open sends a request from an address and returns the answer, which is read while
// the request is being written.
func (s set) open(t *testing.T, balancer, protocol, from string, r *http.Request) *http.Response {
	t.Helper()
	transport := &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		TLSClientConfig: clientTLS(s.px, protocol), ForceAttemptHTTP2: protocol == h2, DisableCompression: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	r.URL.Scheme, r.URL.Host, r.Host = "https", balancer, balancer
	if r.Header.Get("Authorization") == "" {
		r.Header.Set("Authorization", "Bearer "+s.bearer)
	}
	resp, err := transport.RoundTrip(r.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if want := map[string]int{h1: 1, h2: 2}[protocol]; resp.ProtoMajor != want {
		t.Fatalf("the answer came over %s", resp.Proto)
	}
	return resp
}

func get(target string) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "https://x"+target, nil)
	return r
}

// URL-3, LIM-02: targets come byte for byte, long headers come, and refusals are the
// proxy's own.
func testRequests(t *testing.T, s set, address, protocol string) {
	const target = "/api/v1/x%2Fy//z/?limit=1&x=%2e"
	s.up.Reset()
	r := get(base + target)
	r.URL.Opaque, r.URL.RawQuery = "//"+address+base+target, ""
	r.Header.Set("X-Long", strings.Repeat("x", 48<<10))
	if resp := s.open(t, address, protocol, client, r); resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	got := s.up.Only(t)
	if got.Target != target || len(got.Header.Get("X-Long")) != 48<<10 || got.Identity == nil || got.Identity.User != prefix+oidc.Alice {
		t.Errorf("target %q, identity %v", got.Target, got.Identity)
	}
	r = get(base + "/api")
	r.Header.Set("Authorization", "Bearer no.to.ken")
	resp := s.open(t, address, protocol, client, r)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), `"kind":"Status"`) || !strings.Contains(resp.Header.Get("Warning"), "proxyauth: ") {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
}

// HDR-08: the address in the audit line, and what the apiserver is told, is that of the
// connection that came to the balancer, whatever the client claims.
func testAddress(t *testing.T, s set, k kind, address, protocol string) {
	s.up.Reset()
	path := "/api/" + k.file + protocol
	r := get(base + path)
	r.Header["X-Forwarded-For"] = []string{forged, forged + ", " + balancer}
	r.Header.Set("X-Real-Ip", forged)
	r.Header.Set("Forwarded", "for="+forged)
	if resp := s.open(t, address, protocol, client, r); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s", resp.Status)
	}
	if got := s.px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("path") == path }).Text("source_ip"); got != client {
		t.Errorf("source_ip %q, want %q", got, client)
	}
	want := client
	if k.endsTLS {
		want = client + ", " + balancer
	}
	if got := s.up.Only(t); !slices.Equal(got.Lines("X-Forwarded-For"), []string{want}) || strings.Contains(got.Text(), forged) {
		t.Errorf("X-Forwarded-For %q, want %q, in\n%s", got.Lines("X-Forwarded-For"), want, got.Text())
	}
}

// STR-01: the header of a watch comes before any event, and each event before the next.
func testWatch(t *testing.T, s set, address, protocol string) {
	events := make(chan string)
	s.up.Handle(rawserver.Feed("application/json", events))
	defer s.up.Handle(nil)
	defer close(events)
	resp := s.open(t, address, protocol, client, get(base+"/api/v1/pods?watch=true"))
	for i := range 5 {
		event := fmt.Sprintf("event %d\n", i)
		select {
		case events <- event:
		case <-time.After(20 * time.Second):
			t.Fatal("the watch did not come to the apiserver")
		}
		got := make([]byte, len(event))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != event {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// RELAY-6: an upload of unknown length, of so many MiB, arrives whole, and its
// beginning before its end is written.
func testUpload(t *testing.T, s set, address, protocol string, parts int) {
	part := make([]byte, 1<<20)
	_, _ = rand.Read(part)
	began := make(chan struct{})
	s.up.Handle(func(w *rawserver.Writer, r *rawserver.Request) {
		h, first := sha256.New(), make([]byte, 64<<10)
		if _, err := io.ReadFull(r, first); err != nil {
			return
		}
		close(began)
		h.Write(first)
		n, _ := io.Copy(h, r)
		w.JSON(http.StatusOK, fmt.Sprintf("%d %x", n+int64(len(first)), h.Sum(nil)))
	})
	defer s.up.Handle(nil)
	body, writer := io.Pipe()
	want := sha256.New()
	go func() {
		for i := range parts {
			if i == parts/2 {
				select {
				case <-began:
				case <-time.After(20 * time.Second):
					writer.CloseWithError(fmt.Errorf("nothing of the first half came to the apiserver"))
					return
				}
			}
			want.Write(part)
			if _, err := writer.Write(part); err != nil {
				return
			}
		}
		writer.Close()
	}()
	r := get(base + "/api/v1/upload")
	r.Method, r.Body = http.MethodPost, body
	resp := s.open(t, address, protocol, client, r)
	got, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || string(got) != fmt.Sprintf(`"%d %x"`, parts<<20, want.Sum(nil)) {
		t.Errorf("%s %s", resp.Status, got)
	}
}

// RELAY-2: SPDY and WebSocket pass, both ways.
func testUpgrades(t *testing.T, s set, address string) {
	s.up.Handle(rawserver.Echo)
	defer s.up.Handle(nil)
	const exec = base + "/api/v1/namespaces/x/pods/y/exec?command=sh"
	authorization := "Authorization: Bearer " + s.bearer
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	conn := rawclient.MustDial(t, address, s.px.CA.Pool())
	if err := conn.Send(rawclient.Request("POST", exec, address, authorization, "Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")); err != nil {
		t.Fatal(err)
	}
	resp, err := conn.Head("POST")
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%v, %v", resp, err)
	}
	go func() { _ = conn.Send(data) }()
	back := make([]byte, len(data))
	_ = conn.SetReadDeadline(time.Now().Add(rawclient.Timeout))
	if _, err := io.ReadFull(conn.R, back); err != nil || !bytes.Equal(back, data) {
		t.Errorf("SPDY: %v", err)
	}
	ws := rawclient.MustDialWebSocket(t, address, s.px.CA.Pool(), exec, "v5.channel.k8s.io", authorization)
	if err := ws.Send(rawclient.Binary, data[:100<<10]); err != nil {
		t.Fatal(err)
	}
	if _, got, err := ws.Receive(); err != nil || !bytes.Equal(got, data[:100<<10]) || ws.Protocol != "v5.channel.k8s.io" {
		t.Errorf("WebSocket: %d bytes, %v, protocol %q", len(got), err, ws.Protocol)
	}
}

// HDR-08: a PROXY header of anyone but the balancers changes nothing.
func testForgedProxyProtocol(t *testing.T, s set) {
	const other = "127.0.0.9"
	for name, line := range map[string]string{
		"v1": "PROXY TCP4 " + forged + " 10.0.0.21 4711 443\r\n",
		"v2": "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xcb\x00\x71\x09\x0a\x00\x00\x15\x12\x67\x01\xbb",
	} {
		t.Run(name, func(t *testing.T) {
			tcp, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(other)}}).DialContext(t.Context(), "tcp", s.px.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer tcp.Close()
			if _, err := io.WriteString(tcp, line); err != nil {
				t.Fatal(err)
			}
			path := "/api/forged-" + name
			conn := tls.Client(tcp, clientTLS(s.px, h1))
			a := (&rawclient.Conn{Conn: conn, R: bufio.NewReader(conn)}).Do(t, rawclient.Request("GET", base+path, s.px.Host, "Authorization: Bearer "+s.bearer))
			if a.Code != http.StatusOK {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			if got := s.px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("path") == path }).Text("source_ip"); got != other {
				t.Errorf("source_ip %q, want %q", got, other)
			}
		})
	}
}

// STR-06: a quiet stream lives for the timeouts that the files set. With short ones
// in their place it ends, so these are the settings that matter.
func testQuiet(t *testing.T, s set, k kind) {
	t.Parallel()
	short := k.start(t, s.px, nil, map[string]string{" 1h": " 1s"})
	long := k.start(t, s.px, nil, nil)
	const exec = base + "/api/v1/namespaces/x/pods/y/exec"
	authorization := "Authorization: Bearer " + s.bearer
	open := func(address string) *rawclient.WebSocket {
		var ws *rawclient.WebSocket
		for deadline := time.Now().Add(rawclient.Timeout); ws == nil; {
			var err error
			if ws, err = rawclient.DialWebSocket(t.Context(), address, s.px.CA.Pool(), exec, "", authorization); err != nil && time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { ws.Close() })
		return ws
	}
	s.up.Handle(rawserver.Echo)
	quiet, ended := open(long), open(short)
	start := time.Now()
	_, _, err := ended.Receive()
	took := time.Since(start)
	if err == nil || took < 900*time.Millisecond || took > 15*time.Second {
		t.Errorf("with timeouts of 1 s a quiet exec ended after %s: %v", took, err)
	}
	time.Sleep(max(0, 3*time.Second-time.Since(start)))
	if err := quiet.Send(rawclient.Text, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := quiet.Receive(); err != nil || string(got) != "x" {
		t.Errorf("with the timeouts of the file: %q, %v", got, err)
	}
}

// A replica whose /readyz does not answer gets nothing more.
func testHealth(t *testing.T, s set, k kind) {
	t.Parallel()
	address := k.start(t, s.px, nil, map[string]string{"port 9180": "port 1"})
	for deadline := time.Now().Add(rawclient.Timeout); ; time.Sleep(100 * time.Millisecond) {
		conn, err := rawclient.Dial(t.Context(), address, "", s.px.CA.Pool())
		if err != nil {
			break // TLS is passed through, to no one
		}
		if err := conn.Send(rawclient.Request("GET", base+"/api", address, "Authorization: Bearer "+s.bearer)); err != nil {
			t.Fatal(err)
		}
		resp, err := conn.Head("GET")
		conn.Close()
		if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is still asked: %v, %v", resp, err)
		}
	}
}
