package hostile

import (
	"crypto/rand"
	"crypto/sha256"
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

// http3 is a servers block with HTTP/3, and with further lines.
func http3(lines ...string) string {
	lines = append([]string{"protocols h1 h2 h3", "max_header_size 64KiB"}, lines...)
	return "servers 127.0.0.1:%{port} {\n\t" + strings.Join(lines, "\n\t") + "\n}"
}

// everyUpstream runs a test with an HTTP/3 client, through every combination of
// upstream protocol and mode.
func everyUpstream(t *testing.T, px *proxy.Proxy, f func(t *testing.T, w way)) {
	t.Helper()
	for _, cluster := range []string{fpH2, fpH1, ptH2, ptH1} {
		t.Run(cluster, func(t *testing.T) { f(t, way{px: px, protocol: h3, cluster: cluster, up: shared.ups[cluster]}) })
	}
}

// Where an admin lets HTTP/3 in, it is answered as HTTP/2 is. One proxy serves all
// of it: it lets in what Caddy would drop, and trusts one peer.
func TestHTTP3(t *testing.T) {
	px := startProxy(t, proxy.Options{Global: http3(
		// Caddy drops a name with hyphens when another spelling of it is let in.
		"expected_underscore_headers X_Other X-Remote_Group Impersonate_Uid",
		"expected_dot_headers X.Other X.Remote-Extra.scopes",
		"trusted_proxies static 127.0.0.2/32",
	), GracePeriod: time.Second}, nil)
	t.Run("requests", func(t *testing.T) { testHTTP3Requests(t, px) })
	t.Run("upgrades", func(t *testing.T) { testHTTP3Upgrades(t, px) })
	t.Run("streams", func(t *testing.T) { testHTTP3Streams(t, px) })
	t.Run("HDR08", func(t *testing.T) { testHTTP3ForwardedFor(t, px) })
	t.Run("row 2, early data", func(t *testing.T) { testEarlyData(t, px) })
}

// The same refusals as over HTTP/2, the same identity, and nothing of what a client
// forges (ID-5, ID-7, ANS-1).
func testHTTP3Requests(t *testing.T, px *proxy.Proxy) {
	t.Run("relayed", func(t *testing.T) {
		everyUpstream(t, px, func(t *testing.T, w way) {
			bearer := scoped()
			for _, c := range []call{{path: "/api/v1/pods?limit=1"}, {method: "DELETE", path: "/api/v1/x%2Fy"}, {method: "POST", path: "/api", body: []byte("{}")}} {
				r := w.relayed(t, c.bearer(bearer))
				wantAlice(t, w, r, bearer)
				w.wantTarget(t, r, c.path)
				if got := r.Lines("Via"); len(got) != 1 || !strings.HasPrefix(got[0], "3.0 proxyauth-") {
					t.Errorf("Via %q", got)
				}
			}
			c := call{path: "/api"}.bearer(bearer).with("X_Other: a", "X.Other: b", "X-Remote-User: f0rged", "X-Remote-Group: system:masters", "Impersonate-User: f0rged", "Cookie: f0rged")
			for _, spelling := range identitySpellings {
				c = c.with(spelling + ": f0rged")
			}
			a := w.do(t, c)
			if a.Code != http.StatusOK {
				t.Fatalf("code %d: %s", a.Code, a.Body)
			}
			wantWarning(t, a, ignored)
			r := w.up.Only(t)
			wantAlice(t, w, r, bearer)
			wantNoSpelling(t, w, r)
			if got := folded(r, "x-other"); len(got) != 2 {
				t.Errorf("harmless headers of the kind at the upstream: %q", got)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		everyUpstream(t, px, func(t *testing.T, w way) {
			for _, tc := range []struct {
				c        call
				code     int
				contains string
			}{
				{call{path: "/api"}, http.StatusUnauthorized, ""},
				{call{path: "/api"}.bearer("f0rged"), http.StatusUnauthorized, ""},
				{call{path: "/api"}.asAlice().asAlice(), http.StatusUnauthorized, ""},
				{call{target: "/api"}.asAlice(), http.StatusNotFound, "no such cluster"},
				{call{target: "/%63lusters/team-a/cluster-a/api"}.asAlice(), http.StatusNotFound, "no such cluster"},
				{call{path: "/api/%2e%2e/x"}.asAlice(), http.StatusBadRequest, "dot segment"},
				{call{method: "TRACE", path: "/api"}.asAlice(), http.StatusMethodNotAllowed, "not allowed"},
				{call{path: "/api"}.asAlice().with("Via: 1.1 " + viaOf(ns+"/"+w.cluster, w.up.URL)), http.StatusLoopDetected, "came back"},
			} {
				w.refused(t, tc.c, tc.code, tc.contains)
			}
		})
	})
	// What HTTP/3 forbids never gets to the proxy: the stream is reset, and nothing
	// comes to the apiserver (RFC 9114, section 4.2).
	t.Run("malformed", func(t *testing.T) {
		everyUpstream(t, px, func(t *testing.T, w way) {
			conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
			w.up.Reset()
			base := call{cluster: w.cluster, path: "/api"}.asAlice().h2(px)
			for _, f := range []rawclient.Field{
				{Name: "connection", Value: "x-remote-user"}, {Name: "connection", Value: "upgrade"}, {Name: "upgrade", Value: "SPDY/3.1"}, {Name: "proxy-connection", Value: "x"},
				{Name: "transfer-encoding", Value: "chunked"}, {Name: "te", Value: "x-remote-user"}, {Name: "X-Remote-User", Value: "root"}, {Name: "x-a", Value: "b\r\nx-remote-user: root"},
				{Name: "x-remote-user ", Value: "root"}, {Name: "x-a\r\nx-remote-user", Value: "root"}, {Name: "x-a:x-remote-user", Value: "root"}, {Name: "", Value: "root"},
				{Name: ":path", Value: "/api"}, {Name: ":status", Value: "200"}, {Name: "host", Value: "elsewhere.test"}, {Name: "content-length", Value: "-1"}, {Name: "x-a", Value: "\x00"},
			} {
				s, err := conn.Open(append(slices.Clip(base), f), true)
				if err != nil {
					t.Fatal(err)
				}
				if a, err := s.Answer(); err == nil {
					t.Errorf("%q was answered: %d %s", f, a.Code, a.Body)
				}
				w.up.None(t)
			}
			if a := conn.Do(t, base, nil); a.Code != http.StatusOK {
				t.Errorf("afterwards, on the same connection: %d %s", a.Code, a.Body)
			}
		})
	})
	t.Run("trailers", func(t *testing.T) {
		everyUpstream(t, px, func(t *testing.T, w way) {
			w.up.Reset()
			bearer := scoped()
			conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
			s, err := conn.Open(call{method: "POST", cluster: w.cluster, path: "/api"}.bearer(bearer).with("TE: trailers").h2(px), false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			err = s.Trailers([]rawclient.Field{{Name: "x-remote-user", Value: "f0rged"}, {Name: "x_remote_user", Value: "f0rged"}, {Name: "impersonate-user", Value: "f0rged"}, {Name: "x-other", Value: "f0rged"}})
			if err != nil {
				t.Fatal(err)
			}
			if a, err := s.Answer(); err != nil || a.Code != http.StatusOK {
				t.Fatalf("%+v, %v", a, err)
			}
			r := w.up.Only(t)
			wantAlice(t, w, r, bearer)
			if r.BodyBytes() != 5 || strings.Contains(r.Text(), "f0rged") || len(r.Trailer()) > 0 {
				t.Errorf("%d bytes of the body, trailers %v, request:\n%s", r.BodyBytes(), r.Trailer(), r.Text())
			}
		})
	})
	t.Run("a header that is too large", func(t *testing.T) {
		shared.ups[fpH2].Reset()
		a := do(t, px, h3, call{cluster: fpH2, path: "/api"}.asAlice().with("X-A: "+strings.Repeat("x", 80<<10)))
		if a.Code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("code %d", a.Code)
		}
		shared.ups[fpH2].None(t)
	})
}

// Section 3, row 1: an upgrade over HTTP/3 is a CONNECT with a protocol (RFC 9220),
// and gets the same answer as over HTTP/2.
func testHTTP3Upgrades(t *testing.T, px *proxy.Proxy) {
	up := shared.ups[fpH2]
	authorization := rawclient.Field{Name: "authorization", Value: "Bearer " + token(nil)}
	for _, protocol := range []string{"websocket", "connect-udp", "webtransport"} {
		t.Run(protocol, func(t *testing.T) {
			up.Reset()
			conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
			s, err := conn.Open(append(rawclient.Fields("CONNECT", px.Host, "/clusters/team-a/cluster-a"+execPath), rawclient.Field{Name: ":protocol", Value: protocol}, authorization,
				rawclient.Field{Name: "sec-websocket-version", Value: "13"}, rawclient.Field{Name: "sec-websocket-protocol", Value: "v5.channel.k8s.io"}), false)
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.Answer()
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, a, http.StatusMethodNotAllowed, "the method is not allowed")
			up.None(t)
		})
	}
	t.Run("CONNECT", func(t *testing.T) {
		up.Reset()
		conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
		a := conn.Do(t, []rawclient.Field{{Name: ":method", Value: "CONNECT"}, {Name: ":authority", Value: px.Host}, authorization}, nil)
		wantStatus(t, a, http.StatusMethodNotAllowed, "the method is not allowed")
		up.None(t)
	})
}

// RELAY-3 and RELAY-6 over HTTP/3: each event of a watch comes before there is
// another, and a large body goes through without being kept.
func testHTTP3Streams(t *testing.T, px *proxy.Proxy) {
	t.Run("watch", func(t *testing.T) {
		everyUpstream(t, px, func(t *testing.T, w way) {
			feed := make(chan string)
			w.up.Handle(func(rw *rawserver.Writer, _ *rawserver.Request) {
				rw.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: "application/json"})
				for e := range feed {
					if !rw.Write([]byte(e)) {
						return
					}
				}
			})
			defer w.up.Handle(nil)
			conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
			s, err := conn.Open(call{cluster: w.cluster, path: "/api/v1/pods?watch=true"}.asAlice().h2(px), true)
			if err != nil {
				t.Fatal(err)
			}
			// The upstream writes nothing but the header until this returns.
			if code, _, err := s.Head(); err != nil || code != http.StatusOK {
				t.Fatalf("%d, %v", code, err)
			}
			for i := range 5 {
				event := fmt.Sprintf("event %d\n", i)
				feed <- event
				got := make([]byte, len(event))
				// ... and no further event until this one is here.
				if _, err := io.ReadFull(s, got); err != nil || string(got) != event {
					t.Fatalf("%q, %v", got, err)
				}
			}
			close(feed)
			if rest, err := io.ReadAll(s); err != nil || len(rest) > 0 {
				t.Errorf("the end: %q, %v", rest, err)
			}
		})
	})
	t.Run("upload", func(t *testing.T) {
		const size, part = 32 << 20, 1 << 20
		up := shared.ups[fpH2]
		up.Reset()
		up.Handle(digest)
		defer up.Handle(nil)
		data := make([]byte, part)
		_, _ = rand.Read(data)
		conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{})
		before := residentMemory(t, px.PID())
		s, err := conn.Open(call{method: "POST", cluster: fpH2, path: "/api"}.asAlice().h2(px), false)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for range size / part {
			h.Write(data)
			if _, err := s.Write(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		a, err := s.Answer()
		if err != nil || a.Code != http.StatusOK || a.Body != digestOf(size, h) {
			t.Errorf("%+v, %v", a, err)
		}
		if grown := residentMemory(t, px.PID()) - before; grown > 24<<20 {
			t.Errorf("the proxy's memory grew by %d MiB", grown>>20)
		}
	})
}

// HDR-08 over HTTP/3: the address is the peer's, unless the peer is a proxy that
// the admin trusts.
func testHTTP3ForwardedFor(t *testing.T, px *proxy.Proxy) {
	up := shared.ups[fpH2]
	for peer, want := range map[string]struct{ forwarded, source string }{
		"127.0.0.1": {"127.0.0.1", "127.0.0.1"}, "127.0.0.2": {"203.0.113.9, 127.0.0.2", "203.0.113.9"},
	} {
		up.Reset()
		path := "/api/from-" + peer
		conn := rawclient.MustDialH3(t, px.Host, px.CA.Pool(), rawclient.H3Options{From: peer})
		a := conn.Do(t, call{cluster: fpH2, path: path}.asAlice().with("X-Forwarded-For: 203.0.113.9", "X-Real-Ip: 203.0.113.9", "Forwarded: for=203.0.113.9").h2(px), nil)
		if a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		r := up.Only(t)
		if got := r.Lines("X-Forwarded-For"); !slices.Equal(got, []string{want.forwarded}) || len(folded(r, "x-real-ip"))+len(folded(r, "forwarded")) > 0 {
			t.Errorf("from %s: X-Forwarded-For %q, want %q", peer, got, want.forwarded)
		}
		if got := audited(t, px, path).Text("source_ip"); got != want.source {
			t.Errorf("from %s: source_ip %q, want %q", peer, got, want.source)
		}
	}
}
