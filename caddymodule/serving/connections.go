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
// Caddy waits for the servers of an earlier configuration only for its grace
// period, counted from the reload. So the end of the process must wait itself for
// streams that outlived a reload. A stream leaves the registry of streams when its
// last event was read. The server then still writes the bytes that tell the client
// that the stream is complete. The first sign that these bytes are sent is the end
// of the connection, which every server that is stopping closes.
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
