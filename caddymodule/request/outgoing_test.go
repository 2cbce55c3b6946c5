package request

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// ID-3, ID-4, ID-5, URL-3: what of a request goes to the apiserver, and what is
// written in its place.
func TestOutgoing(t *testing.T) {
	c := newCluster(t, v1.ModeFrontProxy, alice("dev"), nil)
	passthrough := newCluster(t, v1.ModePassthrough, alice("dev"), nil)
	unvalidated := newCluster(t, v1.ModePassthrough, nil, func(c *k8swatch.Cluster) { c.Auth.DisableValidation = true })
	client := http.Header{
		"Accept":            {"application/json"},
		"Authorization":     {"Bearer abc"},
		"Cookie":            {"a=b"},
		"Forwarded":         {"for=192.0.2.1"},
		"Impersonate-User":  {"bob"},
		"Via":               {"1.1 Caddy"},
		"X-Remote-User":     {"system:admin"},
		"x_remote_group":    {"system:masters"},
		"X-Forwarded-For":   {"192.0.2.1"},
		"X-Forwarded-User":  {"admin"},
		"X-Forwarded-Proto": {"https"},
	}
	plain := http.Header{
		"Accept": {"application/json"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"https"},
	}
	with := func(more http.Header) http.Header {
		h := plain.Clone()
		for key, values := range more {
			h[key] = values
		}
		return h
	}
	asserted := http.Header{"X-Remote-User": {"proxyauth:alice"}, "X-Remote-Group": {"proxyauth:dev"}}
	for name, tt := range map[string]struct {
		config func(*Config)
		change func(*http.Request)
		on     *Decision
		want   http.Header
	}{
		"FrontProxy":  {on: &Decision{Cluster: c}, want: with(asserted)},
		"Passthrough": {on: &Decision{Cluster: passthrough}, want: with(http.Header{"Authorization": {"Bearer abc"}})},
		"without validation": {
			on:     &Decision{Cluster: unvalidated},
			change: func(r *http.Request) { r.Header["Sec-Websocket-Protocol"] = []string{"v5.channel.k8s.io"} },
			want:   with(http.Header{"Authorization": {"Bearer abc"}, "Sec-WebSocket-Protocol": {"v5.channel.k8s.io"}}),
		},
		"cookies": {
			config: func(c *Config) { c.KeepCookies = true },
			on:     &Decision{Cluster: passthrough},
			want:   with(http.Header{"Authorization": {"Bearer abc"}, "Cookie": {"a=b"}}),
		},
		"impersonation forward": {
			config: func(c *Config) { c.Impersonation = ImpersonationForward },
			on:     &Decision{Cluster: c},
			want: with(http.Header{
				"X-Remote-User": {"proxyauth:alice"}, "X-Remote-Group": {"proxyauth:dev"}, "Impersonate-User": {"bob"},
			}),
		},
		"an upgrade": {
			change: func(r *http.Request) { upgrade(r, "SPDY/3.1") },
			on:     &Decision{Cluster: passthrough},
			want: with(http.Header{
				"Authorization": {"Bearer abc"}, "Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"},
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/clusters/team-a/prod/api/v1/x%2Fy?a=b", nil)
			r.Header = client.Clone()
			r.Trailer = http.Header{"X-Remote-User": nil}
			if tt.change != nil {
				tt.change(r)
			}
			config := configOf(clustersOf(tt.on.Cluster))
			if tt.config != nil {
				tt.config(config)
			}
			d, refused := New(httptest.NewRecorder(), r, config, Name{InPath: true}, "").Decide()
			if refused != nil {
				t.Fatal(refused)
			}
			out := d.outgoing(r.Context(), r, &bodyWatcher{ReadCloser: r.Body})
			want := tt.want
			tt.on.Cluster.Relay.SetVia(want, 1, 1)
			if diff := cmp.Diff(want, out.Header); diff != "" {
				t.Error(diff)
			}
			if out.URL.EscapedPath() != "/api/v1/x%2Fy" || out.URL.RawQuery != "a=b" || out.Host != "10.0.0.1:6443" || out.Trailer != nil {
				t.Errorf("goes to %s %v, trailer %v", out.Host, out.URL, out.Trailer)
			}
			if r.Header.Get("X-Remote-User") != "system:admin" {
				t.Error("the client's own header map was changed")
			}
		})
	}
}
