package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
)

// runtimes holds the runtimes of this process by the key of their options. A
// reload with the same options finds the runtime of the configuration before
// it, with its clusters, caches and connections.
var runtimes = caddy.NewUsagePool()

// active lists the runtimes of the configurations that have come into force,
// the newest last. Two are active only while a reload replaces one by the
// other.
var active struct {
	sync.Mutex
	list []*runtime
}

// How long Start waits for the first full list; the proxy answers 503 until it
// is there. A hub may be away for hours, and whoever watches over this process
// must be able to ask it meanwhile; a configuration that replaces another waits
// longer, and gives up.
const (
	firstDirectoryTimeout = 30 * time.Second
	firstHubTimeout       = 5 * time.Second
	nextHubTimeout        = 20 * time.Second
)

func (rt *runtime) firstListTimeout() time.Duration {
	switch {
	case rt.hub == nil:
		return firstDirectoryTimeout
	case currentRuntime() != nil:
		return nextHubTimeout
	}
	return firstHubTimeout
}

// recheckAtLatest is how often the clusters are compiled again although nothing
// changed: a timer does not follow a clock that is set, a certificate's end does.
const recheckAtLatest = time.Minute

// refreshIssuers is how often the keys of idle issuers are looked at; they
// are read when they are due.
const refreshIssuers = time.Minute

// runtime is what survives a Caddy reload: the source, the clusters compiled
// from it, their authenticators and connections.
type runtime struct {
	options  runtimeOptions
	source   k8swatch.Source
	hub      *hub // nil for a directory
	compiler *compile.Compiler
	keySets  *authn.KeySets
	cache    *authn.Cache
	statusOf *statusBook
	prober   *prober

	snapshot atomic.Pointer[snapshot]
	// listed says that the source has told its first full list.
	listed atomic.Bool
	// inForce says that requests are served with this runtime, leadsSince
	// since when it leads, nil while it does not.
	inForce    atomic.Bool
	leadsSince atomic.Pointer[time.Time]
	leadMu     sync.Mutex // one at a time in lead
	logger     *zap.Logger

	startOnce sync.Once
	startErr  error
	cancel    context.CancelFunc
	done      sync.WaitGroup
	pending   *changeSet
}

// snapshot is the set of clusters at one moment. It is never changed.
type snapshot struct {
	clusters map[k8swatch.Key]*cluster
}

// acquireRuntime finds or makes the runtime of these options. It does no I/O.
func acquireRuntime(key string, o runtimeOptions) (*runtime, error) {
	value, _, err := runtimes.LoadOrNew(key, func() (caddy.Destructor, error) { return newRuntime(o) })
	if err != nil {
		return nil, err
	}
	return value.(*runtime), nil
}

func releaseRuntime(key string) error {
	_, err := runtimes.Delete(key)
	return err
}

func newRuntime(o runtimeOptions) (*runtime, error) {
	validator, err := admission.Default()
	if err != nil {
		return nil, fmt.Errorf("loading the ProxyKubeApi schema: %w", err)
	}
	// The runtime outlives the configuration that made it.
	logger := zap.New(liveCore{}).Named("proxyauth")
	source, hub, err := newSource(o, logger)
	if err != nil {
		return nil, err
	}
	cache := authn.NewCache(0, nil)
	cache.OnPanic = func(stack []byte) {
		logger.Error("the validation of a token panicked; the token was refused", zap.ByteString("stack", stack))
	}
	cache.Source = sourceOf
	cache.OnLookup = func(result string) { tokenCache.WithLabelValues(result).Inc() }
	rt := &runtime{
		options: o,
		source:  source,
		hub:     hub,
		compiler: compile.NewCompiler(source, compile.Options{
			Namespace:           o.Namespace,
			AllowedModes:        o.AllowedModes,
			AudienceValidation:  o.AudienceValidation,
			ReferenceNamespaces: o.ReferenceNamespaces,
			Recheck:             validator.Recheck,
		}),
		keySets:  authn.NewKeySets(nil),
		cache:    cache,
		statusOf: newStatusBook(),
		logger:   logger,
		pending:  newChangeSet(),
	}
	rt.keySets.OnFaultChange = rt.issuerChanged
	rt.prober = newProber(rt, o.ProbeInterval)
	rt.prober.lead(false) // until requests are served with it
	if err := rt.joinHub(); err != nil {
		return nil, err
	}
	return rt, nil
}

// start reads the source once and follows it. Further calls return what the
// first one did.
func (rt *runtime) start() error {
	rt.startOnce.Do(func() { rt.startErr = rt.run() })
	return rt.startErr
}

// takeOver makes this the runtime that decides over the streams: those of
// clusters that it does not have end. It is not part of start, since a
// configuration that fails to start as a whole changes nothing.
func (rt *runtime) takeOver() {
	active.Lock()
	if !slices.Contains(active.list, rt) {
		active.list = append(active.list, rt)
	}
	active.Unlock()
	openStreams.follow(rt)
	// The runtime before it may have ended a group that only this one knew.
	rt.pending.add()
	leadAgain()
}

