package upstream

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// URL-3: whatever bytes the path and query have, they reach the request line
// unchanged behind the base path, and the host is always that of the target.
func TestSetURLIsByteForByte(t *testing.T) {
	target := k8swatch.Target{Host: "up.example.test:6443"}
	// A byte that net/http would refuse or cut at never reaches the handler.
	bytes := rapid.StringOf(rapid.RuneFrom([]rune("ab/.%2Ff\"<>^{|}`\\~!$&'()*+,;=:@[]#é\u0080-_")))
	rapid.Check(t, func(rt *rapid.T) {
		target.BasePath = rapid.SampledFrom([]string{"", "/k8s/c-1", "/k\"s", "/a%2Fb"}).Draw(rt, "base")
		path, query := "/"+bytes.Draw(rt, "path"), ""
		hasQuery := rapid.Bool().Draw(rt, "hasQuery")
		if hasQuery {
			query = rapid.StringOf(rapid.RuneFrom([]rune("ab=&%2F\"<>^{|}?/é#+ "))).Draw(rt, "query")
			query = strings.ReplaceAll(query, " ", "+")
		}
		r := &http.Request{URL: &url.URL{RawQuery: query, ForceQuery: hasQuery && query == ""}}
		SetURL(r, target, path)
		want := target.BasePath + path
		if hasQuery {
			want += "?" + query
		}
		u := r.URL
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
