package hostile

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// scoped is a token whose extra values reach the apiserver too.
func scoped() string { return token(map[string]any{"scopes": []string{"read", "write"}}) }

// HDR-01, ID-7: whatever a client names as hop-by-hop, the asserted headers
// arrive whole; in Passthrough so does the bearer.
func TestHDR01ConnectionCannotRemoveIdentity(t *testing.T) {
	forged := []string{"X-Remote-User: root", "X-Remote-Group: system:masters", "x-remote-extra-example.test%2fscopes: all"}
	tests := map[string][]string{
		"as in the case": {"Connection: close, X-Remote-User, X-Remote-Group, X-Remote-Extra-Scopes"},
		"the header twice": {
			"Connection: X-Remote-User", "Connection: X-Remote-Group, X-Remote-Extra-Example.test%2fscopes",
		},
		"mixed case":         {"cOnNeCtIoN: x-REMOTE-user, X-Remote-GROUP, X-REMOTE-EXTRA-EXAMPLE.TEST%2FSCOPES"},
		"tabs around commas": {"Connection: close\t,\tX-Remote-User\t,\tX-Remote-Group"},
		"empty elements":     {"Connection: ,, X-Remote-User,,X-Remote-Group,"},
		"other spellings":    {"Connection: X_Remote_User, X-Remote_Group, X.Remote.User"},
		"the credential": {
			"Connection: Authorization, Host, Content-Length, Via, X-Forwarded-For, X-Forwarded-Proto, Accept",
		},
		"folded over two lines":   {"Connection: X-Remote-User,\r\n X-Remote-Group"},
		"neighbours":              {"Proxy-Connection: X-Remote-User", "Keep-Alive: X-Remote-User", "Connection: Keep-Alive", "TE: trailers", "Trailer: X-Remote-User"},
		"white space in the name": {"Connection: X-Remote-User ,\tX-Remote-Group "},
	}
	for name, lines := range tests {
		t.Run(name, func(t *testing.T) {
			for _, cluster := range []string{fpH2, fpH1, ptH2, ptH1} {
				for what, forgeries := range map[string][]string{"alone": nil, "with forged headers": forged} {
					t.Run(cluster+" "+what, func(t *testing.T) {
						w := way{px: shared.px, protocol: h1, cluster: cluster, up: shared.ups[cluster]}
						bearer := scoped()
						r := w.relayed(t, call{path: "/api/v1/pods"}.bearer(bearer).with(lines...).with(forgeries...))
						wantAlice(t, w, r, bearer)
						if got := r.Lines("X-Forwarded-For"); !slices.Equal(got, []string{"127.0.0.1"}) {
							t.Errorf("X-Forwarded-For %q", got)
						}
						if got := r.Lines("Via"); len(got) != 1 || !strings.Contains(got[0], "proxyauth-") {
							t.Errorf("Via %q", got)
						}
						for _, f := range r.Fields {
							if strings.EqualFold(f.Name, "Connection") || strings.EqualFold(f.Name, "Proxy-Connection") || strings.EqualFold(f.Name, "Keep-Alive") {
								t.Errorf("a hop-by-hop header went on: %v", f)
							}
						}
					})
				}
			}
		})
	}
}

