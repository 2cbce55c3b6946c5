package upstream

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// RELAY-4: where a redirect of an apiserver may lead.
func TestRedirectsRewrite(t *testing.T) {
	pathForm := Redirects{Target: k8swatch.Target{Host: "10.0.0.10:6443"}, Prefix: "/clusters/team-a/prod"}
	hostForm := Redirects{Target: k8swatch.Target{Host: "up.example.test"}}
	based := Redirects{Target: k8swatch.Target{Host: "up.example.test", BasePath: "/k8s/c-1"}, Prefix: "/clusters/team-a/prod"}
	const refused = "refused"
	tests := []struct {
		name      string
		redirects Redirects
		request   string
		location  string
		want      string
	}{
		{"openapi hash", pathForm, "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=0A", "/clusters/team-a/prod/openapi/v3/apis/apps/v1?hash=0A"},
		{"proxy subresource", pathForm, "/api/v1/namespaces/a/services/x/proxy", "/api/v1/namespaces/a/services/x/proxy/", "/clusters/team-a/prod/api/v1/namespaces/a/services/x/proxy/"},
		{"query alone", pathForm, "/openapi/v3/apis", "?hash=1", "/clusters/team-a/prod/openapi/v3/apis?hash=1"},
		{"relative", pathForm, "/api/v1/x", "y/z", "/clusters/team-a/prod/api/v1/y/z"},
		{"own address", pathForm, "/x", "https://10.0.0.10:6443/api", "/clusters/team-a/prod/api"},
		{"own address without a path", pathForm, "/x", "https://10.0.0.10:6443", "/clusters/team-a/prod/"},
		{"own address in capitals", hostForm, "/x", "HTTPS://UP.example.test:443/api", "/api"},
		{"escaped bytes stay", pathForm, "/x", "/api/v1/a%2Fb?c=%20#d", "/clusters/team-a/prod/api/v1/a%2Fb?c=%20#d"},
		{"own public path", pathForm, "/x", "/clusters/team-a/prod/api", "/clusters/team-a/prod/api"},
		{"host form", hostForm, "/x", "/api?x=1", "/api?x=1"},
		{"path base", based, "/k8s/c-1/x", "/k8s/c-1/api", "/clusters/team-a/prod/api"},
		{"path base, relative", based, "/k8s/c-1/x", "y", "/clusters/team-a/prod/y"},
		{"path base alone", based, "/k8s/c-1/x", "/k8s/c-1", "/clusters/team-a/prod/"},
		{"empty", pathForm, "/x", "", ""},
		{"dots in a name", pathForm, "/x", "/apis/a.b/...", "/clusters/team-a/prod/apis/a.b/..."},

		{"another host", pathForm, "/x", "http://attacker:8080/x", refused},
		{"another host by https", pathForm, "/x", "https://attacker/x", refused},
		{"own host, another port", pathForm, "/x", "https://10.0.0.10:443/x", refused},
		{"own host by http", hostForm, "/x", "http://up.example.test/x", refused},
		{"user information", hostForm, "/x", "https://up.example.test@attacker/x", refused},
		{"user information and own host", hostForm, "/x", "https://a@up.example.test/x", refused},
		{"host without scheme", pathForm, "/x", "//attacker/x", refused},
		{"host behind a path base", Redirects{Target: based.Target}, "/k8s/c-1/x", "/k8s/c-1//attacker/x", refused},
		{"three slashes", hostForm, "/x", "///attacker/x", refused},
		{"opaque", pathForm, "/x", "https:attacker", refused},
		{"one slash", pathForm, "/x", "https:/attacker", refused},
		{"another scheme", pathForm, "/x", "javascript:alert(1)", refused},
		{"another cluster", pathForm, "/x", "/clusters/team-a/victim/api/v1/namespaces/production", refused},
		{"another cluster from the host form", hostForm, "/x", "/clusters/team-a/victim/api", refused},
		{"another cluster behind a path base", Redirects{Target: based.Target}, "/k8s/c-1/x", "/k8s/c-1/clusters/team-a/victim/api", refused},
		{"another cluster by a relative path", hostForm, "/x", "clusters/team-a/victim/api", refused},
		{"a name that begins alike", pathForm, "/x", "/clusters/team-a/prod-2/api", refused},
		{"dot segments to another cluster", pathForm, "/x", "/api/../../victim/api", refused},
		{"escaped dot segments", pathForm, "/x", "/api/%2e%2e/%2E./victim", refused},
		{"escaped twice", pathForm, "/x", "/api/%252e%252e/victim", refused},
		{"escaped slash with dots", pathForm, "/x", "/api/..%2fvictim", refused},
		{"dot segment with a parameter", pathForm, "/x", "/api/..;x/victim", refused},
		{"relative dot segments", pathForm, "/api/v1/x", "../../victim/api", refused},
		{"backslash", hostForm, "/x", `/\attacker/x`, refused},
		{"escaped backslash", hostForm, "/x", "/%5Cattacker/x", refused},
		{"space in front", hostForm, "/x", " https://attacker/x", refused},
		{"tab", hostForm, "/x", "/\t/attacker", refused},
		{"not ASCII", hostForm, "/x", "/é", refused},
		{"outside of the path base", based, "/k8s/c-1/x", "/k8s/c-2/api", refused},
		{"a base that begins alike", based, "/k8s/c-1/x", "/k8s/c-10/api", refused},
		{"too long", pathForm, "/x", "/" + strings.Repeat("a", maxLocation), refused},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, code := range []int{201, 301, 302, 303, 307, 308} {
				h := http.Header{"Location": {tt.location}, "Content-Type": {"text/html"}}
				err := tt.redirects.Rewrite(h, code, tt.request)
				got := h.Get("Location")
				if errors.Is(err, ErrForeignRedirect) {
					got = refused
				}
				if got != tt.want {
					t.Errorf("%d: Location %q, error %v, want %q", code, got, err, tt.want)
				}
			}
		})
	}
}

