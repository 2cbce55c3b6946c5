package serving

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Connections are the open connections of clients, of all configurations of
// this process.
//
// Caddy waits for the servers of an earlier configuration only as long as its
// grace period, counted from the reload. A stream that outlived it has left the
// registry of streams when its last event was read; the bytes that tell the
// client that it is complete are written after that, by the server alone. The
// end of the connection, which every server that is stopping brings about, is
// the first sign that they are out.
type Connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
	// empty is closed when no connection is open; nil while there is no waiter.
	empty chan struct{}
}

func newConnections() *Connections { return &Connections{open: make(map[net.Conn]struct{})} }

// Observe is a hook for http.Server.ConnState. It costs nothing for each
// request. A hijacked connection is followed as a stream.
func (c *Connections) Observe(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.mu.Lock()
		c.open[conn] = struct{}{}
		c.mu.Unlock()
	case http.StateHijacked, http.StateClosed:
		c.mu.Lock()
		delete(c.open, conn)
		if len(c.open) == 0 && c.empty != nil {
			close(c.empty)
			c.empty = nil
		}
		c.mu.Unlock()
	}
}

// wait returns when no connection is open, or when ctx ends.
func (c *Connections) wait(ctx context.Context) {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
