package hostile

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// URL-5: OPTIONS and HEAD are requests like any other, and no CORS header is
// the proxy's.
func TestURL5OptionsAndHead(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		for _, method := range []string{"OPTIONS", "HEAD", "PATCH", "DELETE", "PUT", "PROPFIND"} {
			cors := []string{"Origin: https://dashboard.test", "Access-Control-Request-Method: DELETE", "Access-Control-Request-Headers: authorization"}
			a := w.do(t, call{method: method, path: "/api/v1/x?y"}.asAlice().with(cors...))
			if a.Code != http.StatusOK {
				t.Errorf("%s: code %d: %s", method, a.Code, a.Body)
			}
			if r := w.up.Only(t); r.Method != method || r.Target != "/api/v1/x?y" || len(r.Lines("Origin")) != 1 {
				t.Errorf("%s at the upstream: %v", method, r)
			}
			for name := range a.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s: %q", method, name, a.Header[name])
				}
			}
			a = w.do(t, call{method: method, path: "/api/v1/x?y"}.with(cors...))
			if a.Code != http.StatusUnauthorized || a.Header.Get("WWW-Authenticate") != "Bearer" || a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s without a token: code %d, %v", method, a.Code, a.Header)
			}
			w.up.None(t)
		}
	})
}

// URL-5: other protocols are refused, and what is no upgrade is none.
func TestURL5Upgrades(t *testing.T) {
	for _, cluster := range []string{fpH2, fpH1, ptH2} {
		w := way{px: shared.px, protocol: h1, cluster: cluster, up: shared.ups[cluster]}
		for _, lines := range [][]string{
			{"Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Connection: Upgrade, HTTP2-Settings"},
			{"Upgrade: websocket, h2c"}, {"Upgrade: h2c, websocket"}, {"Upgrade: websocket", "Upgrade: h2c"}, {"Upgrade: h2c", "Upgrade: websocket"},
			{"Upgrade: websocket", "Upgrade: websocket"}, {"Upgrade: websocket,websocket"}, {"Upgrade: websocket/13"}, {"Upgrade: SPDY/3"}, {"Upgrade: SPDY/3.1, websocket"}, {"Upgrade: spdy"},
			{"Upgrade: TLS/1.0"}, {"Upgrade: HTTP/2.0"}, {"Upgrade:"}, {"Upgrade: web socket"}, {"Upgrade: websocketé"}, {"Upgrade: \"websocket\""}, {"Upgrade: websocket;x"}, {"Upgrade: connect-udp"},
		} {
			t.Run(cluster+" "+strings.Join(lines, ", "), func(t *testing.T) {
				if !strings.HasPrefix(lines[len(lines)-1], "Connection") {
					lines = append(lines, "Connection: Upgrade")
				}
				w.refused(t, call{path: "/api"}.asAlice().with(lines...), http.StatusBadRequest, "is not relayed")
				w.refused(t, call{path: "/api"}.with(lines...), http.StatusBadRequest, "is not relayed")
				w.refused(t, call{method: "POST", path: "/api", body: []byte("x")}.asAlice().with(lines...), http.StatusBadRequest, "is not relayed")
			})
		}
		for _, lines := range [][]string{{"Upgrade: websocket"}, {"Upgrade: h2c"}, {"Connection: Upgrade"}, {"Connection: X-Upgrade", "Upgrade: h2c"}, {"Connection: keep-alive", "Upgrade: SPDY/3.1"}} {
			t.Run(cluster+" no upgrade: "+strings.Join(lines, ", "), func(t *testing.T) {
				r := w.relayed(t, call{path: "/api"}.asAlice().with(lines...))
				if got := append(r.Lines("Upgrade"), r.Lines("Connection")...); len(got) > 0 {
					t.Errorf("at the upstream: %q", got)
				}
			})
		}
		w.up.Handle(rawserver.Echo)
		for _, lines := range [][]string{{"Connection: upgrade", "Upgrade: WebSocket"}, {"Connection: keep-alive, UPGRADE", "Upgrade: spdy/3.1"}, {"Connection: close", "Connection: Upgrade", "Upgrade: SPDY/3.1 "}} {
			t.Run(cluster+" an upgrade: "+strings.Join(lines, ", "), func(t *testing.T) {
				if a := w.do(t, call{path: "/api"}.asAlice().with(lines...)); a.Code != http.StatusSwitchingProtocols {
					t.Errorf("code %d: %s", a.Code, a.Body)
				}
			})
		}
		w.up.Handle(nil)
	}
}

