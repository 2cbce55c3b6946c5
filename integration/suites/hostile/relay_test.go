package hostile

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// forging is what an apiserver sends after a switch. No client may see it.
const forging = "forged by the apiserver"

// RELAY-4: a 101 without an upgrade request is a 502, over HTTP/1.1.
func TestRELAY4UnaskedSwitch(t *testing.T) {
	for _, cluster := range []string{fpH1, ptH1} {
		for name, head := range map[string]string{
			"whole":              "Connection: Upgrade\r\nUpgrade: websocket\r\n",
			"without its header": "",
			"h2c":                "Connection: Upgrade\r\nUpgrade: h2c\r\n",
		} {
			bothProtocols(t, func(t *testing.T, protocol string) {
				t.Run(cluster+" "+name, func(t *testing.T) {
					w := way{px: shared.px, protocol: protocol, cluster: cluster, up: shared.ups[cluster]}
					w.up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
						// A body left unread would make the kernel reset the
						// connection, and the answer might be lost.
						_, _ = io.Copy(io.Discard, r)
						rw.Raw([]byte("HTTP/1.1 101 Switching Protocols\r\n" + head + "\r\n" + forging))
					})
					defer w.up.Handle(nil)
					for _, c := range []call{{path: "/api"}, {path: "/api", method: "POST", body: []byte("{}")}, {path: "/api?watch=true"}} {
						a := w.do(t, c.asAlice())
						wantStatus(t, a, http.StatusBadGateway, "switched to a protocol that was not asked for")
						if strings.Contains(a.Body, forging) || a.Header.Get("Upgrade") != "" {
							t.Errorf("%v %s", a.Header, a.Body)
						}
					}
				})
			})
		}
	}
}

// RELAY-4: a switch to another protocol than was asked for is a 502, never a
// raw pipe.
func TestRELAY4OtherProtocol(t *testing.T) {
	accept := "Sec-WebSocket-Accept: x\r\n"
	for cluster, up := range shared.ups {
		for _, asked := range []string{"SPDY/3.1", "websocket"} {
			for name, head := range map[string]string{
				"another":         "Connection: Upgrade\r\nUpgrade: " + map[string]string{"SPDY/3.1": "websocket", "websocket": "SPDY/3.1"}[asked] + "\r\n",
				"none named":      "Connection: Upgrade\r\n",
				"an empty one":    "Connection: Upgrade\r\nUpgrade:\r\n",
				"two":             "Connection: Upgrade\r\nUpgrade: " + asked + "\r\nUpgrade: h2c\r\n",
				"two in a line":   "Connection: Upgrade\r\nUpgrade: " + asked + ", h2c\r\n",
				"no Connection":   "Upgrade: " + asked + "\r\n",
				"nothing at all":  "",
				"a longer name":   "Connection: Upgrade\r\nUpgrade: " + asked + "x\r\n",
				"other bytes":     "Connection: Upgrade\r\nUpgrade: \xff" + asked + "\r\n",
				"h2c":             "Connection: Upgrade\r\nUpgrade: h2c\r\n",
				"wrong and right": "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: " + asked + "\r\n",
			} {
				t.Run(cluster+" "+asked+" "+name, func(t *testing.T) {
					up.Reset()
					up.Handle(rawserver.Raw("HTTP/1.1 101 Switching Protocols\r\n" + accept + head + "\r\n" + forging))
					defer up.Handle(nil)
					c := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
					a := c.Do(t, call{cluster: cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: "+asked, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==").h1(shared.px))
					wantStatus(t, a, http.StatusBadGateway, "switched to a protocol that was not asked for")
					// The connection is an HTTP one still, and nothing of the
					// stream is on it.
					up.Handle(nil)
					if a := c.Do(t, call{cluster: cluster, path: "/api"}.asAlice().h1(shared.px)); a.Code != http.StatusOK || strings.Contains(a.Body, forging) {
						t.Errorf("the next request: %+v", a)
					}
				})
			}
		}
	}
}

