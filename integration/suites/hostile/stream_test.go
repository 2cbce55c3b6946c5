package hostile

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// body opens a streamed answer and returns its reader.
func body(t *testing.T, px *proxy.Proxy, protocol string, c call) (int, http.Header, io.Reader) {
	t.Helper()
	if protocol == h2 {
		s, err := rawclient.MustDialH2(t, px.Host, px.CA.Pool()).Open(c.h2(px), true)
		if err != nil {
			t.Fatal(err)
		}
		code, header, err := s.Head()
		if err != nil {
			t.Fatal(err)
		}
		return code, header, s
	}
	conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
	if err := conn.Send(c.h1(px)); err != nil {
		t.Fatal(err)
	}
	resp, err := conn.Head("GET")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(rawclient.Timeout))
	return resp.StatusCode, resp.Header, resp.Body
}

// STR-01, RELAY-3: the header comes before there is any event, and each event
// before there is another, whatever the content type. It is the order that
// proves it; the times are shown, and the best of each kind must be short.
func TestSTR01Flush(t *testing.T) {
	const prompt = 200 * time.Millisecond
	kinds := []struct{ name, path, contentType, length string }{
		{"JSON watch", "/api/v1/pods?watch=true", "application/json", ""},
		{"protobuf watch", "/api/v1/pods?watch=true", "application/vnd.kubernetes.protobuf;stream=watch", ""},
		{"followed log", "/api/v1/namespaces/x/pods/y/log?follow=true", "text/plain", ""},
		{"no content type", "/api/v1/pods?watch=1", "", ""},
		{"no watch", "/slow", "application/octet-stream", ""},
		{"a Content-Length", "/slow", "text/html", "yes"},
		{"a proxied service", "/api/v1/namespaces/x/services/y/proxy/", "text/css", ""},
		{"compressed", "/api/v1/pods?watch=true", "application/json; x=gzip", ""},
	}
	const events = 5
	everyWay(t, shared.px, func(t *testing.T, w way) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				feed := make(chan string)
				event := strings.Repeat("e", 59) + "\n"
				var fields []rawserver.Field
				if kind.contentType != "" {
					fields = append(fields, rawserver.Field{Name: "Content-Type", Value: kind.contentType})
				}
				if kind.length != "" {
					fields = append(fields, rawserver.Field{Name: "Content-Length", Value: fmt.Sprint(events * len(event))})
				}
				if kind.name == "compressed" {
					fields = append(fields, rawserver.Field{Name: "Content-Encoding", Value: "gzip"})
				}
				sentHead := make(chan time.Time, 1)
				w.up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
					sentHead <- time.Now()
					rw.Header(http.StatusOK, fields...)
					for e := range feed {
						if !rw.Write([]byte(e)) {
							return
						}
					}
				})
				defer w.up.Handle(nil)
				defer close(feed)
				// The upstream writes nothing but the header until this returns.
				code, header, stream := body(t, w.px, w.protocol, call{cluster: w.cluster, path: kind.path}.asAlice().with("Accept-Encoding: gzip"))
				headTook := time.Since(<-sentHead)
				if code != http.StatusOK || header.Get("Content-Type") != kind.contentType && kind.contentType != "" {
					t.Fatalf("%d %v", code, header)
				}
				took := []time.Duration{}
				got := make([]byte, len(event))
				for range events {
					start := time.Now()
					feed <- event
					// ... and no further event until this one is here.
					if _, err := io.ReadFull(stream, got); err != nil || string(got) != event {
						t.Fatalf("%q, %v", got, err)
					}
					took = append(took, time.Since(start))
				}
				if best := slices.Min(took); best > prompt {
					t.Errorf("no event took less than %s", best)
				}
				t.Logf("header %s, events %s to %s", headTook.Round(time.Microsecond), slices.Min(took).Round(time.Microsecond), slices.Max(took).Round(time.Microsecond))
			})
		}
	})
}