// URL-6: a request that comes back is a 508, and Via says so in Caddy's place.
func TestURL6Loops(t *testing.T) {
	vias := map[string]string{}
	everyWay(t, shared.px, func(t *testing.T, w way) {
		version := map[string]string{h1: "1.1", h2: "2.0"}[w.protocol]
		got := w.relayed(t, call{path: "/api"}.asAlice()).Lines("Via")
		if len(got) != 1 || !strings.HasPrefix(got[0], version+" proxyauth-") || len(got[0]) != len(version+" proxyauth-")+16 {
			t.Fatalf("Via %q", got)
		}
		_, own, _ := strings.Cut(got[0], " ")
		vias[w.cluster] = own
		for _, lines := range [][]string{
			{"Via: 1.1 " + own}, {"Via: 2.0 " + own}, {"Via: HTTP/1.1 " + own}, {"Via: 1.0 fred, 1.1 " + own + ", 1.1 Caddy"}, {"Via: 1.1 fred", "via: 1.1\t" + own},
			{"Via: 1.1 " + own + " (a comment)"}, {"Via: 1.1   " + own + "\t(x)"}, {"Via: ,, 1.1 " + own + ","},
		} {
			w.refused(t, call{path: "/api"}.asAlice().with(lines...), http.StatusLoopDetected, "came back to this cluster")
			w.refused(t, call{path: "/api"}.with(lines...), http.StatusLoopDetected, "came back to this cluster")
		}
		for _, lines := range [][]string{
			{"Via: 1.1 Caddy"}, {"Via: 1.1 proxyauth-0123456789abcdef"}, {"Via: 1.1 fred (" + own + ")"}, {"Via: 1.1 x" + own}, {"Via: 1.1 " + own + "0"}, {"Via: " + own},
			{"Via: 1.1 a, 1.1 b", "Via: 1.1 Caddy"},
		} {
			var want []string
			for _, l := range lines {
				want = append(want, l[len("Via: "):])
			}
			want = append(want, version+" "+own)
			if got := w.relayed(t, call{path: "/api"}.asAlice().with(lines...)).Lines("Via"); !slices.Equal(got, want) {
				t.Errorf("Via at the upstream %q, want %q", got, want)
			}
		}
	})
	if vias[fpH2] == vias[fpH1] {
		t.Error("two clusters have one name in Via")
	}
	t.Run("upgrade", func(t *testing.T) {
		up := shared.ups[fpH2]
		up.Reset()
		wantStatus(t, upgradeTo(t, shared.px, call{cluster: fpH2, path: "/api"}.asAlice().with("Via: 1.1 "+vias[fpH2]), "SPDY/3.1"), http.StatusLoopDetected, "came back")
		up.None(t)
		up.Handle(rawserver.Echo)
		defer up.Handle(nil)
		if a := upgradeTo(t, shared.px, call{cluster: fpH2, path: "/api"}.asAlice().with("Via: 1.1 "+vias[fpH1]), "SPDY/3.1"); a.Code != http.StatusSwitchingProtocols {
			t.Errorf("another cluster's Via: code %d: %s", a.Code, a.Body)
		}
		if got := up.Only(t).Lines("Via"); !slices.Equal(got, []string{"1.1 " + vias[fpH1], "1.1 " + vias[fpH2]}) {
			t.Errorf("Via %q", got)
		}
	})
	t.Run("a real loop", func(t *testing.T) {
		px := startProxy(t, proxy.Options{}, nil)
		for name, target := range map[string]string{"one": "one", "ping": "pong", "pong": "ping"} {
			object := proxy.Cluster(ns, name, px.ClusterURL(ns, target), px.CA)
			object.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(shared.idp)}}
			px.MustWrite(t, name+".yaml", object)
			px.MustServe(t, ns, name)
		}
		bothProtocols(t, func(t *testing.T, protocol string) {
			wantStatus(t, do(t, px, protocol, call{cluster: "one", path: "/api"}.asAlice()), http.StatusLoopDetected, "came back")
			wantStatus(t, do(t, px, protocol, call{cluster: "ping", path: "/api"}.asAlice()), http.StatusLoopDetected, "came back")
		})
		wantStatus(t, upgradeTo(t, px, call{cluster: "ping", path: "/api"}.asAlice(), "websocket"), http.StatusLoopDetected, "came back")
	})
}

