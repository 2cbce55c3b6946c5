package request

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// STREAM-1: requests that were on their way when their configuration was replaced
// are decided by it, and their answers tell the client to leave. Later ones are
// refused.
func TestReplacedConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name  string
		major int
		// since is how long ago the configuration was replaced, negative for not.
		since time.Duration
		code  int
		want  string
	}{
		{"in force, HTTP/1.1", 1, -1, 200, ""},
		{"in force, HTTP/2", 2, -1, 200, ""},
		{"on its way, HTTP/1.1", 1, replacedGrace - time.Second, 200, "close"},
		{"on its way, HTTP/2", 2, replacedGrace - time.Second, 200, "close"},
		{"on its way, an upgrade", 1, 0, 101, ""},
		{"on its way, HTTP/3", 3, 0, 200, ""},
		{"late, HTTP/2", 2, replacedGrace + time.Second, 503, "close"},
		{"late, HTTP/3", 3, replacedGrace + time.Second, 503, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clusters := clustersOf(newCluster(t, v1.ModePassthrough, alice(), nil))
			synctest.Test(t, func(t *testing.T) {
				config := configOf(clusters)
				config.Lifetime = new(Lifetime)
				if tt.since >= 0 {
					config.Lifetime.Replace()
					time.Sleep(tt.since)
				}
				r, w := podsRequest("abc"), httptest.NewRecorder()
				r.ProtoMajor = tt.major
				q := New(w, r, config, Name{InPath: true}, "")
				if d, refused := q.Decide(); refused != nil {
					if err := q.Refuse(refused); err != nil {
						t.Fatal(err)
					}
				} else if d.Cluster == nil || tt.code == http.StatusServiceUnavailable {
					t.Errorf("decided: %+v", d)
				} else {
					q.WriteHeader(tt.code)
				}
				if got := w.Header().Get("Connection"); w.Code != tt.code || got != tt.want {
					t.Errorf("%d with Connection %q, want %d with %q", w.Code, got, tt.code, tt.want)
				}
			})
		})
	}
}
