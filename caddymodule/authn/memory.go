package authn

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// memoryLimit bounds the entries and the bytes that the memories of all clusters hold
// together. Over a bound, the memory that holds most gives up what it used least
// recently. So a cluster that holds no more than an equal part of either bound
// loses nothing to another, whatever the other does.
type memoryLimit[V any] struct {
	maxEntries, maxBytes int

	mu             sync.Mutex
	entries, bytes int
	memories       map[*memory[V]]struct{}
}

// memory is what the validator of one cluster remembers by token. It is safe for
// concurrent use.
type memory[V any] struct {
	limit  *memoryLimit[V]
	lru    *simplelru.LRU[tokenDigest, sized[V]]
	bytes  int
	closed bool
}

type sized[V any] struct {
	value V
	bytes int
}

func newMemoryLimit[V any](maxEntries, maxBytes int) *memoryLimit[V] {
	return &memoryLimit[V]{maxEntries: maxEntries, maxBytes: maxBytes, memories: make(map[*memory[V]]struct{})}
}

// newMemory makes an empty memory, which ends with its close.
func (l *memoryLimit[V]) newMemory() *memory[V] {
	m := &memory[V]{limit: l}
	// It fails for a size below 1.
	m.lru, _ = simplelru.NewLRU(l.maxEntries, func(_ tokenDigest, gone sized[V]) {
		m.bytes -= gone.bytes
		l.bytes -= gone.bytes
		l.entries--
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memories[m] = struct{}{}
	return m
}

func (l *memoryLimit[V]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries
}

// get returns what is remembered of a token, and marks it as used.
func (m *memory[V]) get(token *tokenDigest) (value V, ok bool) {
	m.limit.mu.Lock()
	defer m.limit.mu.Unlock()
	entry, ok := m.lru.Get(*token)
	return entry.value, ok
}

// add remembers a value of so many bytes in place of what is remembered of the
// token. A value that is larger than the bound is not remembered.
func (m *memory[V]) add(token *tokenDigest, value V, bytes int) {
	l := m.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	m.lru.Remove(*token)
	if m.closed || bytes > l.maxBytes {
		return
	}
	l.entries++
	l.bytes += bytes
	m.bytes += bytes
	m.lru.Add(*token, sized[V]{value, bytes})
	for l.entries > l.maxEntries || l.bytes > l.maxBytes {
		l.largest(m).lru.RemoveOldest()
	}
}

// largest is the memory that holds most of what is exceeded. Of equals it is
// another than the one which was added to.
func (l *memoryLimit[V]) largest(addedTo *memory[V]) *memory[V] {
	held := func(m *memory[V]) int {
		if l.bytes > l.maxBytes {
			return m.bytes
		}
		return m.lru.Len()
	}
	largest, most := addedTo, held(addedTo)
	for m := range l.memories {
		if n := held(m); n > most || n == most && largest == addedTo {
			largest, most = m, n
		}
	}
	return largest
}

func (m *memory[V]) remove(token *tokenDigest) {
	m.limit.mu.Lock()
	defer m.limit.mu.Unlock()
	m.lru.Remove(*token)
}

// close forgets everything, and whatever is added afterwards.
func (m *memory[V]) close() {
	m.limit.mu.Lock()
	defer m.limit.mu.Unlock()
	m.closed = true
	m.lru.Purge()
	delete(m.limit.memories, m)
}
