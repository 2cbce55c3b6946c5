package request

import (
	"errors"
	"net/http"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
)

// refusalTimeout is how long the proxy waits for a client to take an answer that
// the proxy makes itself, backlogTimeout the same for the refusal of a caller who
// does not read.
const (
	refusalTimeout = 10 * time.Second
	backlogTimeout = 2 * time.Second
)

// Enter has an accepted request take its place among those of its caller
// (RELAY-7). A request that is decided again keeps its place.
func (q *Request) Enter() *Refusal {
	if q.entry != nil || q.config.Backlog == nil {
		q.decision.entry = q.entry
		return nil
	}
	entry, err := q.config.Backlog.Enter(q.r, q.decision.Key.Namespace, q.decision.subject, q.cut)
	switch {
	case err == nil:
		q.entry, q.decision.entry = entry, entry
		return nil
	case errors.Is(err, access.ErrBacklog):
		return backlogged
	}
	return clientClosedRequest
}

// cut ends an answer whose write is under way, so that the write returns.
func (q *Request) cut() {
	if conn := q.hijacked.Load(); conn != nil {
		go (*conn).Close() // which says goodbye, and may wait for the client
		return
	}
	// The only error is that of a writer without deadlines, which no server of
	// Caddy has.
	_ = http.NewResponseController(serverWriter(q.ResponseWriter)).SetWriteDeadline(time.Now())
}

// serverWriter is the writer of the server, under all that wrap it. Its deadline
// may be set while another goroutine writes; Caddy's writers that limit how long a
// client may be idle have one that may not.
func serverWriter(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// limitEnd limits how long the server may take for what it sends when the handler
// has returned: on HTTP/1.1 the headers of an answer without a body, and the end
// of a chunked one. The server removes the deadline afterwards.
func (q *Request) limitEnd() {
	if q.r.ProtoMajor == 1 && q.hijacked.Load() == nil {
		_ = http.NewResponseController(q.ResponseWriter).SetWriteDeadline(time.Now().Add(access.NoProgress))
	}
}

func (q *Request) writing() {
	if q.entry != nil {
		q.entry.Writing()
	}
}

func (q *Request) written() {
	if q.entry != nil {
		q.entry.Written()
	}
}
