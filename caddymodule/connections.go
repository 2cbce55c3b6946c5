package caddymodule

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// clientConns knows the clients' connections of all configurations of this
// process.
//
// Caddy waits for the servers of an earlier configuration only as long as its
// grace period, counted from the reload. A stream that outlived it has left the
// registry of streams when its last event was read; the bytes that tell the
// client that it is complete are written after that, by the server alone. The
// end of the connection, which every server that is stopping brings about, is
// the first sign that they are out.
var clientConns = newConnBook()

type connBook struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
	// empty is closed when no connection is open; nil while nobody waits.
	empty chan struct{}
}

func newConnBook() *connBook { return &connBook{open: make(map[net.Conn]struct{})} }

// observe is a hook for http.Server.ConnState. It costs nothing for each
// request. A hijacked connection is the registry's.
func (b *connBook) observe(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		b.mu.Lock()
		b.open[conn] = struct{}{}
		b.mu.Unlock()
	case http.StateHijacked, http.StateClosed:
		b.mu.Lock()
		delete(b.open, conn)
		if len(b.open) == 0 && b.empty != nil {
			close(b.empty)
			b.empty = nil
		}
		b.mu.Unlock()
	}
}

// wait returns when no connection is open, or when ctx ends.
func (b *connBook) wait(ctx context.Context) {
	b.mu.Lock()
	if len(b.open) == 0 {
		b.mu.Unlock()
		return
	}
	if b.empty == nil {
		b.empty = make(chan struct{})
	}
	empty := b.empty
	b.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