// Section 3, row 1: CONNECT, extended too, and TRACE.
func TestRow1Methods(t *testing.T) {
	px := startProxy(t, proxy.Options{Directive: "proxyauth", Env: []string{"GODEBUG=http2xconnect=1"}}, nil)
	up := shared.ups[fpH2]
	w := way{px: px, cluster: fpH2, up: up}
	refused := func(t *testing.T, a rawclient.Answer) {
		t.Helper()
		wantStatus(t, a, http.StatusMethodNotAllowed, "the method is not allowed")
		if a.Header.Get("Allow") == "" {
			t.Error("no Allow") // RFC 9110, section 15.5.6
		}
		up.None(t)
	}
	bothProtocols(t, func(t *testing.T, protocol string) {
		w.protocol = protocol
		refused(t, w.do(t, call{method: "TRACE", path: "/api"}.asAlice()))
		refused(t, w.do(t, call{method: "TRACE", path: "/../x"}))
	})
	for _, target := range []string{px.Host, up.Host, "/clusters/team-a/cluster-a/api"} {
		t.Run("CONNECT "+target, func(t *testing.T) {
			up.Reset()
			refused(t, rawclient.Do(t, px.Host, px.CA.Pool(), rawclient.Request("CONNECT", target, px.Host, "Authorization: Bearer "+token(nil))))
		})
	}
	answer := func(t *testing.T, fields ...rawclient.Field) rawclient.Answer {
		t.Helper()
		up.Reset()
		return rawclient.MustDialH2(t, px.Host, px.CA.Pool()).Do(t, fields, nil)
	}
	authorization := rawclient.Field{Name: "authorization", Value: "Bearer " + token(nil)}
	t.Run("h2 CONNECT", func(t *testing.T) {
		refused(t, answer(t, rawclient.Field{Name: ":method", Value: "CONNECT"}, rawclient.Field{Name: ":authority", Value: px.Host}, authorization))
	})
	for _, protocol := range []string{"websocket", "connect-udp"} {
		t.Run("extended CONNECT "+protocol, func(t *testing.T) {
			refused(t, answer(t, append(rawclient.Fields("CONNECT", px.Host, "/clusters/team-a/cluster-a/api"),
				rawclient.Field{Name: ":protocol", Value: protocol}, authorization,
				rawclient.Field{Name: "sec-websocket-version", Value: "13"})...))
		})
	}
	// RELAY-1: a server does not offer WebSocket over HTTP/2 (RFC 8441). It resets the
	// stream of a client that tries all the same, and the connection goes on.
	t.Run("extended CONNECT without the setting", func(t *testing.T) {
		up.Reset()
		conn := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool())
		if a := conn.Do(t, call{cluster: fpH2, path: "/api"}.asAlice().h2(shared.px), nil); a.Code != http.StatusOK {
			t.Fatalf("code %d", a.Code)
		}
		if value, ok := conn.Setting(http2.SettingEnableConnectProtocol); ok && value != 0 {
			t.Errorf("SETTINGS_ENABLE_CONNECT_PROTOCOL is %d", value)
		}
		up.Reset()
		s, err := conn.Open(append(rawclient.Fields("CONNECT", shared.px.Host, "/clusters/team-a/cluster-a/api"),
			rawclient.Field{Name: ":protocol", Value: "websocket"}, authorization), true)
		if err != nil {
			t.Fatal(err)
		}
		if code, _, err := s.Head(); err == nil && code != http.StatusMethodNotAllowed {
			t.Errorf("code %d", code)
		}
		up.None(t)
		if a := conn.Do(t, call{cluster: fpH2, path: "/api"}.asAlice().h2(shared.px), nil); a.Code != http.StatusOK {
			t.Errorf("afterwards: code %d", a.Code)
		}
	})
	t.Run("a method in lower case is another one", func(t *testing.T) {
		w.protocol = h1
		if r := w.relayed(t, call{method: "trace", path: "/api"}.asAlice()); r.Method != "trace" {
			t.Errorf("%v", r)
		}
	})
}
