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

// SIG-1, TRUST-1: a verdict that nobody confirmed for 15 minutes is none, as in
// the status; a replica that does not lead asks only once.
func TestTrustMetricGetsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			spec: &k8swatch.Cluster{Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, Probe: true},
			gate: upstream.NewGate[probe.Verdict](nil),
		}
		rt := &runtime{}
		rt.snapshot.Store(&snapshot{clusters: map[k8swatch.Key]*cluster{c.spec.Key: c}})
		active.Lock()
		before := active.list
		active.list = []*runtime{rt}
		active.Unlock()
		defer func() {
			active.Lock()
			defer active.Unlock()
			active.list = before
		}()
		told := func(want int) {
			t.Helper()
			metrics := make(chan prometheus.Metric, 10)
			liveCollector{}.Collect(metrics)
			if len(metrics) != want {
				t.Errorf("%d series, want %d", len(metrics), want)
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
