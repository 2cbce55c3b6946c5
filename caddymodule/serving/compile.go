package serving

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
)

// recompileAtLatest is the longest time between two compilations. The end of a
// certificate is a time of the system's clock, and a timer does not notice when
// somebody sets that clock.
const recompileAtLatest = time.Minute

// refreshIssuers is how often the keys of idle issuers are looked at; they
// are read when they are due.
const refreshIssuers = time.Minute

// compileChanges compiles after each change, and when a certificate's state
// changes by the clock alone. It calls compiled after each time.
func (rt *Runtime) compileChanges(ctx context.Context, compiled func()) {
	recompile := time.NewTimer(recompileAtLatest)
	defer recompile.Stop()
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
		case <-recompile.C:
			rt.pending.add()
		}
		if !rt.listed.Load() {
			continue // no clusters known is not the same as no clusters (REC-2)
		}
		next := rt.compile()
		compiled()
		recompile.Reset(next)
	}
}

// refreshIssuers has the keys of issuers read again that are due, so that a
// cluster without traffic knows of an issuer that cannot be asked.
func (rt *Runtime) refreshIssuers() {
	for _, c := range rt.clusters() {
		c.Auth.refresh()
	}
}

// compile compiles the objects that changed and swaps the snapshot. It returns how
// long the result holds if no object changes: until a certificate begins or ends.
func (rt *Runtime) compile() time.Duration {
	before := rt.clusters()
	after := maps.Clone(before)
	if after == nil {
		after = make(map[k8swatch.Key]*Cluster)
	}
	touched := rt.touched(before)
	var ended []*upstream.Group
	for key := range touched {
		old := before[key]
		spec, carried := rt.compiler.Compile(rt.source, key, rt.carried[key])
		if spec == nil {
			delete(after, key)
			delete(rt.carried, key)
			continue
		}
		rt.carried[key] = carried
		if old != nil && old.Spec.UID != spec.UID {
			// Deleted and created again between two looks: the second object
			// takes over nothing of the first.
			ended = append(ended, rt.process.streams.detach(rt, key)...)
			rt.statuses.forget(key)
			old = nil
		}
		after[key] = rt.assemble(spec, old)
		rt.logReady(old, after[key])
	}
	rt.snapshot.Store(&Snapshot{Clusters: after})
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
			rt.statuses.forget(key)
		}
	}
	rt.process.streams.endMissing(rt)
	rt.prober.Follow(trusts(after))
	rt.readStatuses(touched)
	if len(touched) > 0 {
		rt.process.Events.look(slices.Collect(maps.Keys(touched))...)
	}
	return untilRecompile(after)
}

func trusts(clusters map[k8swatch.Key]*Cluster) map[k8swatch.Key]*trust.Trust {
	all := make(map[k8swatch.Key]*trust.Trust, len(clusters))
	for key, c := range clusters {
		all[key] = c.Trust
	}
	return all
}

// touched are the objects that the pending changes concern.
func (rt *Runtime) touched(before map[k8swatch.Key]*Cluster) map[k8swatch.Key]struct{} {
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
	return compile.Affected(rt.carried, changes)
}

// untilRecompile is how long clusters hold by the clock.
func untilRecompile(clusters map[k8swatch.Key]*Cluster) time.Duration {
	next := recompileAtLatest
	for _, c := range clusters {
		if !c.Spec.RecompileAt.IsZero() {
			next = min(next, max(time.Until(c.Spec.RecompileAt), time.Second))
		}
	}
	return next
}
