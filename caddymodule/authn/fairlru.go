package authn

import (
	"container/list"
	"time"
)

// fairLRU remembers values by scope and token, up to a number of entries and of
// bytes. Over a bound it gives up an entry that has ended, else the least
// recently used one of the scope that holds most of what is bounded. So a scope
// that holds no more than an equal part of either bound loses nothing to
// another, whatever the other does. A look at an entry costs a lookup and
// allocates nothing; what makes room goes through the scopes. It is not safe for
// concurrent use.
type fairLRU[V any] struct {
	maxEntries, maxBytes int

	bytes   int
	entries map[cacheKey]*list.Element // of a share
	shares  map[scope]*share
	// order has the shares, that of the last new entry first.
	order list.List
}

// share is what one scope holds.
type share struct {
	scope   scope
	entries list.List // of *fairEntry, the one used last first
	bytes   int
	place   *list.Element // in fairLRU.order
}

type fairEntry[V any] struct {
	key   cacheKey
	value V
	size  int
	// end is when the entry is good for nothing.
	end   time.Time
	share *share
}

func newFairLRU[V any](maxEntries, maxBytes int) *fairLRU[V] {
	return &fairLRU[V]{
		maxEntries: maxEntries,
		maxBytes:   maxBytes,
		entries:    make(map[cacheKey]*list.Element),
		shares:     make(map[scope]*share),
	}
}

// get returns an entry, ended or not, and marks it as used.
func (l *fairLRU[V]) get(key *cacheKey) (value V, ok bool) {
	element, ok := l.entries[*key]
	if !ok {
		return value, false
	}
	entry := element.Value.(*fairEntry[V])
	entry.share.entries.MoveToFront(element)
	return entry.value, true
}

// add remembers a value of so many bytes in place of what is remembered of the
// key. One that is larger than all that may be held is not remembered.
func (l *fairLRU[V]) add(key *cacheKey, value V, size int, now, end time.Time) {
	l.remove(key)
	if size > l.maxBytes {
		return
	}
	s := l.shares[key.scope]
	if s == nil {
		s = &share{scope: key.scope}
		s.place = l.order.PushFront(s)
		l.shares[key.scope] = s
	} else {
		l.order.MoveToFront(s.place)
	}
	l.entries[*key] = s.entries.PushFront(&fairEntry[V]{key: *key, value: value, size: size, end: end, share: s})
	s.bytes += size
	l.bytes += size
	for len(l.entries) > l.maxEntries || l.bytes > l.maxBytes {
		l.unlink(l.victim(now))
	}
}

// victim is the entry to give up next. There must be one.
func (l *fairLRU[V]) victim(now time.Time) *list.Element {
	var largest *share
	for place := l.order.Back(); place != nil; place = place.Prev() {
		s := place.Value.(*share)
		oldest := s.entries.Back()
		// Nobody asks for what a configuration that is gone has left.
		if !now.Before(oldest.Value.(*fairEntry[V]).end) {
			return oldest
		}
		if largest == nil || l.holdsMore(s, largest) {
			largest = s
		}
	}
	return largest.entries.Back()
}

// holdsMore compares by the bound that is exceeded.
func (l *fairLRU[V]) holdsMore(a, b *share) bool {
	if l.bytes > l.maxBytes {
		return a.bytes > b.bytes
	}
	return a.entries.Len() > b.entries.Len()
}

func (l *fairLRU[V]) remove(key *cacheKey) {
	if element, ok := l.entries[*key]; ok {
		l.unlink(element)
	}
}

func (l *fairLRU[V]) unlink(element *list.Element) {
	entry := element.Value.(*fairEntry[V])
	s := entry.share
	s.entries.Remove(element)
	s.bytes -= entry.size
	l.bytes -= entry.size
	delete(l.entries, entry.key)
	if s.entries.Len() == 0 {
		l.order.Remove(s.place)
		delete(l.shares, s.scope)
	}
}

// drop forgets the entries of one scope.
func (l *fairLRU[V]) drop(of scope) {
	for s := l.shares[of]; s != nil && s.entries.Len() > 0; {
		l.unlink(s.entries.Back())
	}
}

func (l *fairLRU[V]) len() int { return len(l.entries) }
