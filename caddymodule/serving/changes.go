package serving

import (
	"maps"
	"slices"
	"sync"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// changeSet collects what changed until compileChanges takes it up.
type changeSet struct {
	// wake holds a token while there is something to take.
	wake chan struct{}

	mu      sync.Mutex
	all     bool
	changes map[k8swatch.Change]struct{}
}

func newChangeSet() *changeSet {
	return &changeSet{wake: make(chan struct{}, 1), changes: make(map[k8swatch.Change]struct{})}
}

// add notes changes; none means that anything may have changed.
func (s *changeSet) add(changes ...k8swatch.Change) {
	s.mu.Lock()
	s.all = s.all || len(changes) == 0
	for _, change := range changes {
		s.changes[change] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take empties the set.
func (s *changeSet) take() (all bool, changes []k8swatch.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, changes = s.all, slices.Collect(maps.Keys(s.changes))
	s.all = false
	clear(s.changes)
	return all, changes
}
