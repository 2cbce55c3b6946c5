package serving

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/drain"
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
	count drain.Counter

	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newConnections() *Connections { return &Connections{open: make(map[net.Conn]struct{})} }

// Observe is a hook for http.Server.ConnState. It costs nothing for each
// request. A hijacked connection is followed as a stream.
func (c *Connections) Observe(conn net.Conn, state http.ConnState) {
	if state == http.StateActive || state == http.StateIdle {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.open[conn]
	switch state {
	case http.StateNew:
		if !known {
			c.open[conn] = struct{}{}
			c.count.Add(1)
		}
	case http.StateHijacked, http.StateClosed:
		if known {
			delete(c.open, conn)
			c.count.Add(-1)
		}
	}
}

// wait returns when no connection is open, or when ctx ends.
func (c *Connections) wait(ctx context.Context) { _ = c.count.Wait(ctx) }
