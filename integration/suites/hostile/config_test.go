package hostile

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// composed is the composed form of `proxyauth /clusters/*` with changes.
func composed(handlers ...string) string {
	return "route /clusters/* {\n" + strings.Join(handlers, "\n") + "\n}"
}

func reverseProxy(upstreams string, lines ...string) string {
	return "\treverse_proxy " + upstreams + " {\n\t\t" + strings.Join(lines, "\n\t\t") + "\n\t}"
}

const (
	authenticate = "\tproxyauth_authenticate"
	dynamic      = "dynamic proxyauth"
	transport    = "transport proxyauth"
)

// CONF-1: the transport relays what its own handler decided, to the upstream
// that its own source named, and nothing else: a configuration that is put
// together wrongly is a 502 for every request, and nothing is sent anywhere.
func TestCONF1Misconfigured(t *testing.T) {
	// What a wrong configuration might talk to.
	other := rawserver.Start(t, rawserver.Options{NoIdentity: true})
	static := other.Host
	tests := map[string]string{
		"a static upstream alone":                 composed(authenticate, reverseProxy(static, transport)),
		"a static upstream beside it":             composed(authenticate, reverseProxy(static, dynamic, transport)),
		"two static upstreams beside it":          composed(authenticate, reverseProxy(static+" "+static, dynamic, transport, "lb_policy first")),
		"another dynamic source":                  composed(authenticate, reverseProxy("", "dynamic a 127.0.0.1 "+portOf(static), transport)),
		"no handler":                              composed(reverseProxy("", dynamic, transport)),
		"no handler, a static upstream":           composed(reverseProxy(static, transport)),
		"no handler, a static upstream beside it": composed(reverseProxy(static, dynamic, transport)),
		"the wrong order":                         composed(reverseProxy("", dynamic, transport), authenticate),
		"the wrong order, a static upstream":      composed(reverseProxy(static, dynamic, transport), authenticate),
		"two proxies, the first of them wrong":    composed(authenticate, reverseProxy(static, transport), reverseProxy("", dynamic, transport)),
		"no proxy behind the handler":             composed(authenticate, "\trespond \"hello\" 200\n\t@never path /never"),
		"a health check over the transport":       composed(authenticate, reverseProxy(static, dynamic, transport, "health_uri /healthz", "health_interval 1s")),
		"a fallback upstream with retries":        composed(authenticate, reverseProxy(static, dynamic, transport, "lb_retries 3", "lb_try_duration 1s")),
	}
	for name, directive := range tests {
		t.Run(name, func(t *testing.T) {
			other.Reset()
			px := startProxy(t, proxy.Options{Directive: directive}, nil)
			everyWay(t, px, func(t *testing.T, w way) {
				a := w.do(t, call{path: "/api"}.asAlice())
				switch name {
				case "no proxy behind the handler":
					// What stands behind the handler instead may answer.
					if a.Code != http.StatusOK {
						t.Errorf("code %d", a.Code)
					}
				default:
					wantStatus(t, a, http.StatusBadGateway, "")
				}
				w.up.None(t)
				if !strings.Contains(directive, "authenticate") || name == "no proxy behind the handler" {
					return
				}
				if strings.Index(directive, "authenticate") < strings.Index(directive, "reverse_proxy") {
					w.refused(t, call{path: "/api"}, http.StatusUnauthorized, "")
				}
			})
			if a := upgradeTo(t, px, call{cluster: fpH2, path: "/api"}.asAlice(), "SPDY/3.1"); a.Code == http.StatusSwitchingProtocols {
				t.Error("an upgrade was relayed")
			}
			for _, r := range other.AllRequests() {
				t.Errorf("went to the other upstream: %v", r)
			}
		})
	}
	t.Run("another transport is refused with the configuration", func(t *testing.T) {
		for _, transport := range []string{"transport http {\n\t\t\ttls\n\t\t}", "transport fastcgi", ""} {
			_, err := proxy.New(t.Context(), t.TempDir(), proxy.Options{Directive: composed(authenticate, reverseProxy("", dynamic, transport))})
			if err == nil || !strings.Contains(err.Error(), "need transport proxyauth") {
				t.Errorf("%q: %v", transport, err)
			}
		}
	})
	t.Run("put together rightly", func(t *testing.T) {
		px := startProxy(t, proxy.Options{Directive: composed(authenticate, reverseProxy("", dynamic, transport, "stream_close_delay 24h", "flush_interval -1"))}, nil)
		everyWay(t, px, func(t *testing.T, w way) {
			bearer := scoped()
			wantAlice(t, w, w.relayed(t, call{path: "/api"}.bearer(bearer)), bearer)
		})
	})
	// Handlers of the proxy admin before and after cannot make an identity.
	t.Run("header directives cannot make an identity", func(t *testing.T) {
		px := startProxy(t, proxy.Options{Directive: composed(
			"\trequest_header X-Remote-User f0rged\n\trequest_header +X-Remote-Group f0rged", authenticate,
			"\trequest_header X-Remote-User f0rged\n\trequest_header -X-Remote-Group",
			reverseProxy("", dynamic, transport, "header_up X-Remote-User f0rged", "header_up +X-Remote-Group f0rged", "header_up -X-Remote-Extra-*", "header_up Authorization f0rged", "header_up X-Admin yes"))}, nil)
		everyWay(t, px, func(t *testing.T, w way) {
			bearer := scoped()
			r := w.relayed(t, call{path: "/api"}.bearer(bearer))
			wantAlice(t, w, r, bearer)
			if got := r.Lines("X-Admin"); !slices.Equal(got, []string{"yes"}) {
				t.Errorf("X-Admin %q", got)
			}
		})
	})
}