// STR-02, RELAY-1, RELAY-2: an upstream that offers h2 and http/1.1 gets
// upgrades over HTTP/1.1 and the rest over HTTP/2, and an upgraded connection
// carries a mebibyte each way.
func TestSTR02Upgrades(t *testing.T) {
	const size = 1 << 20
	data := make([]byte, size)
	_, _ = rand.Read(data)
	for _, cluster := range []string{fpH2, ptH2} {
		up := shared.ups[cluster]
		list := func(t *testing.T) {
			t.Helper()
			bothProtocols(t, func(t *testing.T, protocol string) {
				w := way{px: shared.px, protocol: protocol, cluster: cluster, up: up}
				if r := w.relayed(t, call{path: "/api/v1/pods"}.asAlice()); r.Protocol != "h2" {
					t.Errorf("the list went over %q", r.Protocol)
				}
			})
		}
		t.Run(cluster, func(t *testing.T) {
			list(t)
			t.Run("SPDY", func(t *testing.T) {
				up.Reset()
				up.Handle(rawserver.Echo)
				defer up.Handle(nil)
				conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
				a := conn.Do(t, call{method: "POST", cluster: cluster, path: execPath}.asAlice().
					with("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io", "X-Stream-Protocol-Version: v3.channel.k8s.io").h1(shared.px))
				if a.Code != http.StatusSwitchingProtocols || a.Header.Get("Upgrade") != "SPDY/3.1" || a.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
					t.Fatalf("%d %v", a.Code, a.Header)
				}
				echo(t, conn, data)
				r := up.Only(t)
				wantHTTP1(t, r)
				// RELAY-2: repetition and order of upgrade headers.
				if got := r.Lines("Upgrade"); !slices.Equal(got, []string{"SPDY/3.1"}) {
					t.Errorf("Upgrade at the upstream: %q", got)
				}
				if got := r.Lines("X-Stream-Protocol-Version"); !slices.Equal(got, []string{"v4.channel.k8s.io", "v3.channel.k8s.io"}) || r.Method != "POST" {
					t.Errorf("%s, X-Stream-Protocol-Version %q", r.Method, got)
				}
			})
			for _, protocol := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"} {
				t.Run("WebSocket "+protocol, func(t *testing.T) {
					up.Reset()
					up.Handle(rawserver.Echo)
					defer up.Handle(nil)
					ws := rawclient.MustDialWebSocket(t, shared.px.Host, shared.px.CA.Pool(), call{cluster: cluster, path: execPath}.requestTarget(), protocol, "Authorization: Bearer "+token(nil))
					if ws.Protocol != protocol {
						t.Errorf("protocol %q", ws.Protocol)
					}
					for i := 0; i < size; i += 64 << 10 {
						part := data[i : i+64<<10]
						if err := ws.Send(rawclient.Binary, part); err != nil {
							t.Fatal(err)
						}
						if op, got, err := ws.Receive(); err != nil || op != rawclient.Binary || !bytes.Equal(got, part) {
							t.Fatalf("message at %d: opcode %d, %d bytes, %v", i, op, len(got), err)
						}
					}
					if err := ws.Send(rawclient.Close, []byte{0x03, 0xe8}); err != nil {
						t.Fatal(err)
					}
					if op, got, err := ws.Receive(); err != nil || op != rawclient.Close || !bytes.Equal(got, []byte{0x03, 0xe8}) {
						t.Errorf("the close frame: opcode %d, %x, %v", op, got, err)
					}
					wantHTTP1(t, up.Only(t))
				})
			}
			list(t)
		})
	}
}

// echo sends data through an upgraded connection, reads it back, and ends its
// sending half, which the other side answers (RELAY-2).
func echo(t *testing.T, conn *rawclient.Conn, data []byte) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		if err == nil {
			err = conn.CloseWrite()
		}
		sent <- err
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(conn.R)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back of %d, equal: %t, %v", len(got), len(data), bytes.Equal(got, data), err)
	}
	if err := <-sent; err != nil {
		t.Errorf("sending: %v", err)
	}
}

