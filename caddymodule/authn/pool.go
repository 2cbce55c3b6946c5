package authn

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// pool bounds the entries and the bytes that the memories of all clusters hold
// together. Over a bound, the memory that holds most gives up what it used least
// recently. So a cluster that holds no more than an equal part of either bound
// loses nothing to another, whatever the other does.
type pool[V any] struct {
	maxEntries, maxBytes int

	mu             sync.Mutex
	entries, bytes int
	memories       map[*memory[V]]struct{}
}

// memory is what the validator of one cluster remembers by token. It is safe for
// concurrent use.
type memory[V any] struct {
	pool   *pool[V]
	lru    *simplelru.LRU[tokenDigest, sized[V]]
	bytes  int
	closed bool
}

type sized[V any] struct {
	value V
	bytes int
}

func newPool[V any](maxEntries, maxBytes int) *pool[V] {
	return &pool[V]{maxEntries: maxEntries, maxBytes: maxBytes, memories: make(map[*memory[V]]struct{})}
}

// newMemory makes an empty memory, which ends with its close.
func (p *pool[V]) newMemory() *memory[V] {
	m := &memory[V]{pool: p}
	// It fails for a size below 1.
	m.lru, _ = simplelru.NewLRU(p.maxEntries, func(_ tokenDigest, gone sized[V]) {
		m.bytes -= gone.bytes
		p.bytes -= gone.bytes
		p.entries--
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memories[m] = struct{}{}
	return m
}

func (p *pool[V]) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entries
}

// get returns what is remembered of a token, and marks it as used.
func (m *memory[V]) get(token *tokenDigest) (value V, ok bool) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	entry, ok := m.lru.Get(*token)
	return entry.value, ok
}

// add remembers a value of so many bytes in place of what is remembered of the
// token. A value that is larger than the bound is not remembered.
func (m *memory[V]) add(token *tokenDigest, value V, bytes int) {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	m.lru.Remove(*token)
	if m.closed || bytes > p.maxBytes {
		return
	}
	p.entries++
	p.bytes += bytes
	m.bytes += bytes
	m.lru.Add(*token, sized[V]{value, bytes})
	for p.entries > p.maxEntries || p.bytes > p.maxBytes {
		p.largest(m).lru.RemoveOldest()
	}
}

// largest is the memory that holds most of what is exceeded. Of equals it is
// another than the one which was added to.
func (p *pool[V]) largest(addedTo *memory[V]) *memory[V] {
	held := func(m *memory[V]) int {
		if p.bytes > p.maxBytes {
			return m.bytes
		}
		return m.lru.Len()
	}
	largest, most := addedTo, held(addedTo)
	for m := range p.memories {
		if n := held(m); n > most || n == most && largest == addedTo {
			largest, most = m, n
		}
	}
	return largest
}

func (m *memory[V]) remove(token *tokenDigest) {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.lru.Remove(*token)
}

// close forgets everything, and whatever is added afterwards.
func (m *memory[V]) close() {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	m.closed = true
	m.lru.Purge()
	delete(m.pool.memories, m)
}