func portOf(host string) string { return host[strings.LastIndexByte(host, ':')+1:] }

// hostForm is a proxy with the host form on *.k8s.test, one fixed cluster on
// fixed.test, and a catch-all on everything else.
func hostForm(t *testing.T, settings string) *proxy.Proxy {
	t.Helper()
	site := func(address, directive string) string {
		return address + ":%{port} {\n\tbind 127.0.0.1\n\ttls %{cert} %{key}\n\t" + directive + "\n}\n"
	}
	return startProxy(t, proxy.Options{
		Settings: settings,
		Sites: site("https://*.k8s.test", "proxyauth {\n\t\tcluster team-a/{labels.2}\n\t}") +
			site("https://fixed.test", "proxyauth {\n\t\tcluster team-a/cluster-a\n\t}") +
			site("https://nobody.test", "proxyauth {\n\t\tcluster {http.request.header.X-Cluster}\n\t}") +
			site("https://", "proxyauth"),
	}, nil)
}

// URL-2: in the host form the name of the host is the cluster, and the path is
// the apiserver's whole; everything else is a 404 Status.
func TestURL2HostForm(t *testing.T) {
	px := hostForm(t, "")
	everyWay(t, px, func(t *testing.T, w way) {
		bearer := scoped()
		host := w.cluster + ".k8s.test"
		for _, target := range []string{"/api/v1/pods?limit=1", "/", "/?x", "//api", "/clusters/team-a/none/api", "/CLUSTERS/x", `/"<>é`} {
			for _, h := range []string{host, host + ":443", strings.ToUpper(host)} {
				r := w.relayed(t, call{host: h, target: target}.bearer(bearer))
				wantAlice(t, w, r, bearer)
				w.wantTarget(t, r, target)
				if got := r.Lines("X-Forwarded-Host"); !slices.Equal(got, []string{h}) {
					t.Errorf("X-Forwarded-Host %q, want %q", got, h)
				}
			}
		}
		w.refused(t, call{host: host, target: "/api"}, http.StatusUnauthorized, "")
		w.refused(t, call{host: host, target: "/api/../x"}.bearer(bearer), http.StatusBadRequest, "dot segment")
		w.refused(t, call{host: host, target: "/api/%2E%2e/x"}.bearer(bearer), http.StatusBadRequest, "dot segment")
		w.refused(t, call{host: host, target: "/api", method: "TRACE"}.bearer(bearer), http.StatusMethodNotAllowed, "not allowed")
		for _, h := range []string{"none.k8s.test", "x." + host, "k8s.test", host + ".", "..k8s.test", "elsewhere.test", "cluster_a.k8s.test", "*.k8s.test", "%63luster-a.k8s.test", "team-a.k8s.test"} {
			a := w.do(t, call{host: h, target: "/api"}.bearer(bearer))
			if a.Code != http.StatusBadRequest || a.Body != "" { // Caddy's own answer to a host that cannot be
				wantStatus(t, a, http.StatusNotFound, "no such cluster")
			}
			w.up.None(t)
		}
		// A placeholder that the client fills in can name a cluster, and
		// nothing more than that.
		if r := w.relayed(t, call{host: "nobody.test", target: "/api"}.bearer(bearer).with("X-Cluster: team-a/"+w.cluster)); r.Target != "/api" {
			t.Errorf("target %q", r.Target)
		}
		for _, value := range []string{"", "team-a", "team-a/", "/" + w.cluster, "team-a/" + w.cluster + "/x", "team-a/" + w.cluster + "/../x", "TEAM-A/" + w.cluster, "team-a/{labels.2}", "team-a%2F" + w.cluster, "team-a/" + w.cluster + " ", "../" + w.cluster} {
			c := call{host: "nobody.test", target: "/api"}.bearer(bearer)
			if value != "" {
				c = c.with("X-Cluster: " + value)
			}
			if strings.TrimSpace(value) == "team-a/"+w.cluster {
				continue // white space around a value is none of it
			}
			w.refused(t, c, http.StatusNotFound, "no such cluster")
		}
	})
	t.Run("catch-all", func(t *testing.T) {
		for _, target := range []string{"/", "/api", "/version", "/metrics", "/clusters", "/clusters/", "/CLUSTERS/team-a/cluster-a", "/index.html"} {
			bothProtocols(t, func(t *testing.T, protocol string) {
				w := way{px: px, protocol: protocol, up: shared.ups[fpH2]}
				w.refused(t, call{host: "elsewhere.test", target: target}.asAlice(), http.StatusNotFound, "no such cluster")
				// It has the path form, too.
				if r := w.relayed(t, call{host: "elsewhere.test", cluster: fpH2, path: "/api"}.asAlice()); r.Target != "/api" {
					t.Errorf("%v", r)
				}
			})
		}
	})
	t.Run("a fixed cluster", func(t *testing.T) {
		bothProtocols(t, func(t *testing.T, protocol string) {
			w := way{px: px, protocol: protocol, up: shared.ups[fpH2]}
			for _, target := range []string{"/api", "/clusters/team-a/cluster-h1/api"} {
				if r := w.relayed(t, call{host: "fixed.test", target: target}.asAlice()); r.Target != target {
					t.Errorf("target %q", r.Target)
				}
			}
		})
	})
	t.Run("upgrade", func(t *testing.T) {
		up := shared.ups[fpH2]
		up.Reset()
		up.Handle(rawserver.Echo)
		defer up.Handle(nil)
		if a := upgradeTo(t, px, call{host: fpH2 + ".k8s.test", target: "/exec?x"}.asAlice(), "SPDY/3.1"); a.Code != http.StatusSwitchingProtocols || up.Only(t).Target != "/exec?x" {
			t.Errorf("%d, %v", a.Code, up.Requests())
		}
		wantStatus(t, upgradeTo(t, px, call{host: "none.k8s.test", target: "/exec?x"}.asAlice(), "SPDY/3.1"), http.StatusNotFound, "no such cluster")
	})
	t.Run("the authority counts, not a host beside it", func(t *testing.T) {
		w := way{px: px, protocol: h2, up: shared.ups[fpH2]}
		w.up.Reset()
		shared.ups[fpH1].Reset()
		fields := append(call{host: fpH2 + ".k8s.test", target: "/api"}.asAlice().h2(px), rawclient.Field{Name: "host", Value: fpH1 + ".k8s.test"})
		s, err := rawclient.MustDialH2(t, px.Host, px.CA.Pool()).Open(fields, true)
		if err != nil {
			t.Fatal(err)
		}
		if code, _, err := s.Head(); err == nil && code == http.StatusOK && len(w.up.Requests()) != 1 {
			t.Errorf("code %d, requests %v", code, w.up.Requests())
		}
		shared.ups[fpH1].None(t)
	})
}

