package hostile

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// upgradeTo asks for an upgrade on a connection of its own.
func upgradeTo(t *testing.T, px *proxy.Proxy, c call, protocol string) rawclient.Answer {
	t.Helper()
	return rawclient.MustDial(t, px.Host, px.CA.Pool()).Do(t, c.with("Connection: Upgrade", "Upgrade: "+protocol).h1(px))
}

// URL-01, URL-3: base path and rest are joined with one slash, on plain and
// upgrade paths.
func TestURL01BasePath(t *testing.T) {
	ups := map[string]*rawserver.Server{"h2": rawserver.Start(t, rawserver.Options{}), "h1": rawserver.Start(t, rawserver.Options{Protocols: []string{"http/1.1"}})}
	bases := map[string]struct{ written, want string }{
		"none": {"", ""}, "slash": {"/", ""}, "base": {"/k8s/c-1", "/k8s/c-1"}, "base-slash": {"/k8s/c-1/", "/k8s/c-1"},
		"escaped": {"/k8s/a%2Fb%20c", "/k8s/a%2Fb%20c"}, "like-ours": {"/clusters/x/y", "/clusters/x/y"},
	}
	clusters := map[string]string{}
	for name, base := range bases {
		for protocol, up := range ups {
			cluster := name + "-" + protocol
			clusters[cluster+".yaml"] = frontProxyWith(cluster, up, up.FrontProxy(1), proxy.Authenticator(shared.idp), func(s *v1.ProxyKubeApiSpec) {
				s.Service.ExternalService.URL = up.URL + base.written
			})
		}
	}
	px := proxy.Start(t, proxy.Options{Manifests: clusters})
	for name, base := range bases {
		for protocol, up := range ups {
			cluster := name + "-" + protocol
			px.MustServe(t, ns, cluster)
			t.Run(cluster, func(t *testing.T) {
				for _, rest := range []string{"/api/v1/pods?limit=1", "/api/v1/pods", execPath, "/", "", "?limit=1", "/?limit=1", "//api", "/api/", "/apis/a%2Fb?x=%2F&y"} {
					want := base.want + rest
					if !strings.HasPrefix(rest, "/") {
						want = base.want + "/" + rest
					}
					bothProtocols(t, func(t *testing.T, client string) {
						w := way{px: px, protocol: client, cluster: cluster, up: up}
						if got := w.relayed(t, call{path: rest}.asAlice()).Target; got != want {
							t.Errorf("%q: target %q, want %q", rest, got, want)
						}
					})
					up.Reset()
					up.Handle(rawserver.Echo)
					defer up.Handle(nil)
					if a := upgradeTo(t, px, call{cluster: cluster, path: rest}.asAlice(), "SPDY/3.1"); a.Code != http.StatusSwitchingProtocols {
						t.Fatalf("upgrade %q: code %d: %s", rest, a.Code, a.Body)
					}
					if r := up.Only(t); r.Target != want {
						t.Errorf("upgrade %q: target %q, want %q", rest, r.Target, want)
					}
					up.Handle(nil)
				}
				// The probes went through the same base.
				for _, r := range up.AllRequests() {
					if r.Probe && r.Target != base.want+"/version" && !strings.HasPrefix(r.Target, base.want+"/apis/authentication") {
						t.Errorf("the probe asked %q", r.Target)
					}
				}
			})
		}
	}
	t.Run("refused at admission", func(t *testing.T) {
		up := ups["h2"]
		for name, suffix := range map[string]string{
			"query": "/k8s?x=1", "question-mark": "/k8s?", "fragment": "/k8s#x", "hash": "#", "user": "", "http": "",
		} {
			url := up.URL + suffix
			switch name {
			case "user":
				url = strings.Replace(up.URL, "https://", "https://alice:secret@", 1)
			case "http":
				url = strings.Replace(up.URL, "https://", "http://", 1)
			}
			px.MustWrite(t, "bad-"+name+".yaml", proxy.FrontProxyCluster(ns, "bad-"+name, url, up.ServerCA, prefix, proxy.Authenticator(shared.idp)))
			s := px.MustCluster(t, ns, "bad-"+name, func(s *proxy.ClusterStatus) bool { return s.Ready() != "" })
			if s.Ready() != "False/InvalidSpec" || s.Status.Error == nil || !strings.Contains(*s.Status.Error, "url") {
				t.Errorf("%s: %s, %+v", url, s.Ready(), s.Status)
			}
		}
	})
}

