package caddymodule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// AUTH-7: under warn a token for another audience is told once a minute and
// cluster, and counted each time.
func TestWrongAudienceIsToldAndCounted(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	c := &cluster{
		spec:     &k8swatch.Cluster{Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, Auth: k8swatch.Auth{ValidateAgainst: "TestWrongAudience"}},
		audience: &occasionalWarning{logger: zap.New(core)},
	}
	counted := func(result string) float64 { return valueOf(t, authentications, "TestWrongAudience", result) }
	for range 3 {
		c.authenticated(&authn.Result{WrongAudience: true})
	}
	c.authenticated(&authn.Result{})
	if n := logs.FilterMessageSnippet("not for the audience").Len(); n != 1 {
		t.Errorf("told %d times in a minute", n)
	}
	if counted("wrong_audience") != 3 || counted("ok") != 1 {
		t.Errorf("counted %v and %v", counted("wrong_audience"), counted("ok"))
	}
	c.audience.last.Store(time.Now().Add(-warningPause).UnixNano())
	c.authenticated(&authn.Result{WrongAudience: true})
	told := logs.FilterMessageSnippet("not for the audience").All()
	if len(told) != 2 || !strings.Contains(told[1].ContextMap()["cluster"].(string), "team-a/prod") {
		t.Errorf("after a minute: %v", told)
	}
}

// valueOf reads a counter with these label values.
func valueOf(t *testing.T, of *prometheus.CounterVec, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(of); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range families[0].Metric {
		var values []string
		for _, pair := range metric.Label {
			values = append(values, pair.GetValue())
		}
		if slices.Equal(values, labels) {
			return metric.Counter.GetValue()
		}
	}
	return 0
}
