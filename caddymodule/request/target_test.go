package request

import (
	"net/http"
	"testing"
)

func TestTargetOf(t *testing.T) {
	for _, tc := range []struct {
		uri  string
		want target
	}{
		{"/clusters/a/b", target{path: "/clusters/a/b"}},
		{"/a?b=c", target{path: "/a", query: "b=c"}},
		{"/a?", target{path: "/a"}},
		{"/a?b?c", target{path: "/a", query: "b?c"}},
		{"//a", target{path: "//a"}},
		{"https://proxy.example.test/a?b", target{path: "/a", query: "b"}},
		{"https://proxy.example.test?b", target{query: "b"}},
		{"https://proxy.example.test", target{}},
		{"*", target{path: "*"}},
		{"proxy.example.test:443", target{path: "proxy.example.test:443"}},
		{"/a%2Fb", target{path: "/a%2Fb"}},
	} {
		t.Run(tc.uri, func(t *testing.T) {
			if got := targetOf(&http.Request{RequestURI: tc.uri}); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
