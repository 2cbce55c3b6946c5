package serving

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
)

// exitWait bounds what the end of the process waits for streams that do not
// end although they were told to.
const exitWait = 2 * time.Second

// shutdown is the end of the process, begun once.
type shutdown struct {
	once     sync.Once
	deadline time.Time
	// begun has every answer on HTTP/1.1 close its connection from now on. A
	// server that stops closes idle connections, and a request which is on its
	// way then is lost, and a client must not repeat one that changes something
	// (RFC 9112 section 9.5). HTTP/2 has GOAWAY for that, which the server sends.
	begun atomic.Bool
}

// BeginExit ends the watches when the listeners close, and lets upgraded
// connections go on until the grace period is over (STREAM-2).
func (p *Process) BeginExit(delay, grace time.Duration) {
	p.shutdown.once.Do(func() {
		p.shutdown.begun.Store(true)
		p.shutdown.deadline = time.Now().Add(delay + grace)
		time.AfterFunc(delay, func() { p.streams.registry.EndKinds(upstream.Watch) })
		time.AfterFunc(delay+grace, func() { p.streams.registry.EndKinds(upstream.Upgrade, upstream.WebSocket) })
	})
}

// FinishExit waits for the streams that reverse_proxy and the HTTP servers do
// not wait for: upgraded connections, and those of earlier configurations. It
// runs after all apps have stopped.
func (p *Process) FinishExit(ctx context.Context) {
	if p.shutdown.deadline.IsZero() {
		return
	}
	patient, cancel := context.WithDeadline(ctx, p.shutdown.deadline)
	defer cancel()
	if p.streams.registry.Wait(patient) != nil {
		p.streams.registry.EndKinds(upstream.Watch, upstream.Response, upstream.Upgrade, upstream.WebSocket)
	}
	last, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	_ = p.streams.registry.Wait(last)
	p.Connections.wait(last)
}
