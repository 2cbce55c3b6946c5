package serving

import (
	"sync"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// endGrace is how long an ordinary response may go on when its cluster is
// deleted or moved (STREAM-1).
const endGrace = 4 * time.Second

// groupKey is a cluster at one address: one that moves begins a new group.
type groupKey struct {
	cluster k8swatch.Key
	target  string
}

// streamGroups are the open streams of the process, by cluster and address. They
// are not part of a Runtime: a reload that changes an option makes a new one, and
// the streams go on.
type streamGroups struct {
	registry *upstream.Registry
	mu       sync.Mutex
	groups   map[groupKey]*upstream.Group
}

func newStreamGroups() *streamGroups {
	return &streamGroups{registry: upstream.NewRegistry(), groups: make(map[groupKey]*upstream.Group)}
}

// groupOf returns the group for the streams of a cluster at its address, nil
// for one that is disabled: it has none. A group that ended is replaced.
func (s *streamGroups) groupOf(c *k8swatch.Cluster) *upstream.Group {
	if !c.Enabled {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := groupKey{c.Key, c.Target.Canonical}
	g := s.groups[k]
	if g == nil {
		g = s.registry.NewGroup()
		s.groups[k] = g
	}
	return g
}

// endMissing ends the streams of the clusters that a runtime does not have, has
// disabled or has moved (STREAM-1). Only the runtime that serves new requests
// decides.
func (s *streamGroups) endMissing(rt *Runtime) {
	snapshot := rt.Snapshot()
	if snapshot == nil || rt.process.Current() != rt {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, g := range s.groups {
		c := snapshot.Clusters[k.cluster]
		if c == nil || !c.Spec.Enabled || c.Spec.Target.Canonical != k.target {
			delete(s.groups, k)
			g.End(endGrace)
		}
	}
}

// detach takes the groups of an object that was deleted and created again under
// its name; the caller ends them. As in endMissing, only the runtime that
// serves new requests decides.
func (s *streamGroups) detach(rt *Runtime, key k8swatch.Key) []*upstream.Group {
	if rt.process.Current() != rt {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var groups []*upstream.Group
	for k, g := range s.groups {
		if k.cluster == key {
			delete(s.groups, k)
			groups = append(groups, g)
		}
	}
	return groups
}
