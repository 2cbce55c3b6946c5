package serving

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// counted is proxyauth_requests_total by its labels: <namespace>/<cluster> <code>.
func counted(t *testing.T, p *Process) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, m := range collected(p, func(c *clusterCollector) *prometheus.Desc { return c.requests }) {
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
	rt := newTestRuntime(newTestProcess()).serve()
	put := func(uid types.UID) *Cluster {
		if uid == "" {
			rt.put()
			return nil
		}
		c := rt.assemble(&k8swatch.Cluster{Key: key, UID: uid}, nil)
		rt.put(c)
		return c
	}
	// ask is a request that finds the cluster, and is answered later.
	ask := func(code int, meanwhile func()) {
		c := rt.Snapshot().Clusters[key]
		meanwhile()
		rt.CountRequest(c, code, time.Millisecond)
	}
	mustCount := func(what string, want map[string]float64) {
		t.Helper()
		got := counted(t, rt.process)
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
	unknown := counted(t, rt.process)["/ 503"]
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
	p := newTestProcess()
	running := newTestRuntime(p).serve()
	first := running.assemble(spec("1"), nil)
	running.put(first)
	if running.assemble(spec("1"), first).requests != first.requests {
		t.Error("another version begins anew")
	}
	if running.assemble(spec("2"), nil).requests == first.requests {
		t.Error("another object goes on")
	}
	reloaded := newTestRuntime(p)
	if reloaded.assemble(spec("1"), nil).requests != first.requests {
		t.Error("a reload begins anew")
	}
	if reloaded.assemble(spec("2"), nil).requests == first.requests {
		t.Error("another object goes on after a reload")
	}
}

// SIG-1: an apiserver cannot choose how many series there are.
func TestRequestCountsByCode(t *testing.T) {
	p := newTestProcess()
	rt := newTestRuntime(p)
	for _, code := range []int{200, 200, 499, 0, 599, 299, 999, 418} {
		rt.CountRequest(nil, code, time.Millisecond)
	}
	want := map[string]float64{"/ 200": 2, "/ 499": 1, "/ 0": 1, "/ 418": 1, "/ other": 3}
	if diff := cmp.Diff(want, counted(t, p)); diff != "" {
		t.Error(diff)
	}
}