// HDR-01 on an upgrade, whose Connection header has a job of its own.
func TestHDR01Upgrade(t *testing.T) {
	for _, cluster := range []string{fpH2, fpH1, ptH2, ptH1} {
		for name, lines := range map[string][]string{
			"one line":   {"Connection: Upgrade, X-Remote-User, X-Remote-Group, Authorization"},
			"two lines":  {"Connection: X-Remote-User, X-Remote-Group", "connection: upgrade"},
			"mixed case": {"CONNECTION: X-REMOTE-USER,\tuPGRADE\t,X-REMOTE-GROUP"},
			// A client that lists the header of its own upgrade only harms
			// itself.
			"other headers": {"Connection: Upgrade, Via, X-Forwarded-For, Sec-WebSocket-Protocol"},
		} {
			t.Run(cluster+" "+name, func(t *testing.T) {
				up := shared.ups[cluster]
				up.Reset()
				up.Handle(rawserver.Echo)
				defer up.Handle(nil)
				w := way{px: shared.px, protocol: h1, cluster: cluster, up: up}
				bearer := scoped()
				c := call{cluster: cluster, path: "/api/v1/namespaces/x/pods/y/exec"}.bearer(bearer).
					with(lines...).with("Upgrade: SPDY/3.1", "X-Remote-User: root", "X-Remote-Group: system:masters")
				conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
				if a := conn.Do(t, c.h1(shared.px)); a.Code != http.StatusSwitchingProtocols {
					t.Fatalf("code %d: %s", a.Code, a.Body)
				}
				r := up.Only(t)
				wantAlice(t, w, r, bearer)
				if got := r.Lines("Connection"); !slices.Equal(got, []string{"Upgrade"}) {
					t.Errorf("Connection at the upstream: %q", got)
				}
			})
		}
	}
}

// HDR-01 over HTTP/2, where such a request is malformed (RFC 9113 section
// 8.2.2): the server refuses it before the proxy sees it.
func TestHDR01ConnectionOverHTTP2(t *testing.T) {
	for _, line := range []string{
		"connection: x-remote-user", "connection: close, X-Remote-User", "proxy-connection: x-remote-user",
		"keep-alive: x-remote-user", "upgrade: SPDY/3.1", "transfer-encoding: chunked", "te: x-remote-user",
	} {
		t.Run(line, func(t *testing.T) {
			up := shared.ups[fpH2]
			up.Reset()
			conn := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool())
			s, err := conn.Open(call{cluster: fpH2, path: "/api"}.asAlice().with(line).h2(shared.px), true)
			if err != nil {
				t.Fatal(err)
			}
			if code, _, err := s.Head(); err == nil && code != http.StatusBadRequest {
				t.Errorf("code %d", code)
			}
			up.None(t)
		})
	}
}

// The four kinds of impersonation header, one of them twice.
var impersonation = []string{
	"Impersonate-User: bob", "Impersonate-Group: g1", "Impersonate-Group: g1",
	"impersonate-uid: 7", "Impersonate-Extra-Reason: x",
}

const ignored = "the Impersonate-* headers were ignored: the proxy does not forward impersonation to this cluster"

// HDR-03, ID-6: stripped whole, and the client is told.
func TestHDR03Strip(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		kinds := [][]string{impersonation}
		for _, line := range impersonation {
			kinds = append(kinds, []string{line})
		}
		kinds = append(kinds, []string{"IMPERSONATE-USER: bob"}, []string{"impersonate-extra-a%2fb: x"}, []string{"Impersonate-Anything: x"}, []string{"Impersonate-User:"})
		for _, lines := range kinds {
			bearer := scoped()
			a := w.do(t, call{path: "/api"}.bearer(bearer).with(lines...))
			if a.Code != http.StatusOK {
				t.Fatalf("%q: code %d: %s", lines, a.Code, a.Body)
			}
			r := w.up.Only(t)
			wantAlice(t, w, r, bearer)
			if got := folded(r, "impersonate"); len(got) > 0 {
				t.Errorf("%q: at the upstream: %v", lines, got)
			}
			wantWarning(t, a, ignored)
		}
		if a := w.do(t, call{path: "/api"}.asAlice()); len(a.Header.Values("Warning")) > 0 {
			t.Errorf("a warning without reason: %q", a.Header.Values("Warning"))
		}
		// The warning stands beside one of the apiserver's own.
		w.up.Handle(rawserver.Answer(200, "text/plain", []byte("x"), rawserver.Field{Name: "Warning", Value: `299 - "deprecated"`}))
		defer w.up.Handle(nil)
		a := w.do(t, call{path: "/api"}.asAlice().with("Impersonate-User: bob"))
		if got := a.Header.Values("Warning"); len(got) != 2 || !slices.Contains(got, `299 - "deprecated"`) {
			t.Errorf("warnings %q", got)
		}
		// A refusal for another reason tells both.
		a = w.do(t, call{path: "/api"}.with("Impersonate-User: bob"))
		wantStatus(t, a, http.StatusUnauthorized, "")
	})
}