// RELAY-4: an upgrade that the apiserver refuses ends as the plain response it
// is.
func TestRELAY4PlainAnswers(t *testing.T) {
	status := []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":403}`)
	json := rawserver.Field{Name: "Content-Type", Value: "application/json"}
	answers := map[string]struct {
		code   int
		body   []byte
		fields []rawserver.Field
	}{
		"403":              {403, status, []rawserver.Field{json}},
		"400":              {400, []byte("Bad Request"), nil},
		"404 without body": {404, nil, nil},
		"200":              {200, []byte("pong"), nil},
		"429":              {429, status, []rawserver.Field{json, {Name: "Retry-After", Value: "7"}}},
		"500":              {500, status, []rawserver.Field{json}},
		"503":              {503, status, []rawserver.Field{json, {Name: "Retry-After", Value: "1"}}},
		"413":              {413, status, []rawserver.Field{json}},
		"426":              {426, nil, []rawserver.Field{{Name: "Upgrade", Value: "SPDY/3.1"}, {Name: "Connection", Value: "Upgrade"}}},
		"304":              {304, nil, nil},
	}
	everyWay(t, shared.px, func(t *testing.T, w way) {
		defer w.up.Handle(nil)
		for name, tc := range answers {
			w.up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
				_, _ = io.Copy(io.Discard, r)
				fields := tc.fields
				if !rw.H1() { // no connection-specific fields there
					fields = slices.DeleteFunc(slices.Clone(fields), func(f rawserver.Field) bool { return f.Name == "Connection" || f.Name == "Upgrade" })
				}
				rw.Respond(tc.code, tc.body, fields...)
			})
			check := func(a rawclient.Answer) {
				t.Helper()
				if a.Code != tc.code || a.Body != string(tc.body) {
					t.Errorf("%s: code %d: %q", name, a.Code, a.Body)
				}
				for _, f := range tc.fields {
					if got := a.Header.Get(f.Name); got != f.Value && f.Name != "Connection" && f.Name != "Upgrade" {
						t.Errorf("%s: %s: %q, want %q", name, f.Name, got, f.Value)
					}
				}
				if a.Header.Get("Warning") != "" {
					t.Errorf("%s: a warning on what is the apiserver's: %q", name, a.Header.Get("Warning"))
				}
				w.up.Only(t)
			}
			check(w.do(t, call{path: "/api"}.asAlice()))
			check(w.do(t, call{method: "POST", path: "/api", body: []byte("{}")}.asAlice()))
			if w.protocol == h2 {
				continue
			}
			c := rawclient.MustDial(t, w.px.Host, w.px.CA.Pool())
			for _, protocol := range []string{"SPDY/3.1", "websocket"} {
				w.up.Reset()
				check(c.Do(t, call{cluster: w.cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: "+protocol).h1(w.px)))
			}
		}
	})
}

const distrust = "the cluster does not trust this proxy"

// Section 13: a 401 about the asserted identity is a 502 that is counted; the
// caller's login has nothing to do with it. In Passthrough it is the caller's.
func TestOBS03UpstreamUnauthorized(t *testing.T) {
	const series = `proxyauth_upstream_rejected_total{mode="FrontProxy"}`
	everyWay(t, shared.px, func(t *testing.T, w way) {
		w.up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
			_, _ = io.Copy(io.Discard, r)
			rw.Respond(401, []byte(`{"kind":"Status","code":401}`), rawserver.Field{Name: "Content-Type", Value: "application/json"},
				rawserver.Field{Name: "WWW-Authenticate", Value: `Basic realm="x"`})
		})
		defer w.up.Handle(nil)
		calls := []call{{path: "/api"}, {path: "/api", lines: []string{"Accept: application/vnd.kubernetes.protobuf"}}, {path: "/api", method: "POST", body: []byte("{}")}, {path: "/api?watch=true"}}
		if w.protocol == h1 {
			calls = append(calls, call{path: execPath, lines: []string{"Connection: Upgrade", "Upgrade: SPDY/3.1"}},
				call{path: execPath, lines: rawclient.UpgradeLines("Sec-WebSocket-Protocol: v5.channel.k8s.io")})
		}
		for i, c := range calls {
			before := w.px.MustCounter(t, series)
			c.path += fmt.Sprintf("&m=%s%s%d", w.cluster, w.protocol, i)
			a := w.do(t, c.asAlice())
			w.up.Only(t)
			counted := w.px.MustCounter(t, series) - before
			if !w.frontProxy() {
				if a.Code != 401 || a.Body != `{"kind":"Status","code":401}` || a.Header.Get("WWW-Authenticate") != `Basic realm="x"` || counted != 0 {
					t.Errorf("%d %v %s, counted %d", a.Code, a.Header, a.Body, counted)
				}
				continue
			}
			wantStatus(t, a, http.StatusBadGateway, distrust)
			if counted != 1 {
				t.Errorf("counted %d times", counted)
			}
		}
		if w.protocol == h2 {
			return
		}
		// HEAD has no body to say it with.
		if a := w.do(t, call{method: "HEAD", path: "/api"}.asAlice()); w.frontProxy() && (a.Code != 502 || !strings.Contains(a.Header.Get("Warning"), distrust)) {
			t.Errorf("HEAD: %d %v", a.Code, a.Header)
		}
	})
	if got := shared.px.MustCounter(t, `proxyauth_upstream_rejected_total{mode="Passthrough"}`); got != 0 {
		t.Errorf("Passthrough: counted %d times", got)
	}
}

