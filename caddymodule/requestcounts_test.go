package caddymodule

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// counted is proxyauth_requests_total by its labels: <namespace>/<cluster> <code>.
func counted(t *testing.T) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, m := range collected(requestsDesc) {
		var told dto.Metric
		if err := m.Write(&told); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{}
		for _, pair := range told.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		all[labels["namespace"]+"/"+labels["cluster"]+" "+labels["code"]] = told.GetCounter().GetValue()
	}
	return all
}

// SIG-1: the series of a deleted cluster go and do not come back with a request
// that was under way, nor become those of another object of the name.
func TestRequestsOfDeletedCluster(t *testing.T) {
	key := k8swatch.Key{Namespace: "team-z", Name: "gone"}
	rt := &runtime{logger: zap.NewNop()}
	serve(t, rt)
	put := func(uid types.UID) *cluster {
		all := map[k8swatch.Key]*cluster{}
		if uid != "" {
			all[key] = passthroughTo(t, key, echo(t, "it"))
			all[key].spec.UID = uid
		}
		rt.snapshot.Store(&snapshot{clusters: all})
		return all[key]
	}
	h := &Handler{app: &App{runtime: rt, impersonation: impersonationStrip}, logger: zap.NewNop(), audit: zap.NewNop()}
	ask := func(code int, meanwhile func()) {
		r := httptest.NewRequest(http.MethodGet, "/clusters/team-z/gone/api", nil)
		r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{}))
		r.Header.Set("Authorization", "Bearer abc")
		err := h.ServeHTTP(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			meanwhile()
			w.WriteHeader(code)
			return nil
		}))
		if err != nil {
			t.Error(err)
		}
	}
	mustCount := func(what string, want map[string]float64) {
		t.Helper()
		got := counted(t)
		for series, n := range want {
			if got[series] != n {
				t.Errorf("%s: %s is %v, want %v", what, series, got[series], n)
			}
		}
		for series := range got {
			if _, wanted := want[series]; !wanted && strings.HasPrefix(series, "team-z/") {
				t.Errorf("%s: there is %s", what, series)
			}
		}
	}
	unknown := counted(t)["/ 503"]
	first := put("1")
	ask(200, func() {})
	mustCount("it is there", map[string]float64{"team-z/gone 200": 1, "/ 503": unknown})
	ask(503, func() { put("") })
	mustCount("it is deleted", map[string]float64{"/ 503": unknown + 1})
	put("2")
	ask(503, func() { put("3") })
	mustCount("another has its name", map[string]float64{"/ 503": unknown + 2})
	put("")
	first.requests.add(503) // looked while it was there
	mustCount("a request was late", map[string]float64{"/ 503": unknown + 2})
}

// SIG-1: what was counted goes on over versions of an object and over a reload
// with other options, and is not another object's.
func TestRequestsGoOn(t *testing.T) {
	spec := func(uid types.UID) *k8swatch.Cluster {
		return &k8swatch.Cluster{Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, UID: uid}
	}
	running := &runtime{logger: zap.NewNop()}
	serve(t, running)
	first := running.assemble(spec("1"), nil)
	running.snapshot.Store(&snapshot{clusters: map[k8swatch.Key]*cluster{first.spec.Key: first}})
	if running.assemble(spec("1"), first).requests != first.requests {
		t.Error("another version begins anew")
	}
	if running.assemble(spec("2"), nil).requests == first.requests {
		t.Error("another object goes on")
	}
	reloaded := &runtime{logger: zap.NewNop()}
	if reloaded.assemble(spec("1"), nil).requests != first.requests {
		t.Error("a reload begins anew")
	}
	if reloaded.assemble(spec("2"), nil).requests == first.requests {
		t.Error("another object goes on after a reload")
	}
}
