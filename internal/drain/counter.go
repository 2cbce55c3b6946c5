package drain

import (
	"context"
	"sync"
	"sync/atomic"
)

// Counter counts what is open. The zero value counts nothing and is ready for
// use. It is safe for concurrent use; while no caller waits, Add takes no lock
// unless the count reaches zero.
type Counter struct {
	open atomic.Int64

	mu sync.Mutex
	// empty is closed when the count reaches zero; nil while no caller waits.
	empty chan struct{}
}

// Add adds delta, which may be negative. The count must not become negative.
func (c *Counter) Add(delta int) {
	if c.open.Add(int64(delta)) != 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.empty != nil && c.open.Load() == 0 {
		close(c.empty)
		c.empty = nil
	}
}

// Len is the count.
func (c *Counter) Len() int { return int(c.open.Load()) }

// Wait returns nil when nothing is open, or the error of ctx when that ends
// before.
func (c *Counter) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.open.Load() == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
