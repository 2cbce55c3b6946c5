package serving

import "sync"

// usagePool counts the users of shared values by key. The zero value is empty.
type usagePool[T any] struct {
	mu     sync.Mutex
	values map[string]*shared[T]
}

type shared[T any] struct {
	value T
	users int
}

// acquire returns the value of a key for one more user, and makes it for the
// first one.
func (p *usagePool[T]) acquire(key string, make func() (T, error)) (T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.values[key]; s != nil {
		s.users++
		return s.value, nil
	}
	value, err := make()
	if err != nil {
		return value, err
	}
	if p.values == nil {
		p.values = map[string]*shared[T]{}
	}
	p.values[key] = &shared[T]{value: value, users: 1}
	return value, nil
}

// release takes one user away, and reports whether that was the last: the value
// must then be ended.
func (p *usagePool[T]) release(key string) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.values[key]
	if s == nil {
		return false
	}
	if s.users--; s.users > 0 {
		return false
	}
	delete(p.values, key)
	return true
}

// size is how many values are in use.
func (p *usagePool[T]) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.values)
}
