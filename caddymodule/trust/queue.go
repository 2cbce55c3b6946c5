package trust

import (
	"container/heap"
	"time"
)

// queue is appointments that wait. Namespaces take turns, and of each the
// earliest appointment comes first: whoever has thousands of targets that do
// not answer waits for them alone (TRUST-1). A namespace uses every slot while
// no other waits; one that comes then has the first or second that is given back.
type queue struct {
	shares byTurn[*share]
	of     map[string]*share
	// turns is how many were taken.
	turns uint64
}

// share is what waits of one namespace. It goes when nothing does.
type share struct {
	namespace string
	waiting   byTurn[*appointment]
	index     int
	// served is when its last turn was, turn which of all that was.
	served time.Time
	turn   uint64
}

// due is when its next turn is: at its last one at the earliest, so that one
// that has been behind since long ago goes behind those that became due since.
func (s *share) due() time.Time {
	if due := s.waiting[0].due; due.After(s.served) {
		return due
	}
	return s.served
}

func (s *share) Before(other *share) bool {
	if order := s.due().Compare(other.due()); order != 0 {
		return order < 0
	}
	return s.turn < other.turn
}

func (s *share) Place() *int { return &s.index }

func newQueue() *queue { return &queue{of: make(map[string]*share)} }

func (q *queue) push(a *appointment) {
	s := q.of[a.namespace]
	if s == nil {
		s = &share{namespace: a.namespace}
		q.of[a.namespace] = s
		heap.Push(&s.waiting, a)
		heap.Push(&q.shares, s)
		return
	}
	heap.Push(&s.waiting, a)
	heap.Fix(&q.shares, s.index)
}

// remove takes an appointment out that is in this queue.
func (q *queue) remove(a *appointment) {
	s := q.of[a.namespace]
	if len(s.waiting) == 1 {
		heap.Remove(&q.shares, s.index)
		delete(q.of, s.namespace)
		heap.Remove(&s.waiting, a.index)
		return
	}
	heap.Remove(&s.waiting, a.index)
	heap.Fix(&q.shares, s.index)
}

// due is when the next turn is; ok is false while nothing waits.
func (q *queue) due() (at time.Time, ok bool) {
	if len(q.shares) == 0 {
		return at, false
	}
	return q.shares[0].due(), true
}

// take takes out what is next.
func (q *queue) take(now time.Time) *appointment {
	s := q.shares[0]
	a := s.waiting[0]
	q.turns++
	s.served, s.turn = now, q.turns
	q.remove(a)
	return a
}

// byTurn is a heap.Interface whose elements know their place, -1 outside.
type byTurn[T interface {
	Before(other T) bool
	Place() *int
}] []T

func (h byTurn[T]) Len() int           { return len(h) }
func (h byTurn[T]) Less(i, j int) bool { return h[i].Before(h[j]) }

func (h byTurn[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].Place(), *h[j].Place() = i, j
}

func (h *byTurn[T]) Push(x any) {
	e := x.(T)
	*e.Place() = len(*h)
	*h = append(*h, e)
}

func (h *byTurn[T]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	*e.Place() = -1
	return e
}
