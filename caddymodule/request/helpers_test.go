package request

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// someClusters are clusters to decide on.
type someClusters struct {
	snapshot *serving.Snapshot
	metrics  *serving.Metrics
	stopping bool

	mu     sync.Mutex
	counts []int // status codes
}

func (c *someClusters) Snapshot() *serving.Snapshot { return c.snapshot }
func (c *someClusters) Metrics() *serving.Metrics   { return c.metrics }
func (c *someClusters) Stopping() bool              { return c.stopping }

func (c *someClusters) CountRequest(_ *serving.Cluster, code int, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts = append(c.counts, code)
}

func clustersOf(all ...*serving.Cluster) *someClusters {
	c := &someClusters{
		snapshot: &serving.Snapshot{Clusters: map[k8swatch.Key]*serving.Cluster{}},
		metrics:  serving.NewProcess(serving.NewLiveLog(zapcore.NewNopCore), func(context.Context) string { return "" }).Metrics,
	}
	for _, one := range all {
		c.snapshot.Clusters[one.Spec.Key] = one
	}
	return c
}

func configOf(clusters Clusters) *Config {
	return &Config{Clusters: clusters, Impersonation: ImpersonationStrip, Logger: zap.NewNop(), Audit: zap.NewNop()}
}

var prodKey = k8swatch.Key{Namespace: "team-a", Name: "prod"}

// newCluster is team-a/prod with an authenticator and an open gate.
func newCluster(tb testing.TB, mode v1.UpstreamMode, validator authn.Validator, change func(*k8swatch.Cluster)) *serving.Cluster {
	tb.Helper()
	spec := &k8swatch.Cluster{
		Key: prodKey, UID: "uid", Enabled: true, Mode: mode,
		Auth:   k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators},
		Target: k8swatch.Target{Canonical: "external:https://10.0.0.1:6443", Address: "10.0.0.1:6443", Host: "10.0.0.1:6443"},
		Ready:  k8swatch.Condition{Type: "Ready", Status: k8swatch.StatusTrue, Reason: k8swatch.ReasonServing},
	}
	if mode == v1.ModeFrontProxy {
		spec.UserPrefix, spec.GroupPrefix, spec.Probe = "proxyauth:", "proxyauth:", true
	}
	if change != nil {
		change(spec)
	}
	c := &serving.Cluster{
		Spec: spec, Settings: trust.SettingsOf(spec),
		Relay: serving.NewRelay(spec, upstream.NewRegistry().NewGroup()),
		Auth:  serving.Auth{Validator: validator},
	}
	c.Relay.Pair = trust.Connect(spec, nil)
	tb.Cleanup(c.Relay.Pair.Retire)
	if spec.Ready.Status != k8swatch.StatusTrue {
		c.Closed = spec.Ready.Reason
	}
	c.Trust = trust.New(spec, c.Relay.Pair, nil, nil, nil)
	if spec.Probe {
		c.Trust.ObserveFrontProxy(probe.Verdict{Trust: v1.TrustTrusted})
	}
	return c
}

// validatorFunc is a validator for one test.
type validatorFunc func(token string) (*authn.Result, error)

func (f validatorFunc) Authenticate(_ context.Context, token string) (*authn.Result, error) {
	return f(token)
}
func (validatorFunc) Refresh()            {}
func (validatorFunc) Faults() []string    { return nil }
func (validatorFunc) AsksApiserver() bool { return false }
func (validatorFunc) Close()              {}

// alice is the caller of every token.
func alice(groups ...string) validatorFunc {
	result := &authn.Result{Identity: &identity.Identity{Name: "alice", Groups: groups}}
	return func(string) (*authn.Result, error) { return result, nil }
}

// discard is a response writer that costs nothing.
type discard struct{ header http.Header }

func (w discard) Header() http.Header         { return w.header }
func (w discard) WriteHeader(int)             {}
func (w discard) Write(p []byte) (int, error) { return len(p), nil }

// valueOf reads a counter with these label values.
func valueOf(tb testing.TB, of *prometheus.CounterVec, labels ...string) float64 {
	tb.Helper()
	var told dto.Metric
	if err := of.WithLabelValues(labels...).Write(&told); err != nil {
		tb.Fatal(err)
	}
	return told.GetCounter().GetValue()
}