// wholeSite is a proxy whose site has the directive without a matcher: every
// request of the site is the handler's.
func wholeSite(t *testing.T) *proxy.Proxy {
	t.Helper()
	return startProxy(t, proxy.Options{Directive: "proxyauth"}, nil)
}

// URL-1: one spelling names a cluster.
func TestURL1Spellings(t *testing.T) {
	px := wholeSite(t)
	targets := []string{
		"/CLUSTERS/team-a/cluster-a/api", "/Clusters/team-a/cluster-a/api", "/clusterS/team-a/cluster-a",
		"//clusters/team-a/cluster-a/api", "///clusters/team-a/cluster-a/api", "/clusters//team-a/cluster-a/api", "/clusters/team-a//cluster-a/api",
		"/%63lusters/team-a/cluster-a/api", "/cluster%73/team-a/cluster-a/api", "%2Fclusters/team-a/cluster-a/api",
		"/clusters%2Fteam-a/cluster-a/api", "/clusters%2fteam-a%2fcluster-a/api", "/clusters/team-a%2Fcluster-a/api", "/clusters/team-a/cluster-a%2Fapi",
		"/clusters/team-%61/cluster-a/api", "/clusters/team-a/cluster%2Da/api", "/clusters/team-a/cluster-a%00/api", "/clusters/team-a/cluster-a%20/api",
		"/clusters/Team-A/cluster-a/api", "/clusters/team-a/Cluster-a/api", "/clusters/team-a/cluster_a/api", "/clusters/team-a/cluster-a;v=1/api",
		"/clusters/team-a/cluster-a:443/api", "/clusters/team-a/cluster-a,x/api", "/clusters/team-a/cluster-a@x/api", "/clusters/team-a/cluster-a\\api",
		"/clusters/team-a/clust\u00e9r-a/api", "/clusters/team-a/cluster-\u0430/api",
		"/clusters/./team-a/cluster-a/api", "/clusters/team-a/./cluster-a/api", "/x/../clusters/team-a/cluster-a/api", "/./clusters/team-a/cluster-a/api",
		"/clusters/../clusters/team-a/cluster-a/api", "/clusters/team-a/../team-a/cluster-a/api", "/clusters/..%2fclusters/team-a/cluster-a/api",
		"/clusters/team-a/cluster-a./api", "/clusters/team-a/.cluster-a/api", "/clusters/team-a/cluster-a..", "/clusters/team-a/...",
		"/clusters/team-a", "/clusters/team-a/", "/clusters/team-a//", "/clusters/", "/clusters", "/", "/api", "/version", "/clusters/team-a/none/api", "/clusters/none/cluster-a/api",
		"/clusters/team-a/cluster-b", "/clusters/team-a/cluster-aa", "/clusters/team-a/cluster-", "/clusters/team-a?/cluster-a/api", "/clusters/team-a/?cluster-a", "/clusters?/team-a/cluster-a/api",
		"/xclusters/team-a/cluster-a/api", "/clusters/team-a/cluster-a/api/../../../../clusters2"[:0] + "/clusters/team-a/" + strings.Repeat("a", 4000) + "/api",
	}
	for _, target := range targets {
		t.Run(target[:min(len(target), 60)], func(t *testing.T) {
			bothProtocols(t, func(t *testing.T, protocol string) {
				if !strings.HasPrefix(target, "/") {
					return
				}
				for _, c := range []call{call{target: target}.asAlice(), {target: target}, call{target: target, method: "POST", body: []byte("{}")}.asAlice()} {
					w := way{px: px, protocol: protocol, up: shared.ups[fpH2]}
					w.refused(t, c, http.StatusNotFound, "no such cluster")
				}
				// Behind the matcher of the examples it is no cluster either: the
				// proxy or Caddy answers.
				w := way{px: shared.px, protocol: protocol, up: shared.ups[fpH2]}
				if a := w.do(t, call{target: target}.asAlice()); a.Code != http.StatusNotFound && a.Body != "" {
					t.Errorf("with the matcher: code %d: %s", a.Code, a.Body)
				}
				w.up.None(t)
			})
			if strings.HasPrefix(target, "/") {
				wantStatus(t, upgradeTo(t, px, call{target: target}.asAlice(), "websocket"), http.StatusNotFound, "no such cluster")
			}
		})
	}
	for _, target := range []string{"*", "/clusters/team-a/cluster-a/%zz", "/clusters/team-a/cluster-a/%", "clusters/team-a/cluster-a/api", "%2Fclusters/team-a/cluster-a/api", ""} {
		t.Run("no path: "+target, func(t *testing.T) {
			w := way{px: px, protocol: h1, up: shared.ups[fpH2]}
			w.up.Reset()
			c := rawclient.MustDial(t, px.Host, px.CA.Pool())
			if err := c.Send(rawclient.Request("GET", target, px.Host, "Authorization: Bearer "+token(nil))); err != nil {
				t.Fatal(err)
			}
			resp, err := c.Head("GET")
			if err == nil && resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
				t.Errorf("h1: code %d", resp.StatusCode)
			}
			s, err := rawclient.MustDialH2(t, px.Host, px.CA.Pool()).Open(rawclient.Fields("GET", px.Host, target, rawclient.Field{Name: "authorization", Value: "Bearer " + token(nil)}), true)
			if err != nil {
				t.Fatal(err)
			}
			if code, _, err := s.Head(); err == nil && code != http.StatusBadRequest && code != http.StatusNotFound {
				t.Errorf("h2: code %d", code)
			}
			w.up.None(t)
		})
	}
}

