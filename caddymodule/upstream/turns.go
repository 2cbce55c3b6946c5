package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// turnTimeout is longer than a connection takes that is opened and used.
const turnTimeout = dialTimeout + tlsHandshakeTimeout + time.Second

// turns lets one connection at a time be opened to an apiserver that speaks
// HTTP/2 (RELAY-1).
//
// One connection serves a hundred requests or more, but net/http learns the
// protocol only when it has dialed, so each request that finds no free stream
// dials. Of the connections that hundreds of requests open at the same moment
// nearly all are closed unused, after a TLS handshake each, which takes seconds.
type turns struct {
	// http1 says that the newest connection speaks HTTP/1.1, which carries one
	// request at a time: then all may dial at once.
	http1 atomic.Bool

	mu      sync.Mutex
	current *turn // nil while no connection is being opened
}

// turn lasts from a dial to the first use of its connection.
type turn struct {
	turns *turns
	over  chan struct{} // closed at the end
	// err says why no connection was opened; it is written before over is closed.
	err  error
	once sync.Once
}

var (
	errNotNeeded = errors.New("dialing: the request needs no connection any more")
	// errUnused ends a turn whose connection is open, and nobody uses it.
	errUnused = errors.New("dialing: an open connection is not used")
)

// take waits for a turn to dial for a request. It returns nil where there is no
// turn to wait for, and errNotNeeded when the request got a connection that
// another one opened, or when its client has left: net/http does not cancel a dial.
//
// When the opening of a connection fails, all that waited for it fail with it, so
// that no request waits for two timeouts.
func (t *turns) take(request *informed) (*turn, error) {
	for !t.http1.Load() {
		t.mu.Lock()
		current := t.current
		if current == nil {
			t.current = &turn{turns: t, over: make(chan struct{})}
			defer t.mu.Unlock()
			return t.current, nil
		}
		t.mu.Unlock()
		select {
		case <-current.over:
		case <-time.After(turnTimeout):
			current.end(errUnused)
		}
		if request != nil && (request.connected.Load() || request.Err() != nil) {
			return nil, errNotNeeded
		}
		switch {
		case errors.Is(current.err, errUnused):
			return nil, nil
		case current.err != nil:
			return nil, current.err
		}
	}
	return nil, nil
}

// end ends a turn, once; err says why there is no connection.
func (t *turn) end(err error) {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.err = err
		t.turns.mu.Lock()
		t.turns.current = nil
		t.turns.mu.Unlock()
		close(t.over)
	})
}

// dial opens a connection in turn for the request of ctx. The connection ends the
// turn, by its first use or its end.
func (t *turns) dial(ctx context.Context, network string, open func(context.Context, string) (*tls.Conn, error)) (*tls.Conn, error) {
	request, _ := ctx.Value(informedKey{}).(*informed)
	mine, err := t.take(request)
	if err != nil {
		return nil, err
	}
	conn, err := open(ctx, network)
	if err != nil {
		mine.end(err)
		return nil, err
	}
	http1 := conn.ConnectionState().NegotiatedProtocol != "h2"
	t.http1.Store(http1)
	if http1 {
		mine.end(nil)
	} else if counted, ok := conn.NetConn().(*countedConn); ok {
		counted.turn = mine
	}
	return conn, nil
}

// firstUse ends the turn of a connection that its first request has got.
func firstUse(conn net.Conn) {
	encrypted, ok := conn.(*tls.Conn)
	if !ok {
		return
	}
	if counted, ok := encrypted.NetConn().(*countedConn); ok {
		counted.turn.end(nil)
	}
}
