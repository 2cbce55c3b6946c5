package boundedjson

import (
	"context"
	"slices"
	"sync"
)

// Owner is the object that has a server asked. All objects of a namespace count as
// those of one tenant.
type Owner struct{ Namespace, Name string }

// slots are the places for large answers. One object has a quarter of them at most
// and one namespace half: a server may begin a large answer and never end it, and
// keep its place for as long as an answer may take.
type slots struct {
	total int

	mu         sync.Mutex
	used       int
	objects    map[Owner]int
	namespaces map[string]int
	waiting    []*waiter // in the order they came
}

// waiter is an answer that waits for a slot.
type waiter struct {
	owners []Owner
	// granted receives the owner that the slot is counted for.
	granted chan Owner
}

func newSlots(total int) *slots {
	return &slots{total: total, objects: make(map[Owner]int), namespaces: make(map[string]int)}
}

// take waits for a slot until ctx ends. The slot counts for the owner that holds
// fewest: what others do with their own servers is not held against a server that
// an owner shares with them.
func (s *slots) take(ctx context.Context, owners []Owner) (Owner, error) {
	w := &waiter{owners: owners, granted: make(chan Owner, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grantLocked()
	s.mu.Unlock()
	select {
	case owner := <-w.granted:
		return owner, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case owner := <-w.granted:
		return owner, nil // it came in the meantime
	default:
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(other *waiter) bool { return other == w })
	return Owner{}, ErrNoSlot
}

// give gives a slot back.
func (s *slots) give(owner Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	decrement(s.objects, owner)
	decrement(s.namespaces, owner.Namespace)
	s.grantLocked()
}

// grantLocked gives the free slots to those that waited longest, without those
// whose owners have their share.
func (s *slots) grantLocked() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		owner, ok := s.chooseLocked(w.owners)
		if ok {
			s.used++
			s.objects[owner]++
			s.namespaces[owner.Namespace]++
			w.granted <- owner
		}
		return ok
	})
}

// chooseLocked returns the owner with the fewest slots that may have one more.
func (s *slots) chooseLocked(owners []Owner) (chosen Owner, ok bool) {
	if s.used >= s.total {
		return chosen, false
	}
	for _, o := range owners {
		if s.objects[o] >= max(1, s.total/4) || s.namespaces[o.Namespace] >= max(1, s.total/2) {
			continue
		}
		if !ok || s.namespaces[o.Namespace] < s.namespaces[chosen.Namespace] {
			chosen, ok = o, true
		}
	}
	return chosen, ok
}

func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