// HDR-03 on upgrades: stripped, and the 101 carries the warning.
func TestHDR03StripUpgrade(t *testing.T) {
	for cluster, up := range shared.ups {
		t.Run(cluster, func(t *testing.T) {
			up.Reset()
			up.Handle(rawserver.Echo)
			defer up.Handle(nil)
			c := call{cluster: cluster, path: "/api/v1/namespaces/x/pods/y/attach"}.asAlice().
				with("Connection: Upgrade", "Upgrade: SPDY/3.1").with(impersonation...)
			a := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool()).Do(t, c.h1(shared.px))
			if a.Code != http.StatusSwitchingProtocols {
				t.Fatalf("code %d: %s", a.Code, a.Body)
			}
			wantWarning(t, a, ignored)
			if got := folded(up.Only(t), "impersonate"); len(got) > 0 {
				t.Errorf("at the upstream: %v", got)
			}
		})
	}
}

// HDR-03, ID-6: denied before any upstream byte.
func TestHDR03Deny(t *testing.T) {
	px := startProxy(t, proxy.Options{Settings: "impersonation deny"}, nil)
	everyWay(t, px, func(t *testing.T, w way) {
		kinds := [][]string{impersonation}
		for _, line := range impersonation {
			kinds = append(kinds, []string{line})
		}
		for _, lines := range kinds {
			w.refused(t, call{path: "/api"}.asAlice().with(lines...), http.StatusForbidden, "impersonation is not allowed")
		}
		w.relayed(t, call{path: "/api"}.asAlice())
	})
}

// HDR-03, ID-6: in FrontProxy the whole set goes on beside the asserted
// headers; Passthrough has nothing that would bind it, so it is stripped.
func TestHDR03Forward(t *testing.T) {
	px := startProxy(t, proxy.Options{Settings: "impersonation forward"}, nil)
	everyWay(t, px, func(t *testing.T, w way) {
		bearer := scoped()
		a := w.do(t, call{path: "/api"}.bearer(bearer).with(impersonation...))
		if a.Code != http.StatusOK {
			t.Fatalf("code %d: %s", a.Code, a.Body)
		}
		r := w.up.Only(t)
		wantAlice(t, w, r, bearer)
		want := []string{"impersonate-extra-reason: x", "impersonate-group: g1", "impersonate-group: g1", "impersonate-uid: 7", "impersonate-user: bob"}
		if !w.frontProxy() {
			want = nil
			wantWarning(t, a, ignored)
		} else if got := a.Header.Values("Warning"); len(got) > 0 {
			t.Errorf("a warning about what was forwarded: %q", got)
		}
		if diff := cmp.Diff(want, folded(r, "impersonate")); diff != "" {
			t.Errorf("impersonation at the upstream (-want +got):\n%s", diff)
		}
		// Never a subset: Connection takes nothing out of the set.
		if w.protocol == h1 && w.frontProxy() {
			r := w.relayed(t, call{path: "/api"}.bearer(bearer).with("Connection: Impersonate-Group, impersonate-uid").with(impersonation...))
			if diff := cmp.Diff(want, folded(r, "impersonate")); diff != "" {
				t.Errorf("with Connection naming some, at the upstream (-want +got):\n%s", diff)
			}
		}
	})
}