// URL-1: the absolute form (RFC 9112, section 3.2.2) names the same cluster.
func TestURL1AbsoluteForm(t *testing.T) {
	for _, cluster := range []string{fpH2, fpH1, ptH2} {
		up := shared.ups[cluster]
		w := way{px: shared.px, protocol: h1, cluster: cluster, up: up}
		base := shared.px.URL + "/clusters/" + ns + "/" + cluster
		for target, want := range map[string]string{
			base + "/api/v1/pods?limit=1": "/api/v1/pods?limit=1",
			base + "/a%2Fb?":              "/a%2Fb?",
			base:                          "/",
			base + "?x=1":                 "/?x=1",
			base + "//api":                "//api",
			strings.Replace(base, "https:", "HTTPS:", 1) + "/x": "/x",
			strings.Replace(base, "https:", "http:", 1) + "/x":  "/x",
			base + "/a://b/c?d://e":                             "/a://b/c?d://e",
		} {
			t.Run(target, func(t *testing.T) {
				// The Host line is ignored then.
				for _, host := range []string{"", "elsewhere.test", "localhost"} {
					if got := w.relayed(t, call{target: target, host: host}.asAlice()).Target; got != want {
						t.Errorf("target %q, want %q", got, want)
					}
				}
			})
		}
		for target, code := range map[string]int{
			base + "/../x":     http.StatusBadRequest,
			base + "/%2e%2e/x": http.StatusBadRequest,
			strings.Replace(base, "clusters", "CLUSTERS", 1):     http.StatusNotFound,
			strings.Replace(base, "/clusters", "//clusters", 1):  http.StatusNotFound,
			strings.Replace(base, "clusters", "%63lusters", 1):   http.StatusNotFound,
			strings.Replace(base, "/clusters", "/x/clusters", 1): http.StatusNotFound,
			"https://elsewhere.test/clusters/team-a/cluster-a":   http.StatusOK, // Caddy's: no such host
			"https:///clusters/team-a/cluster-a":                 0,
		} {
			t.Run(target, func(t *testing.T) {
				up.Reset()
				c := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
				if err := c.Send(call{target: target, host: "elsewhere.test"}.asAlice().h1(shared.px)); err != nil {
					t.Fatal(err)
				}
				if resp, err := c.Head("GET"); code != 0 && (err != nil || resp.StatusCode != code) {
					t.Errorf("%v, %+v, want %d", err, resp, code)
				}
				up.None(t)
			})
		}
	}
}

// odd are rests of paths that a library would rewrite.
var odd = []string{
	"/", "//", "///", "//api", "/api//v1", "/api/", "/api//", "/a/b/", "/;", "/a;b=c/d", "/a%2Fb", "/a%2fb%2F", "/%41%5A%7e", "/%c3%a9", "/é", "/日本/\u200b",
	`/"<>^{|}`, "/`", `/a\b`, "/[x]", "/a'b(c)*d!e$f&g,h=i+j@k:l~m", "/a#b", "/%23", "/%3F", "/%20", "/%00", "/%0d%0aX-Remote-User:%20root", "/%", // the last is skipped
	"/a%252Fb", "/%252e%252e/x", "/.../x", "/..;/x", "/.a/b.", "/a..b", "/\xff\xfe", "//evil.test/api", "//\"x\"/y", "//é", "/http://evil.test/", "/clusters/team-a/cluster-h1/api",
	"/api?", "/api??", "/?", "/api?a=b&a=c&&", "/api?a=%2F%20+%zz", `/api?"<>^{|}` + "`", "/api?é=日本", "/api?a=b#c", "/api?a;b;c", "/api?%", "/api?/../x", "/api?x=//y", "/api?\xff",
	"/api?watch=true&labelSelector=a%3Db,c+in+(d,e)", "//?", "/é?é", "/a b", "/api?a b", // the last two are refused
	"/" + strings.Repeat("long/", 2000),
}

