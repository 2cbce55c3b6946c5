package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// CONF-1: the transport sends nothing that the handler did not decide on, and
// nothing to an upstream that the dynamic source did not name for this request.
func TestTransportRefuses(t *testing.T) {
	dialing := func(r *http.Request, to *reverseproxy.Upstream) *http.Request {
		return r.WithContext(context.WithValue(r.Context(), caddy.CtxKey("reverse_proxy.dial_info"), reverseproxy.DialInfo{Upstream: to}))
	}
	decided := func() *http.Request {
		d := &request.Decision{Cluster: &serving.Cluster{Spec: &k8swatch.Cluster{Target: k8swatch.Target{Address: "127.0.0.1:1"}}}}
		return request.WithDecision(httptest.NewRequest(http.MethodGet, "/", nil), d)
	}
	named := func(u *Upstreams, r *http.Request) *reverseproxy.Upstream {
		list, err := u.GetUpstreams(r)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	undecided := httptest.NewRequest(http.MethodGet, "/", nil)
	other := decided()
	other = dialing(other, named(new(Upstreams), decided()))
	static := decided()
	static = dialing(static, &reverseproxy.Upstream{Dial: "127.0.0.1:1"})
	beside := decided()
	beside = dialing(beside, named(&Upstreams{besideStatic: true}, beside))
	for name, tt := range map[string]struct {
		r    *http.Request
		want *request.Refusal
	}{
		"no decision":              {dialing(undecided, named(new(Upstreams), undecided)), request.NotDecided},
		"no dial info":             {decided(), request.ForeignUpstream},
		"an upstream of another":   {other, request.ForeignUpstream},
		"a static upstream":        {static, request.ForeignUpstream},
		"beside a static upstream": {beside, request.ForeignUpstream},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := new(Transport).RoundTrip(tt.r)
			var refused *request.Refusal
			if res != nil || !errors.As(err, &refused) || refused != tt.want {
				t.Errorf("%v, %v", res, err)
			}
		})
	}
}

// URL-1, URL-2: which cluster a request is for.
func TestHandlerNamesTheCluster(t *testing.T) {
	prod := k8swatch.Key{Namespace: "team-a", Name: "prod"}
	for cluster, want := range map[string]request.Name{
		"":                             {InPath: true},
		"team-a/prod":                  {Key: prod},
		"team-a/{http.request.method}": {}, // GET is no name
		"team-a/{test.cluster}":        {Key: prod},
		"team-a/{test.unknown}":        {},
		"{test.slashes}/prod":          {},
	} {
		repl := caddy.NewReplacer()
		repl.Set("test.cluster", "prod")
		repl.Set("test.slashes", "team-a/x")
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r = r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl))
		h := &Handler{Cluster: cluster, name: constantName(cluster)}
		if got := h.nameOf(r); got != want {
			t.Errorf("%q: %+v, want %+v", cluster, got, want)
		}
	}
	if got := (&Handler{Cluster: "{a}/b"}).nameOf(httptest.NewRequest(http.MethodGet, "/", nil)); got != (request.Name{}) {
		t.Errorf("without a replacer: %+v", got)
	}
}
