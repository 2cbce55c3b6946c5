package caddymodule

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

func TestTargetOf(t *testing.T) {
	for _, tc := range []struct {
		uri  string
		want requestTarget
	}{
		{"/clusters/a/b", requestTarget{path: "/clusters/a/b"}},
		{"/a?b=c", requestTarget{path: "/a", query: "b=c", hasQuery: true}},
		{"/a?", requestTarget{path: "/a", hasQuery: true}},
		{"/a?b?c", requestTarget{path: "/a", query: "b?c", hasQuery: true}},
		{"//a", requestTarget{path: "//a"}},
		{"https://proxy.example.test/a?b", requestTarget{path: "/a", query: "b", hasQuery: true}},
		{"https://proxy.example.test?b", requestTarget{query: "b", hasQuery: true}},
		{"https://proxy.example.test", requestTarget{}},
		{"*", requestTarget{path: "*"}},
		{"proxy.example.test:443", requestTarget{path: "proxy.example.test:443"}},
		{"/a%2Fb", requestTarget{path: "/a%2Fb"}},
	} {
		t.Run(tc.uri, func(t *testing.T) {
			if got := targetOf(&http.Request{RequestURI: tc.uri}); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// URL-3: whatever bytes the path and query have, they reach the request line
// unchanged behind the base path, and the host is never anybody else's.
func TestUpstreamURLIsByteForByte(t *testing.T) {
	target := k8swatch.Target{Host: "up.example.test:6443"}
	// A byte that net/http would refuse or cut at never reaches the handler.
	bytes := rapid.StringOf(rapid.RuneFrom([]rune("ab/.%2Ff\"<>^{|}`\\~!$&'()*+,;=:@[]#é\u0080-_")))
	rapid.Check(t, func(rt *rapid.T) {
		target.BasePath = rapid.SampledFrom([]string{"", "/k8s/c-1", "/k\"s", "/a%2Fb"}).Draw(rt, "base")
		in := requestTarget{path: "/" + bytes.Draw(rt, "path")}
		if rapid.Bool().Draw(rt, "hasQuery") {
			in.hasQuery = true
			in.query = rapid.StringOf(rapid.RuneFrom([]rune("ab=&%2F\"<>^{|}?/é#+ "))).Draw(rt, "query")
			in.query = strings.ReplaceAll(in.query, " ", "+")
		}
		u := upstreamURL(target, in)
		want := target.BasePath + in.path
		if in.hasQuery {
			want += "?" + in.query
		}
		got := u.RequestURI()
		if strings.HasPrefix(want, "//") && strings.HasPrefix(got, "https:") {
			// The absolute form: same path, and the authority is the target's.
			want = "https://" + target.Host + want
		}
		if got != want || u.Host != target.Host || u.Scheme != "https" {
			rt.Fatalf("request line %q at %s://%s, want %q", got, u.Scheme, u.Host, want)
		}
	})
}

// The same through net/http's own client and server.
func TestUpstreamURLOnTheWire(t *testing.T) {
	var seen string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RequestURI }))
	defer server.Close()
	target := k8swatch.Target{Host: strings.TrimPrefix(server.URL, "https://")}
	for _, path := range []string{
		"/", "/api", "/a%2Fb", "/a b"[:2], "//a", "/a//b", `/a"b`, "/a{b}|c^d`", "/é", "/%C3%A9", "/a;b=c", "/#frag", "/a\\b",
	} {
		t.Run(path, func(t *testing.T) {
			res, err := server.Client().Do(&http.Request{Method: http.MethodGet, URL: upstreamURL(target, requestTarget{path: path, query: `q={"a"}`, hasQuery: true}), Host: target.Host})
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if want := path + `?q={"a"}`; seen != want {
				// The server may not parse every path, but what it saw is raw.
				t.Errorf("the server saw %q, want %q (status %d)", seen, want, res.StatusCode)
			}
		})
	}
}