// identitySpellings are names that some server folds to an identity header.
var identitySpellings = []string{
	"X_Remote_User", "X-Remote_User", "X_Remote-User", "X-Remote_Group", "x-REMOTE-user", "X_Remote-Extra_scopes",
	"X_Remote_Uid", "X.Remote.User", "X-Remote.Group", "X.Remote-Extra.scopes", "X_Remote.User", "X-Remote-Extra-a_b", "X-Remote-Extra-a.b",
	"Impersonate_User", "Impersonate.Group", "Impersonate-Extra_a", "impersonate_uid",
	"X_Forwarded_User", "X-Forwarded_Groups", "X.Forwarded.User", "X-Forwarded-User", "X-Forwarded-Groups",
	"X_Forwarded_For", "X.Forwarded.For", "X_Forwarded_Host", "X_Forwarded_Proto",
	"X_Real_Ip", "X.Real.Ip", "X-Real-Ip", "Forwarded", "Proxy-Authorization", "Proxy_Authorization", "Proxy.Authorization",
	"X-Remote-", "X-Remote-Anything", "X_Remote_", "X.Remote.Anything",
}

// wantNoSpelling fails when something of the list, or like it, came.
func wantNoSpelling(t *testing.T, w way, r *rawserver.Request) {
	t.Helper()
	for _, prefix := range []string{"x-forwarded-user", "x-forwarded-groups", "x-real-ip", "forwarded", "proxy-authorization", "impersonate", "cookie"} {
		if got := folded(r, prefix); len(got) > 0 {
			t.Errorf("at the upstream: %v", got)
		}
	}
	want := []string{"x-forwarded-for: 127.0.0.1", "x-forwarded-host: " + w.px.Host, "x-forwarded-proto: https"}
	if diff := cmp.Diff(want, folded(r, "x-forwarded-")); diff != "" {
		t.Errorf("X-Forwarded-* (-want +got):\n%s", diff)
	}
	if strings.Contains(r.Text(), "f0rged") {
		t.Errorf("a forged value went upstream:\n%s", r.Text())
	}
}

// HDR-05, ID-5: no spelling passes, with Caddy's own filter for such names and
// with a configuration that lets them in.
func TestHDR05Spellings(t *testing.T) {
	var underscores, dots []string
	for _, name := range identitySpellings {
		if strings.Contains(name, "_") {
			underscores = append(underscores, name)
		} else if strings.Contains(name, ".") {
			dots = append(dots, name)
		}
	}
	open := startProxy(t, proxy.Options{Global: strings.Join([]string{
		"servers 127.0.0.1:%{port} {",
		"	protocols h1 h2",
		"	expected_underscore_headers X_Other " + strings.Join(underscores, " "),
		"	expected_dot_headers X.Other " + strings.Join(dots, " "),
		"}",
	}, "\n")}, nil)
	for name, px := range map[string]*proxy.Proxy{"Caddy drops them": shared.px, "Caddy lets them in": open} {
		t.Run(name, func(t *testing.T) {
			everyWay(t, px, func(t *testing.T, w way) {
				bearer := scoped()
				c := call{path: "/api"}.bearer(bearer).with("X_Other: a", "X.Other: b")
				for _, spelling := range identitySpellings {
					c = c.with(spelling + ": f0rged")
				}
				r := w.relayed(t, c)
				wantAlice(t, w, r, bearer)
				wantNoSpelling(t, w, r)
				// The test itself: such names really came in.
				if got := len(folded(r, "x-other")); (px == open) != (got == 2) {
					t.Errorf("%d harmless headers of the kind at the upstream", got)
				}
				for _, spelling := range identitySpellings {
					r := w.relayed(t, call{path: "/api"}.bearer(bearer).with(spelling+": f0rged", strings.ToUpper(spelling)+": f0rged"))
					wantAlice(t, w, r, bearer)
					wantNoSpelling(t, w, r)
				}
			})
			for _, cluster := range []string{fpH2, ptH2} {
				t.Run("upgrade to "+cluster, func(t *testing.T) {
					up := shared.ups[cluster]
					up.Reset()
					up.Handle(rawserver.Echo)
					defer up.Handle(nil)
					bearer := scoped()
					c := call{cluster: cluster, path: "/exec"}.bearer(bearer).with("Connection: upgrade", "Upgrade: SPDY/3.1")
					for _, spelling := range identitySpellings {
						c = c.with(spelling + ": f0rged")
					}
					if a := rawclient.MustDial(t, px.Host, px.CA.Pool()).Do(t, c.h1(px)); a.Code != http.StatusSwitchingProtocols {
						t.Fatalf("code %d: %s", a.Code, a.Body)
					}
					w := way{px: px, protocol: h1, cluster: cluster, up: up}
					wantAlice(t, w, up.Only(t), bearer)
					wantNoSpelling(t, w, up.Only(t))
				})
			}
		})
	}
}

