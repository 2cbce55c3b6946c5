package serving

import (
	"slices"
	"sync"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// The names of the events.
const (
	EventClusterReady  = "proxyauth.cluster_ready"
	EventClusterClosed = "proxyauth.cluster_closed"
	EventLeader        = "proxyauth.leader"
)

// reasonRemoved is the reason of a cluster whose object is gone.
const reasonRemoved = "Removed"

// emit takes an event.
type emit func(name string, data map[string]any)

// standing is what holds at a moment.
type standing struct {
	// inForce says that a configuration is in force, clusters are those that it
	// serves, nil before the first full list, and leads says that it leads.
	inForce  bool
	clusters map[k8swatch.Key]*Cluster
	leads    bool
}

// Events tells the configuration in force when a cluster begins or ceases to be
// served by this process, and when this process begins or ceases to lead.
//
// One goroutine at a time emits. It looks at what holds at that moment, so that a
// slow subscriber delays no request and no compilation, and nothing piles up for
// it: of changes that undo each other meanwhile it hears nothing.
type Events struct {
	now func() standing

	mu sync.Mutex
	// subscribers are the configurations that have come into force, the newest
	// last.
	subscribers []*emit
	// changed names what may have changed, all says that all may have.
	changed map[k8swatch.Key]struct{}
	all     bool
	running bool

	// told is what was told last: whether a cluster is served, by its key. Only
	// the emitting goroutine uses it.
	told map[k8swatch.Key]bool
	// toldLeading is the same of leading.
	toldLeading bool
}

func newEvents(now func() standing) *Events {
	return &Events{now: now, changed: make(map[k8swatch.Key]struct{}), told: make(map[k8swatch.Key]bool)}
}

// Subscribe has emit called for each event, in place of the configuration before,
// until cancel is called.
func (e *Events) Subscribe(to func(name string, data map[string]any)) (cancel func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	subscriber := emit(to)
	e.subscribers = append(e.subscribers, &subscriber)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.subscribers = slices.DeleteFunc(e.subscribers, func(other *emit) bool { return other == &subscriber })
	}
}

// look has the clusters looked at, all of them when none is named. It does not
// wait.
func (e *Events) look(keys ...k8swatch.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = e.all || len(keys) == 0
	for _, key := range keys {
		e.changed[key] = struct{}{}
	}
	if !e.running {
		e.running = true
		go e.run()
	}
}

func (e *Events) run() {
	for {
		changed, all, to := e.take()
		if !all && len(changed) == 0 {
			return
		}
		now := e.now()
		if !now.inForce {
			// A configuration that is loaded later hears of everything.
			clear(e.told)
			e.toldLeading = false
			continue
		}
		if now.leads != e.toldLeading {
			e.toldLeading = now.leads
			to(EventLeader, map[string]any{"leading": now.leads})
		}
		if now.clusters == nil {
			continue
		}
		if all {
			for key := range now.clusters {
				changed[key] = struct{}{}
			}
			for key := range e.told {
				changed[key] = struct{}{}
			}
		}
		for key := range changed {
			e.tell(key, now.clusters[key], to)
		}
	}
}

// take returns what to look at, and ends the goroutine when that is nothing.
func (e *Events) take() (changed map[k8swatch.Key]struct{}, all bool, to emit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed, all, to = e.changed, e.all, func(string, map[string]any) {}
	e.changed, e.all = make(map[k8swatch.Key]struct{}), false
	e.running = all || len(changed) > 0
	if n := len(e.subscribers); n > 0 {
		to = *e.subscribers[n-1]
	}
	return changed, all, to
}

// tell compares a cluster with what was told of it last; c is nil when it is gone.
func (e *Events) tell(key k8swatch.Key, c *Cluster, to emit) {
	served, known := e.told[key]
	if c == nil {
		delete(e.told, key)
		if served {
			to(EventClusterClosed, eventData(key, reasonRemoved))
		}
		return
	}
	ready := c.ready()
	switch ready.Status {
	case k8swatch.StatusTrue:
		if !served {
			e.told[key] = true
			to(EventClusterReady, eventData(key, ready.Reason))
		}
	case k8swatch.StatusFalse:
		if served || !known {
			e.told[key] = false
			to(EventClusterClosed, eventData(key, ready.Reason))
		}
	default: // not known yet, which is no news of a new cluster
		if served {
			e.told[key] = false
			to(EventClusterClosed, eventData(key, ready.Reason))
		}
	}
}

// eventData holds nothing that an apiserver or an author writes: handlers of
// events may pass it to a shell. Names of objects are a-z, 0-9, '-' and '.'.
func eventData(key k8swatch.Key, reason string) map[string]any {
	return map[string]any{"namespace": key.Namespace, "cluster": key.Name, "reason": reason}
}
