package caddymodule

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// serve has a runtime be the one in force until the test ends.
func serve(t *testing.T, rt *runtime) {
	t.Helper()
	active.Lock()
	before := active.list
	active.list = []*runtime{rt}
	active.Unlock()
	t.Cleanup(func() {
		active.Lock()
		defer active.Unlock()
		active.list = before
	})
}

// collected returns the metrics of one description.
func collected(desc *prometheus.Desc) (all []prometheus.Metric) {
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		liveCollector{}.Collect(metrics)
	}()
	for m := range metrics {
		if m.Desc() == desc {
			all = append(all, m)
		}
	}
	return all
}

// SIG-1, TRUST-1: a verdict that nobody confirmed for 15 minutes is none, as in
// the status; a replica that does not lead asks only once.
func TestTrustMetricGetsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			spec:     &k8swatch.Cluster{Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, Probe: true},
			requests: new(requestCounts),
			gate:     upstream.NewGate[probe.Verdict](nil),
		}
		rt := &runtime{}
		rt.snapshot.Store(&snapshot{clusters: map[k8swatch.Key]*cluster{c.spec.Key: c}})
		serve(t, rt)
		told := func(want int) {
			t.Helper()
			if n := len(collected(trustDesc)); n != want {
				t.Errorf("%d series, want %d", n, want)
			}
		}
		told(0)
		c.gate.Observe(probe.Verdict{Trust: v1.TrustTrusted})
		time.Sleep(15 * time.Minute)
		told(1)
		time.Sleep(time.Second)
		told(0)
		c.gate.Observe(probe.Verdict{Trust: v1.TrustTrusted})
		told(1)
	})
}