// An interim answer is relayed, and does not stand for the final one.
func TestRELAY4Interim(t *testing.T) {
	for _, cluster := range []string{fpH1, ptH1} {
		up := shared.ups[cluster]
		up.Handle(rawserver.Raw("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		bothProtocols(t, func(t *testing.T, protocol string) {
			if protocol == h1 {
				c := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
				if err := c.Send(call{cluster: cluster, path: "/api"}.asAlice().h1(shared.px)); err != nil {
					t.Fatal(err)
				}
				for {
					resp, err := c.Head("GET")
					if err != nil {
						t.Fatal(err)
					}
					if resp.Header.Get("Set-Cookie") != "" {
						t.Errorf("a cookie in the %d", resp.StatusCode)
					}
					if resp.StatusCode >= 200 {
						if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "ok" {
							t.Errorf("%d %s", resp.StatusCode, body)
						}
						return
					}
				}
			}
			if a := do(t, shared.px, protocol, call{cluster: cluster, path: "/api"}.asAlice()); a.Code != http.StatusOK || a.Body != "ok" {
				t.Errorf("%+v", a)
			}
		})
		up.Handle(nil)
	}
}

// An upstream that talks nonsense or hangs up is a 502 Status, counted as no
// distrust.
func TestRELAY4Nonsense(t *testing.T) {
	for name, handler := range map[string]rawserver.Handler{
		"no HTTP":          rawserver.Raw("SSH-2.0-OpenSSH_9.9\r\n"),
		"half a head":      rawserver.Raw("HTTP/1.1 200 OK\r\nContent-"),
		"two lengths":      rawserver.Raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
		"a bad status":     rawserver.Raw("HTTP/1.1 999999 OK\r\n\r\n"),
		"endless head":     endlessHead,
		"endless interims": rawserver.Raw(strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 1000)+"\r\n\r\n", 3000)),
		"a hang-up":        func(w *rawserver.Writer, r *rawserver.Request) { w.Abort() },
	} {
		for _, cluster := range []string{fpH1, ptH1} {
			t.Run(name+" "+cluster, func(t *testing.T) {
				up := shared.ups[cluster]
				up.Handle(handler)
				defer up.Handle(nil)
				bothProtocols(t, func(t *testing.T, protocol string) {
					if name == "endless interims" && protocol == h1 {
						return // they are relayed first; the h2 client drops them
					}
					wantStatus(t, do(t, shared.px, protocol, call{method: "POST", cluster: cluster, path: "/api", body: []byte("{}")}.asAlice()), http.StatusBadGateway, "")
				})
				if name != "endless interims" {
					wantStatus(t, upgradeTo(t, shared.px, call{cluster: cluster, path: "/api"}.asAlice(), "websocket"), http.StatusBadGateway, "")
				}
			})
		}
	}
}

func endlessHead(w *rawserver.Writer, r *rawserver.Request) {
	w.Raw([]byte("HTTP/1.1 200 OK\r\n"))
	line := []byte("X: " + strings.Repeat("x", 8000) + "\r\n")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		w.Raw(line)
		if !w.Write(nil) {
			return
		}
	}
}