// HDR-05: a trailer is merged into the header by more than one server.
func TestHDR05Trailers(t *testing.T) {
	body := "5\r\nhello\r\n0\r\n"
	trailers := "X-Remote-User: f0rged\r\nX_Remote_User: f0rged\r\nX-Remote-Group: system:masters\r\nImpersonate-User: f0rged\r\nAuthorization: Bearer f0rged\r\nX-Other: f0rged\r\n\r\n"
	for _, cluster := range []string{fpH2, fpH1, ptH2, ptH1} {
		w := way{px: shared.px, protocol: h1, cluster: cluster, up: shared.ups[cluster]}
		for name, announced := range map[string][]string{
			"announced":   {"Trailer: X-Remote-User, X-Remote-Group, Impersonate-User, X-Other", "TE: trailers"},
			"unannounced": {"TE: trailers"},
		} {
			t.Run(name+" h1 to "+cluster, func(t *testing.T) {
				w.up.Reset()
				bearer := scoped()
				c := call{method: "POST", cluster: cluster, path: "/api"}.bearer(bearer).with("Transfer-Encoding: chunked").with(announced...)
				a := rawclient.Do(t, w.px.Host, w.px.CA.Pool(), append(c.h1(w.px), body+trailers...))
				if a.Code != http.StatusOK {
					t.Fatalf("code %d: %s", a.Code, a.Body)
				}
				r := w.up.Only(t)
				wantAlice(t, w, r, bearer)
				if r.BodyBytes() != 5 || strings.Contains(r.Text(), "f0rged") || len(r.Trailer()) > 0 {
					t.Errorf("%d bytes of the body, trailers %v, request:\n%s", r.BodyBytes(), r.Trailer(), r.Text())
				}
			})
			t.Run(name+" h2 to "+cluster, func(t *testing.T) {
				w.up.Reset()
				bearer := scoped()
				c := call{method: "POST", cluster: cluster, path: "/api"}.bearer(bearer).with(announced...)
				// net/http itself refuses a trailer that is announced and
				// must not be one, such as Authorization.
				more := []rawclient.Field{{Name: "authorization", Value: "Bearer f0rged"}}
				if len(announced) > 1 {
					more = nil
				}
				s, err := rawclient.MustDialH2(t, w.px.Host, w.px.CA.Pool()).Open(c.h2(w.px), false)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				err = s.Trailers(append(more, rawclient.Field{Name: "x-remote-user", Value: "f0rged"}, rawclient.Field{Name: "x_remote_user", Value: "f0rged"},
					rawclient.Field{Name: "impersonate-user", Value: "f0rged"}, rawclient.Field{Name: "x-other", Value: "f0rged"}))
				if err != nil {
					t.Fatal(err)
				}
				if code, _, err := s.Head(); err != nil || code != http.StatusOK {
					t.Fatalf("code %d, %v", code, err)
				}
				r := w.up.Only(t)
				wantAlice(t, w, r, bearer)
				if r.BodyBytes() != 5 || strings.Contains(r.Text(), "f0rged") || len(r.Trailer()) > 0 {
					t.Errorf("%d bytes of the body, trailers %v, request:\n%s", r.BodyBytes(), r.Trailer(), r.Text())
				}
			})
		}
	}
}