// URL-3: rest and query go upstream byte for byte, over both protocols, and on
// upgrades.
func TestURL3Bytes(t *testing.T) {
	everyWay(t, shared.px, func(t *testing.T, w way) {
		for _, rest := range odd {
			if rest == "/%" || strings.Contains(rest, " ") {
				continue
			}
			w.wantTarget(t, w.relayed(t, call{path: rest}.asAlice()), rest)
		}
		if w.protocol == h2 {
			return
		}
		w.up.Handle(rawserver.Echo)
		defer w.up.Handle(nil)
		for _, rest := range odd {
			if rest == "/%" || strings.Contains(rest, " ") {
				continue
			}
			w.up.Reset()
			if a := upgradeTo(t, w.px, call{cluster: w.cluster, path: rest}.asAlice(), "SPDY/3.1"); a.Code != http.StatusSwitchingProtocols {
				t.Errorf("upgrade %q: code %d: %s", rest, a.Code, a.Body)
				continue
			}
			w.wantTarget(t, w.up.Only(t), rest)
		}
	})
}

// wantTarget compares the request target at the upstream. In HTTP/1.1 a path
// that begins with two slashes and has bytes that net/http would rewrite goes
// in the absolute form, which means the same (RFC 9112, section 3.2.2).
func (w way) wantTarget(t *testing.T, r *rawserver.Request, want string) {
	t.Helper()
	got := r.Target
	if strings.HasPrefix(want, "//") {
		got = strings.TrimPrefix(got, w.up.URL)
	}
	if got != want {
		t.Errorf("target %q, want %q", r.Target, want)
	}
	if r.Host != w.up.Host {
		t.Errorf("host %q of %q", r.Host, want)
	}
}

// URL-3: only HTTP/2 can carry white space and control characters in a path;
// an HTTP/1.1 request line could be cut by them.
func TestURL3NoSpace(t *testing.T) {
	for _, cluster := range []string{fpH2, fpH1, ptH1} {
		for _, rest := range []string{"/a b", "/api?a b", "/api HTTP/1.1\r\nX-Remote-User: root", "/a\tb", "/a\x00b", "/a\x7f", "/api?a\r\nb"} {
			t.Run(cluster+" "+rest, func(t *testing.T) {
				up := shared.ups[cluster]
				up.Reset()
				s, err := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool()).Open(call{cluster: cluster, path: rest}.asAlice().h2(shared.px), true)
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
}

// URL-4: a dot segment in the form that an apiserver decodes is a 400, however
// it is written.
func TestURL4DotSegments(t *testing.T) {
	px := wholeSite(t)
	var rests []string
	for _, dots := range []string{".", "..", "%2e", "%2E", ".%2e", "%2e.", "%2e%2E", "%2E%2e"} {
		rests = append(rests, "/"+dots, "/"+dots+"/", "/api/"+dots, "/api/"+dots+"/v1", "//"+dots+"//x", "/a%2F"+dots+"%2Fb", "/a%2f"+dots, "/"+dots+"%2Fapi", "/a/b/"+dots+"?x=y", "/"+dots+"/"+dots)
	}
	everyWay(t, px, func(t *testing.T, w way) {
		if w.cluster != fpH2 && w.cluster != ptH1 {
			return // refused before it matters
		}
		for _, rest := range rests {
			w.refused(t, call{path: rest}.asAlice(), http.StatusBadRequest, "path has a dot segment")
			// The path is looked at before the credential (section 3).
			w.refused(t, call{path: rest}, http.StatusBadRequest, "path has a dot segment")
			if w.protocol == h1 {
				wantStatus(t, upgradeTo(t, px, call{cluster: w.cluster, path: rest}.asAlice(), "websocket"), http.StatusBadRequest, "path has a dot segment")
			}
			// Caddy's matcher sees the cleaned path. That may lead to no site, but
			// never to the cluster.
			behind := w
			behind.px = shared.px
			if a := behind.do(t, call{path: rest}.asAlice()); a.Code != http.StatusBadRequest && a.Body != "" {
				t.Errorf("%q with the matcher: code %d: %s", rest, a.Code, a.Body)
			}
			w.up.None(t)
		}
	})
}