func (rt *runtime) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	rt.cancel = cancel
	failed := make(chan error, 1)
	first := make(chan struct{})
	var once sync.Once
	rt.done.Go(func() { rt.prober.run(ctx) })
	rt.followHub(ctx)
	rt.done.Add(2)
	go func() {
		defer rt.done.Done()
		err := rt.source.Run(ctx, func(changes ...k8swatch.Change) {
			rt.listed.Store(true)
			rt.pending.add(changes...)
		})
		if err == nil && ctx.Err() == nil {
			err = errors.New("the source ended")
		}
		if err != nil && ctx.Err() == nil {
			rt.logger.Error("following the clusters", zap.Error(err))
			failed <- err
		}
	}()
	go func() {
		defer rt.done.Done()
		rt.loop(ctx, func() { once.Do(func() { close(first) }) })
	}()
	timeout := time.NewTimer(rt.firstListTimeout())
	defer timeout.Stop()
	select {
	case <-first:
	case err := <-failed:
		cancel()
		rt.done.Wait()
		return err
	case <-timeout.C:
		if replaces := currentRuntime(); replaces != nil && replaces != rt && replaces.load() != nil {
			// What is in force goes on from memory; this would not (REC-2).
			cancel()
			rt.done.Wait()
			return errors.New("the clusters cannot be read now: the configuration in force stays, and goes on from what it last read")
		}
		rt.logger.Warn("the first list of clusters takes long; requests are answered 503 until it is there")
	}
	return nil
}

// loop compiles after each change, and when a certificate's state changes by
// the clock alone.
func (rt *runtime) loop(ctx context.Context, compiled func()) {
	recheck := time.NewTimer(recheckAtLatest)
	defer recheck.Stop()
	refresh := time.NewTicker(refreshIssuers)
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-refresh.C:
			rt.refreshIssuers()
			continue
		case <-rt.pending.wake:
		case <-recheck.C:
			rt.pending.add()
		}
		if !rt.listed.Load() {
			continue // no clusters known is not the same as no clusters (REC-2)
		}
		next := rt.rebuild()
		compiled()
		recheck.Reset(next)
	}
}

// refreshIssuers has the keys of issuers read again that are due, so that a
// cluster without traffic knows of an issuer that cannot be asked.
func (rt *runtime) refreshIssuers() {
	for _, c := range rt.clusters() {
		if a, ok := c.auth.(interface{ Refresh() }); ok {
			a.Refresh()
		}
	}
}

// rebuild compiles what changed and swaps the snapshot. It returns how long the
// result holds by the clock.
func (rt *runtime) rebuild() time.Duration {
	before := rt.clusters()
	after := maps.Clone(before)
	if after == nil {
		after = make(map[k8swatch.Key]*cluster)
	}
	touched := rt.touched(before)
	var ended []*upstream.Group
	for key := range touched {
		spec, old := rt.compiler.Compile(key), before[key]
		if spec == nil {
			delete(after, key)
			continue
		}
		if old != nil && old.spec.UID != spec.UID {
			// Deleted and created again between two looks: nothing of the first
			// is the second's.
			ended = append(ended, openStreams.detach(rt, key)...)
			rt.statusOf.forget(key)
			old = nil
		}
		after[key] = rt.assemble(spec, old)
		rt.logReady(old, after[key])
	}
	rt.snapshot.Store(&snapshot{clusters: after})
	for _, group := range ended {
		group.End(endGrace)
	}
	for key := range touched {
		old := before[key]
		if old == nil {
			continue
		}
		old.retire(after[key])
		if after[key] == nil {
			rt.compiler.Forget(key)
			rt.statusOf.forget(key)
		}
	}
	openStreams.follow(rt)
	rt.prober.wakeUp()
	rt.heedStatuses(touched)
	return untilRecheck(after)
}

// touched are the objects that the pending changes concern.
func (rt *runtime) touched(before map[k8swatch.Key]*cluster) map[k8swatch.Key]struct{} {
	all, changes := rt.pending.take()
	touched := make(map[k8swatch.Key]struct{})
	if all || before == nil {
		for key := range before {
			touched[key] = struct{}{}
		}
		for _, key := range rt.source.Keys() {
			touched[key] = struct{}{}
		}
		return touched
	}
	for _, change := range changes {
		for _, key := range rt.compiler.Affected(change) {
			touched[key] = struct{}{}
		}
	}
	return touched
}

// untilRecheck is how long clusters hold by the clock.
func untilRecheck(clusters map[k8swatch.Key]*cluster) time.Duration {
	next := recheckAtLatest
	for _, c := range clusters {
		if !c.spec.RecheckAt.IsZero() {
			next = min(next, max(time.Until(c.spec.RecheckAt), time.Second))
		}
	}
	return next
}

// load returns the clusters, or nil before the first full list.
func (rt *runtime) load() *snapshot { return rt.snapshot.Load() }

func (rt *runtime) clusters() map[k8swatch.Key]*cluster {
	if snap := rt.load(); snap != nil {
		return snap.clusters
	}
	return nil
}

// Destruct ends the runtime when no configuration uses it any more. Its open
// streams are not ended here: those of a reload go on, and those of an exit
// end as exit.go says.
func (rt *runtime) Destruct() error {
	tookOver := currentRuntime() == rt
	active.Lock()
	active.list = slices.DeleteFunc(active.list, func(other *runtime) bool { return other == rt })
	active.Unlock()
	if before := currentRuntime(); tookOver && before != nil {
		// The configuration failed after all. The streams that it ended are
		// lost, but the runtime before it must not go on with their groups.
		before.pending.add()
	}
	leadAgain()
	if rt.cancel != nil {
		rt.cancel()
		rt.done.Wait()
	}
	for _, c := range rt.clusters() {
		c.retire(nil)
	}
	time.AfterFunc(requestDrain, rt.keySets.Close)
	return rt.leaveHub()
}

// currentRuntime is the one that serves new requests, or nil.
func currentRuntime() *runtime {
	active.Lock()
	defer active.Unlock()
	if len(active.list) == 0 {
		return nil
	}
	return active.list[len(active.list)-1]
}

// Interface guard.
var _ caddy.Destructor = (*runtime)(nil)