// ID-5: cookies stay between a client and the proxy, since all clusters of the
// path form share an origin; proxy_cookies lets them through in the host form,
// where each has its own.
func TestID5Cookies(t *testing.T) {
	for _, setting := range []string{"", "proxy_cookies off", "proxy_cookies on"} {
		t.Run(setting, func(t *testing.T) {
			px := hostForm(t, setting)
			everyWay(t, px, func(t *testing.T, w way) {
				set := []rawserver.Field{{Name: "Set-Cookie", Value: "a=1; Path=/"}, {Name: "set-cookie", Value: "b=2"}, {Name: "Set-Cookie2", Value: "c=3"}, {Name: "X-Remote-User", Value: "said by the apiserver"}}
				w.up.Handle(rawserver.Answer(http.StatusOK, "text/plain", []byte("x"), set...))
				defer w.up.Handle(nil)
				for form, c := range map[string]call{"path": {path: "/api"}, "host": {host: w.cluster + ".k8s.test", target: "/api"}} {
					a := w.do(t, c.asAlice().with("Cookie: session=1", "cookie: other=2"))
					if a.Code != http.StatusOK {
						t.Fatalf("code %d: %s", a.Code, a.Body)
					}
					pass := form == "host" && setting == "proxy_cookies on"
					sent := strings.Join(w.up.Only(t).Lines("Cookie"), "; ")
					if want := map[bool]string{true: "session=1; other=2"}[pass]; sent != want {
						t.Errorf("%s form: Cookie at the upstream %q, want %q", form, sent, want)
					}
					if got := a.Header.Values("Set-Cookie"); pass != slices.Equal(got, []string{"a=1; Path=/", "b=2"}) || !pass && len(got) > 0 {
						t.Errorf("%s form: Set-Cookie %q", form, got)
					}
					if got := a.Header.Values("X-Remote-User"); !slices.Equal(got, []string{"said by the apiserver"}) {
						t.Errorf("what an answer says of X-Remote-User is the apiserver's: %q", got)
					}
				}
				if w.protocol == h2 {
					return
				}
				// On upgrades, accepted and refused.
				w.up.Handle(func(rw *rawserver.Writer, r *rawserver.Request) {
					rw.Raw([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nSet-Cookie: a=1\r\n\r\n"))
				})
				for form, c := range map[string]call{"path": {cluster: w.cluster, path: "/exec"}, "host": {host: w.cluster + ".k8s.test", target: "/exec"}} {
					w.up.Reset()
					a := upgradeTo(t, px, c.asAlice().with("Cookie: session=1"), "SPDY/3.1")
					pass := form == "host" && setting == "proxy_cookies on"
					if got := a.Header.Values("Set-Cookie"); a.Code != http.StatusSwitchingProtocols || (len(got) > 0) != pass || (len(w.up.Only(t).Lines("Cookie")) > 0) != pass {
						t.Errorf("%s form, upgrade: %d %v", form, a.Code, a.Header)
					}
				}
			})
		})
	}
}
