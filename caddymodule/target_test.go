package caddymodule

import (
	"net/http"
	"testing"
)

func TestTargetOf(t *testing.T) {
	for _, tc := range []struct {
		uri  string
		want requestTarget
	}{
		{"/clusters/a/b", requestTarget{path: "/clusters/a/b"}},
		{"/a?b=c", requestTarget{path: "/a", query: "b=c"}},
		{"/a?", requestTarget{path: "/a"}},
		{"/a?b?c", requestTarget{path: "/a", query: "b?c"}},
		{"//a", requestTarget{path: "//a"}},
		{"https://proxy.example.test/a?b", requestTarget{path: "/a", query: "b"}},
		{"https://proxy.example.test?b", requestTarget{query: "b"}},
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
