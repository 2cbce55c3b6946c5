package serving

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
)

// How long Start waits for the first full list; the proxy answers 503 until it
// is there. A hub may be away for hours, and meanwhile this process must answer
// /readyz; a configuration that replaces another waits longer, and gives up.
const (
	firstDirectoryTimeout = 30 * time.Second
	firstHubTimeout       = 5 * time.Second
	nextHubTimeout        = 20 * time.Second
)

// Runtime serves the clusters of one source: it holds the source, the clusters
// compiled from it, their authenticators and connections. Configurations with
// the same options share it, one after the other.
type Runtime struct {
	process  *Process
	options  Options
	source   k8swatch.Source
	hub      *hub // nil for a directory
	compiler *compile.Compiler
	// carried is what the last compilation of each object left for the next one.
	// Only the loop uses it.
	carried map[k8swatch.Key]compile.Carried
	// validators makes what authenticates the callers of each cluster.
	validators *authn.Factory
	statuses   *lastStatuses
	prober     *trust.Prober

	snapshot atomic.Pointer[Snapshot]
	// listed says that the source has told its first full list.
	listed atomic.Bool
	// inForce says that requests are served with this runtime.
	inForce atomic.Bool
	// leadsSince is since when it leads, nil while it does not.
	leadsSince atomic.Pointer[time.Time]
	leadMu     sync.Mutex // held by updateLeadership
	logger     *zap.Logger

	startOnce sync.Once
	startErr  error
	cancel    context.CancelFunc
	done      sync.WaitGroup
	pending   *changeSet
}

// Snapshot is the clusters at one moment. It is never changed.
type Snapshot struct {
	Clusters map[k8swatch.Key]*Cluster
}

func newRuntime(p *Process, o Options) (*Runtime, error) {
	validator, err := admission.Default()
	if err != nil {
		return nil, fmt.Errorf("loading the ProxyKubeApi schema: %w", err)
	}
	denied, err := egress.Parse(o.DeniedTargets)
	if err != nil {
		return nil, fmt.Errorf("denied_targets: %w", err)
	}
	source, hub, err := newSource(o, p.logger)
	if err != nil {
		return nil, err
	}
	rt := &Runtime{
		process: p,
		options: o,
		source:  source,
		hub:     hub,
		compiler: compile.New(compile.Options{
			Namespace:           o.Namespace,
			ClusterDomain:       o.ClusterDomain,
			AllowedModes:        o.AllowedModes,
			AudienceValidation:  o.AudienceValidation,
			ReferenceNamespaces: o.ReferenceNamespaces,
			DeniedTargets:       denied,
			RequireValidation:   o.RequireValidation,
			Revalidate:          validator.Revalidate,
		}),
		carried:  make(map[k8swatch.Key]compile.Carried),
		statuses: newLastStatuses(),
		logger:   p.logger,
		pending:  newChangeSet(),
	}
	rt.validators = rt.newValidators(denied)
	rt.prober = trust.NewProber(o.ProbeInterval, p.logger, rt.statusChanged)
	if err := rt.joinHub(); err != nil {
		return nil, err
	}
	return rt, nil
}

// Metrics are those of the process.
func (rt *Runtime) Metrics() *Metrics { return rt.process.Metrics }

// Stopping reports whether the process is about to end.
func (rt *Runtime) Stopping() bool { return rt.process.shutdown.begun.Load() }

// Snapshot returns the clusters, nil before the first full list.
func (rt *Runtime) Snapshot() *Snapshot { return rt.snapshot.Load() }

func (rt *Runtime) clusters() map[k8swatch.Key]*Cluster {
	if snapshot := rt.Snapshot(); snapshot != nil {
		return snapshot.Clusters
	}
	return nil
}

// Start reads the source once and follows it. Further calls return what the
// first one did.
func (rt *Runtime) Start() error {
	rt.startOnce.Do(func() { rt.startErr = rt.run() })
	return rt.startErr
}

// TakeOver makes this the runtime that serves new requests. The streams of
// clusters that it does not have end. It is not part of Start, since a
// configuration that fails to start as a whole changes nothing.
func (rt *Runtime) TakeOver() {
	rt.process.putInForce(rt)
	rt.process.streams.endMissing(rt)
	// The runtime before may have ended a group that only this one has.
	rt.pending.add()
	rt.process.updateLeadership()
	rt.process.Events.look()
}

func (rt *Runtime) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	rt.cancel = cancel
	failed := make(chan error, 1)
	first := make(chan struct{})
	var once sync.Once
	rt.done.Go(func() { rt.prober.Run(ctx) })
	rt.followHub(ctx)
	rt.done.Go(func() {
		if err := rt.follow(ctx); err != nil {
			failed <- err
		}
	})
	rt.done.Go(func() { rt.compileChanges(ctx, func() { once.Do(func() { close(first) }) }) })
	timeout := time.NewTimer(rt.firstListTimeout())
	defer timeout.Stop()
	select {
	case <-first:
	case err := <-failed:
		cancel()
		rt.done.Wait()
		return err
	case <-timeout.C:
		if replaces := rt.process.Current(); replaces != nil && replaces != rt && replaces.Snapshot() != nil {
			// The configuration in force goes on from memory, and this one has
			// none (REC-2).
			cancel()
			rt.done.Wait()
			return errors.New("the clusters cannot be read now: the configuration in force stays, and goes on from what it last read")
		}
		rt.logger.Warn("the first list of clusters takes long; requests are answered 503 until it is there")
	}
	return nil
}

func (rt *Runtime) firstListTimeout() time.Duration {
	switch {
	case rt.hub == nil:
		return firstDirectoryTimeout
	case rt.process.Current() != nil:
		return nextHubTimeout
	}
	return firstHubTimeout
}

// follow runs the source.
func (rt *Runtime) follow(ctx context.Context) error {
	err := rt.source.Run(ctx, func(changes ...k8swatch.Change) {
		rt.listed.Store(true)
		rt.pending.add(changes...)
	})
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("the source ended")
	}
	rt.logger.Error("following the clusters", zap.Error(err))
	return err
}

// end ends the runtime. Its open streams go on: those of a reload to their own
// end, and those of an exit as shutdown.go says.
func (rt *Runtime) end() {
	p := rt.process
	tookOver := p.Current() == rt
	p.takeOutOfForce(rt)
	if before := p.Current(); tookOver && before != nil {
		// The configuration failed after all. The streams that it ended are
		// lost, but the runtime before it must not go on with their groups.
		before.pending.add()
	}
	p.updateLeadership()
	p.Events.look()
	if rt.cancel != nil {
		rt.cancel()
		rt.done.Wait()
	}
	for _, c := range rt.clusters() {
		c.retire(nil)
	}
	time.AfterFunc(requestDrain, rt.validators.Close)
	rt.leaveHub()
}
