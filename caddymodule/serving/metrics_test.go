package serving

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// collected returns the metrics of one description.
func collected(p *Process, of func(*clusterCollector) *prometheus.Desc) (all []prometheus.Metric) {
	metrics := make(chan prometheus.Metric)
	collector := newClusterCollector(p)
	go func() {
		defer close(metrics)
		collector.Collect(metrics)
	}()
	for m := range metrics {
		if m.Desc() == of(collector) {
			all = append(all, m)
		}
	}
	return all
}

// SIG-1, TRUST-1: a verdict that was not confirmed for 15 minutes is none, as in
// the status; a replica that does not lead asks only once.
func TestTrustMetricGetsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
		rt := newTestRuntime(newTestProcess()).serve()
		c := rt.assemble(&k8swatch.Cluster{Key: key, Enabled: true, Probe: true}, nil)
		rt.put(c)
		told := func(want int) {
			t.Helper()
			if n := len(collected(rt.process, func(c *clusterCollector) *prometheus.Desc { return c.trust })); n != want {
				t.Errorf("%d series, want %d", n, want)
			}
		}
		told(0)
		c.Trust.ObserveFrontProxy(probe.Verdict{Trust: v1.TrustTrusted})
		time.Sleep(15 * time.Minute)
		told(1)
		time.Sleep(time.Second)
		told(0)
		c.Trust.ObserveFrontProxy(probe.Verdict{Trust: v1.TrustTrusted})
		told(1)
	})
}
