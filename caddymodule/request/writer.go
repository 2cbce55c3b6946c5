package request

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// Unwrap gives http.ResponseController the writer underneath.
func (q *Request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// WriteHeader sends the headers and commits, even when the writer underneath
// panics over them. Informational answers pass; 101 is final.
func (q *Request) WriteHeader(code int) {
	if q.sent || code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
		q.ResponseWriter.WriteHeader(code)
		return
	}
	q.sent = true
	defer q.commit(code)
	header := q.Header()
	if q.decision.stripped {
		header.Add("Warning", impersonationIgnored)
	}
	if code != http.StatusSwitchingProtocols {
		if q.mustLeave() {
			header.Set("Connection", "close")
		}
		if q.name.InPath {
			identity.Sandbox(header) // all clusters of the path form share one origin
		}
	}
	q.ResponseWriter.WriteHeader(code)
}

// Write sends a body, and the headers of a 200 before it.
func (q *Request) Write(p []byte) (int, error) {
	if !q.sent {
		q.WriteHeader(http.StatusOK)
	}
	q.writing()
	defer q.written()
	n, err := q.ResponseWriter.Write(p)
	if q.isLost(err) {
		return len(p), nil // the body of the answer ends now
	}
	return n, err
}

// ReadFrom sends a body, and the headers of a 200 before it.
func (q *Request) ReadFrom(r io.Reader) (int64, error) {
	// Piece by piece, so that each shows whether the caller reads.
	return io.Copy(struct{ io.Writer }{q}, r)
}

// FlushError sends the headers when nothing was written yet.
func (q *Request) FlushError() error {
	if !q.sent {
		q.WriteHeader(http.StatusOK)
	}
	q.writing()
	defer q.written()
	return http.NewResponseController(q.ResponseWriter).Flush()
}

// Hijack gives the client's connection away, for an upgrade.
func (q *Request) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(q.ResponseWriter).Hijack()
	if err != nil || q.entry == nil {
		return conn, buffered, err
	}
	q.hijacked.Store(&conn)
	return &backlogConn{Conn: conn, entry: q.entry}, buffered, nil
}

// backlogConn is a client's connection after an upgrade.
type backlogConn struct {
	net.Conn
	entry *access.Entry
}

func (c *backlogConn) Write(p []byte) (int, error) {
	c.entry.Writing()
	defer c.entry.Written()
	return c.Conn.Write(p)
}

var errNoHalfClose = errors.New("the connection of the client cannot be closed by half")

// CloseWrite passes a half-close on (RELAY-2).
func (c *backlogConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errNoHalfClose
}

// Finish ends a request: it commits one that ended without an answer, because
// the client went away or the connection was aborted, and closes the body of an
// answer that was given up between its first header and its end.
func (q *Request) Finish() {
	if !q.sent {
		q.sent = true
		q.commit(0)
	}
	body := &q.decision.body
	if body.ReadCloser != nil {
		_ = body.Close()
	}
	if q.entry != nil {
		q.limitEnd()
		q.entry.Leave()
	}
	if body.abandoned.Load() {
		q.abandon()
	}
}

// Interface guards.
var (
	_ http.ResponseWriter                       = (*Request)(nil)
	_ http.Hijacker                             = (*Request)(nil)
	_ io.ReaderFrom                             = (*Request)(nil)
	_ interface{ FlushError() error }           = (*Request)(nil)
	_ interface{ Unwrap() http.ResponseWriter } = (*Request)(nil)
)