// What a client writes together with its upgrade is the first of the stream,
// and an apiserver may talk first.
func TestSTR02EarlyBytes(t *testing.T) {
	for cluster, up := range shared.ups {
		t.Run(cluster, func(t *testing.T) {
			up.Reset()
			up.Handle(rawserver.Echo)
			conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			c := call{cluster: cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1")
			if err := conn.Send(append(c.h1(shared.px), "early "...)); err != nil {
				t.Fatal(err)
			}
			resp, err := conn.Head("GET")
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%+v, %v", resp, err)
			}
			if err := conn.Send([]byte("late")); err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(rawclient.Timeout))
			if got, err := io.ReadAll(conn.R); err != nil || string(got) != "early late" {
				t.Errorf("%q, %v", got, err)
			}
			up.Handle(rawserver.Raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nfirst word"))
			defer up.Handle(nil)
			conn = rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			if a := conn.Do(t, c.h1(shared.px)); a.Code != http.StatusSwitchingProtocols {
				t.Fatalf("%+v", a)
			}
			_ = conn.SetReadDeadline(time.Now().Add(rawclient.Timeout))
			got := make([]byte, len("first word"))
			if _, err := io.ReadFull(conn.R, got); err != nil || string(got) != "first word" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TLS-01, CERT-8: a new certificate serves new connections, plain and upgraded,
// within seconds; what is open goes on, and nothing new uses the old one.
func TestTLS01Rotation(t *testing.T) {
	for protocols, offered := range map[string][]string{"h2 and http/1.1": nil, "http/1.1": {"http/1.1"}} {
		t.Run(protocols, func(t *testing.T) {
			up := rawserver.Start(t, rawserver.Options{Protocols: offered})
			object := proxy.FrontProxyCluster(ns, "cluster-a", up.URL, up.ServerCA, prefix, proxy.Authenticator(shared.idp))
			px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
				"cluster.yaml": proxy.Manifests(object), "secret.yaml": proxy.Manifests(proxy.FrontProxySecret(ns, "cluster-a", up.URL, up.FrontProxy(1))),
			}})
			px.MustServe(t, ns, "cluster-a")
			feed := make(chan string)
			defer close(feed)
			up.Handle(rawserver.Feed("application/json", feed))
			code, _, watch := body(t, px, h2, call{cluster: "cluster-a", path: "/api/v1/pods?watch=true"}.asAlice())
			if code != http.StatusOK {
				t.Fatalf("the watch: %d", code)
			}
			up.Handle(rawserver.Echo)
			exec := rawclient.MustDial(t, px.Host, px.CA.Pool())
			if a := exec.Do(t, call{cluster: "cluster-a", path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1").h1(px)); a.Code != http.StatusSwitchingProtocols {
				t.Fatalf("the exec: %+v", a)
			}
			for _, r := range up.Requests() {
				if r.Serial.Int64() != 1 {
					t.Errorf("%v: serial %s", r, r.Serial)
				}
			}
			up.Handle(nil)
			// Idle connections with the first certificate, several of them.
			for range 5 {
				do(t, px, h1, call{cluster: "cluster-a", path: "/api"}.asAlice())
			}

			swapped := time.Now()
			px.MustWrite(t, "secret.yaml", proxy.FrontProxySecret(ns, "cluster-a", up.URL, up.FrontProxy(2)))
			serial := func(upgrade bool) int64 {
				up.Reset()
				c := call{cluster: "cluster-a", path: "/api"}.asAlice()
				want := http.StatusOK
				if upgrade {
					up.Handle(rawserver.Echo)
					defer up.Handle(nil)
					c, want = c.with("Connection: Upgrade", "Upgrade: websocket"), http.StatusSwitchingProtocols
				}
				if a := do(t, px, h1, c); a.Code != want {
					t.Fatalf("during the renewal: %d %s", a.Code, a.Body)
				}
				return up.Only(t).Serial.Int64()
			}
			for serial(false) != 2 {
				if time.Since(swapped) > 10*time.Second {
					t.Fatal("the old certificate still serves after ten seconds")
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("the new certificate served after %s", time.Since(swapped).Round(time.Millisecond))
			for range 10 {
				if got := serial(true); got != 2 {
					t.Errorf("an exec with serial %d", got)
				}
				if got := serial(false); got != 2 {
					t.Errorf("a GET with serial %d", got)
				}
			}
			// The streams are those of before.
			for i := range 3 {
				event := fmt.Sprintf("{\"n\":%d}\n", i)
				select {
				case feed <- event:
				case <-time.After(patience):
					t.Fatal("the watch has ended")
				}
				got := make([]byte, len(event))
				if _, err := io.ReadFull(watch, got); err != nil || string(got) != event {
					t.Fatalf("the watch: %q, %v", got, err)
				}
			}
			echo(t, exec, []byte("still here"))
		})
	}
}
