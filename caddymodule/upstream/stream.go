package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// ErrEnded is what reading a stream returns that the proxy ended and that has
// no clean end of its own: an upgraded connection, or a response that would
// otherwise look complete.
var ErrEnded = errors.New("the proxy ended the stream")

// What ending may take: less than 5 s in all (STREAM-1).
const (
	// boundaryGrace is what an unfinished event or frame gets.
	boundaryGrace = time.Second
	// closeGrace is what a client gets to answer a WebSocket close frame.
	closeGrace = 2 * time.Second
	// unreadGrace is what a client gets to read the end of a stream, unansweredGrace
	// the same for a response, whose end has waited before.
	unreadGrace, unansweredGrace = 4 * time.Second, time.Second
)

// Kind says how a stream ends.
type Kind int

// The kinds of stream.
const (
	// Response is a response that ends by itself. Ended before, it ends with
	// an error.
	Response Kind = iota
	// Watch is a watch or a followed log. It may end cleanly after any event.
	Watch
	// Upgrade is the connection behind a 101.
	Upgrade
	// WebSocket is an Upgrade that speaks WebSocket.
	WebSocket
)

// StreamOptions describe a stream to Track.
type StreamOptions struct {
	Kind Kind
	// Subject names the user of the stream, for EndSubject. Any text serves that
	// no other user has.
	Subject string
	// Client, if not nil, is who reads the stream. One who does not read the end is
	// cut off.
	Client Client
	// Ended, if not nil, is called once when the stream has ended, whatever ended
	// it. It must not block and must not touch the stream.
	Ended func(Ending)
}

// Client is the connection to who reads a stream.
type Client interface {
	// Cut has the write to the client that is under way fail, while the stream is
	// open. It must not block, and may be called after the end of the stream.
	Cut()
}

// Ending says what a stream carried until it ended.
type Ending struct {
	Duration time.Duration
	// Received are bytes from the apiserver, Sent bytes to it after the request's
	// header and body.
	Received, Sent int64
}

// stream is an open stream.
type stream interface {
	entry() *node
	// end ends the stream. It does not wait, and may be called again.
	end()
}

// node is the entry of a stream in the ring of its group, which the lock of the
// registry guards.
type node struct {
	kind       Kind
	subject    string
	group      *Group
	stream     stream
	client     Client
	prev, next *node
	traffic    *traffic // nil unless StreamOptions.Ended is set
}

// traffic counts what a stream carries.
type traffic struct {
	began          time.Time
	ended          func(Ending)
	received, sent atomic.Int64
}

func newNode(o StreamOptions) node {
	n := node{kind: o.Kind, subject: o.Subject, client: o.Client}
	if o.Ended != nil {
		n.traffic = &traffic{began: time.Now(), ended: o.Ended}
	}
	return n
}

func (n *node) entry() *node { return n }

func (n *node) received(bytes int) {
	if n.traffic != nil {
		n.traffic.received.Add(int64(bytes))
	}
}

func (n *node) sent(bytes int) {
	if n.traffic != nil {
		n.traffic.sent.Add(int64(bytes))
	}
}

// end ends a stream, and does not wait. A client that does not read would keep it:
// Read, which tells the end, is not called while a write to the client is under way.
func end(s stream) {
	s.end()
	n := s.entry()
	if n.client == nil {
		return
	}
	grace := unreadGrace
	if n.kind == Response {
		grace = unansweredGrace
	}
	time.AfterFunc(grace, func() {
		if n.isOpen() {
			n.client.Cut()
		}
	})
}

func (n *node) isOpen() bool {
	n.group.registry.mu.Lock()
	defer n.group.registry.mu.Unlock()
	return n.next != nil
}

// leave takes a stream out of its registry and reports its end, once.
func (n *node) leave() {
	r := n.group.registry
	r.mu.Lock()
	if n.next == nil {
		r.mu.Unlock()
		return
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
	n.group.open--
	r.mu.Unlock()
	if t := n.traffic; t != nil {
		t.ended(Ending{Duration: time.Since(t.began), Received: t.received.Load(), Sent: t.sent.Load()})
	}
	r.open.Add(-1) // last, so that Wait returns after the report
}

// waiting is a request without a response.
type waiting struct {
	node
	cancel context.CancelCauseFunc
}

func (w *waiting) end() { w.cancel(ErrEnded) }

// newStream wraps the body of res, or returns nil for a response without a body.
func newStream(res *http.Response, o StreamOptions) stream {
	if res.StatusCode == http.StatusSwitchingProtocols {
		rwc, ok := res.Body.(io.ReadWriteCloser)
		if !ok {
			return nil
		}
		o.Kind = Upgrade
		if strings.EqualFold(res.Header.Get("Upgrade"), "websocket") {
			o.Kind = WebSocket
		}
		u := newUpgraded(rwc, res.Header, o)
		res.Body = u
		return u
	}
	if res.Body == nil || res.Body == http.NoBody {
		return nil
	}
	if o.Kind == Watch {
		w := &watch{node: newNode(o), answer: res, body: res.Body, events: framer{mode: framingOf(res.Header)}}
		res.Body = w
		return w
	}
	u := &unary{node: newNode(o), answer: res, body: res.Body}
	res.Body = u
	return u
}

// scrubTrailers removes from the trailers of an answer what acts on the whole
// origin (ID-5). net/http fills them in when it has read the body.
func scrubTrailers(res *http.Response) { identity.ScrubAnswer(res.Trailer, false) }

// unary is the body of a response that ends by itself. Nearly all requests
// have one, so it costs one allocation and no lock while it is read.
type unary struct {
	node
	answer *http.Response
	body   io.ReadCloser
	cut    atomic.Bool
}

func (u *unary) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	u.received(n)
	if err != nil {
		scrubTrailers(u.answer)
		u.leave()
		if err != io.EOF && u.cut.Load() {
			err = ErrEnded
		}
	}
	return n, err
}

func (u *unary) Close() error {
	u.leave()
	return u.body.Close()
}

// end cuts the response. It ends with an error: with a clean end, a list or a
// log that lost its rest would look complete.
func (u *unary) end() {
	if u.cut.CompareAndSwap(false, true) {
		// Closing may wait for the connection.
		go u.body.Close()
	}
}

// watch is the body of a watch or a followed log. Ended, it reads to the
// end of the event it is in and then returns io.EOF, so that the response to
// the client ends as if the apiserver had ended it.
type watch struct {
	node
	answer *http.Response
	body   io.ReadCloser

	mu     sync.Mutex // guards what follows
	events framer
	ending bool
	over   bool // Read returns io.EOF
}

func (w *watch) Read(p []byte) (int, error) {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return 0, io.EOF
	}
	w.mu.Unlock()

	n, err := w.body.Read(p)

	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending {
		w.received(n)
		w.events.scan(p[:n])
		if err != nil {
			scrubTrailers(w.answer)
			w.leave()
		}
		return n, err
	}
	n = w.events.scanToBoundary(p[:n])
	w.received(n)
	if err != nil || w.events.atBoundary() {
		w.over = true
		scrubTrailers(w.answer)
		w.leave()
		go w.body.Close()
		return n, io.EOF
	}
	return n, nil
}

func (w *watch) Close() error {
	w.leave()
	return w.body.Close()
}

// end lets a Read that waits for the next event return at once, by closing the
// body under it. In the middle of an event it waits for the rest.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		return
	}
	w.ending = true
	if w.events.atBoundary() {
		go w.body.Close()
		return
	}
	time.AfterFunc(boundaryGrace, func() { _ = w.body.Close() })
}