// RELAY-4: what else of an answer could send a client away.
func TestRedirectsRewriteHeaders(t *testing.T) {
	d := Redirects{Target: k8swatch.Target{Host: "up.example.test"}, Prefix: "/clusters/a/b"}
	tests := []struct {
		name   string
		code   int
		header http.Header
		want   http.Header // nil: refused
	}{
		{"no redirect", 200, http.Header{"A": {"b"}}, http.Header{"A": {"b"}}},
		{"Location of an answer that is no redirect", 200, http.Header{"Location": {"https://attacker"}}, http.Header{}},
		{"redirect without Location", 304, http.Header{"A": {"b"}}, http.Header{"A": {"b"}}},
		{"two Locations", 307, http.Header{"Location": {"/a", "/b"}}, nil},
		{"Location in another spelling", 307, http.Header{"location": {"/a"}}, http.Header{"Location": {"/clusters/a/b/a"}}},
		{"two spellings", 307, http.Header{"location": {"/a"}, "Location": {"/a"}}, nil},
		{"Refresh", 200, http.Header{"Refresh": {"0;url=https://attacker"}}, nil},
		{"Refresh in another spelling", 404, http.Header{"refresh": {"0"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := d.Rewrite(tt.header, tt.code, "/x")
			if tt.want == nil {
				if !errors.Is(err, ErrForeignRedirect) {
					t.Errorf("error %v", err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, tt.header); diff != "" || err != nil {
				t.Errorf("error %v, headers (-want +got):\n%s", err, diff)
			}
		})
	}
}

// RELAY-4: whatever an apiserver writes, the client stays below the prefix.
func TestRedirectsStayInTheCluster(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		"/", "//", "..", ".", "%2e", "%2f", "%5c", "\\", "?", "#", ":", "@", "https:", "http:", "clusters", "team-a", "prod", "victim", "attacker", ";", "%", "%25", " ", "a",
	})
	d := Redirects{Target: k8swatch.Target{Host: "up.example.test"}, Prefix: "/clusters/team-a/prod"}
	rapid.Check(t, func(t *rapid.T) {
		location := strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(t, "location"), "")
		h := http.Header{"Location": {location}}
		if d.Rewrite(h, 307, "/api/v1/x") != nil || len(h) == 0 {
			return
		}
		client, err := http.NewRequest("GET", "https://proxy.example.test/clusters/team-a/prod/api/v1/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		next, err := client.URL.Parse(h.Get("Location"))
		if err != nil {
			return // no client follows it
		}
		if next.Host != "proxy.example.test" || next.Scheme != "https" || next.User != nil ||
			next.Path != d.Prefix && !strings.HasPrefix(next.Path, d.Prefix+"/") {
			t.Fatalf("%q became %q, which leads to %s", location, h.Get("Location"), next)
		}
	})
}
