package serving

import (
	"context"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// newTestProcess is a process that logs nothing.
func newTestProcess() *Process {
	return NewProcess(NewLiveLog(zapcore.NewNopCore), func(context.Context) string { return "" })
}

// newTestRuntime is a runtime without a source.
func newTestRuntime(p *Process) *Runtime {
	rt := &Runtime{process: p, pending: newChangeSet(), statuses: newLastStatuses(), logger: zap.NewNop()}
	rt.prober = trust.NewProber(time.Minute, rt.logger, rt.statusChanged)
	return rt
}

// serve has a runtime be the one in force.
func (rt *Runtime) serve() *Runtime {
	rt.process.putInForce(rt)
	return rt
}

// put replaces the clusters of a runtime.
func (rt *Runtime) put(clusters ...*Cluster) {
	all := map[k8swatch.Key]*Cluster{}
	for _, c := range clusters {
		all[c.Spec.Key] = c
	}
	rt.snapshot.Store(&Snapshot{Clusters: all})
}
