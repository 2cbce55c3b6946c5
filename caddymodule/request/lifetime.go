package request

import (
	"sync/atomic"
	"time"
)

// replacedGrace is how long requests are still decided by a configuration that
// another one has replaced: those that were on their way then.
const replacedGrace = 5 * time.Second

// Lifetime says whether the configuration of a handler is still the one in force.
// A nil *Lifetime is in force for ever.
//
// A server that stops sends GOAWAY on the HTTP/2 connections that it knows. It
// does not know a connection whose TLS handshake is still under way, and serves it
// afterwards for as long as the client likes. The handlers of a configuration that
// was replaced see such a connection, and its clusters are not followed any more.
// So they tell the client to leave, and decide nothing after replacedGrace.
type Lifetime struct{ replaced, over atomic.Bool }

// Replace begins the end of the configuration. It is called once.
func (l *Lifetime) Replace() {
	l.replaced.Store(true)
	time.AfterFunc(replacedGrace, func() { l.over.Store(true) })
}

func (l *Lifetime) isReplaced() bool { return l != nil && l.replaced.Load() }

// checkLifetime refuses a request that came long after its configuration was
// replaced.
func checkLifetime(q *Request, _ *Decision) *Refusal {
	if l := q.config.Lifetime; l != nil && l.over.Load() {
		return oldConfiguration
	}
	return nil
}

// mustLeave reports whether the client has to leave its connection after this
// answer (STREAM-1, STREAM-2).
func (q *Request) mustLeave() bool {
	switch q.r.ProtoMajor {
	case 1: // where only an answer can tell the client to leave
		return q.config.Clusters.Stopping() || q.config.Lifetime.isReplaced()
	case 2: // net/http makes a GOAWAY of it
		return q.config.Lifetime.isReplaced()
	}
	return false
}
