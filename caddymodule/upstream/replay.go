package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// ErrNotProcessed says that the apiserver closed the connection without
// looking at the request, and that its body could not be sent again (502,
// RELAY-5). The client may safely send the request again.
var ErrNotProcessed = errors.New("the apiserver closed the connection before it processed the request, and the request's body is too large to be sent again")

// maxReplay is how many bytes of a request's body are kept until the response's
// header is there. Most objects that kubectl sends are smaller.
const maxReplay = 64 << 10

var errBodyClosed = errors.New("reading the request's body: closed")

// replayBody lets net/http send a request again that an apiserver did not
// process (GOAWAY, REFUSED_STREAM): it keeps what was read of the body, up to a
// limit, and gives it again. net/http calls GetBody only for a request that no
// server has processed or that may be repeated.
type replayBody struct {
	src   io.ReadCloser
	limit int

	current atomic.Pointer[attempt]
	done    atomic.Bool // no further attempt will come
	closed  atomic.Bool

	// mu is held while src is read: bytes that an abandoned attempt still reads
	// are kept for the next attempt.
	mu   sync.Mutex
	buf  []byte
	lost bool // more than limit was read
	err  error
}

// newReplayBody is nil for a request without body.
func newReplayBody(r *http.Request) *replayBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	b := &replayBody{src: r.Body, limit: maxReplay}
	if r.ContentLength > maxReplay {
		b.limit = 0
	}
	return b
}

// first is the body of the first attempt.
func (b *replayBody) first() io.ReadCloser {
	a := &attempt{body: b}
	b.current.Store(a)
	return a
}

// again is Request.GetBody.
func (b *replayBody) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost {
		return nil, ErrNotProcessed
	}
	return b.first(), nil
}

// sent is called when RoundTrip has returned. The body may still be read: a
// response can begin before the request has ended.
func (b *replayBody) sent() {
	b.done.Store(true)
	if a := b.current.Load(); a.closed.Load() {
		b.close()
	}
}

// close closes the request's body unless it is being read. The server in front
// then closes it once the handler has returned, and so ends the read. Closing it
// here would be a race: the body that reverse_proxy hands on counts the bytes
// read, and looks at the count in Close, without a lock.
func (b *replayBody) close() error {
	if !b.closed.CompareAndSwap(false, true) || !b.mu.TryLock() {
		return nil
	}
	defer b.mu.Unlock()
	return b.src.Close()
}

// attempt is the body of one attempt to send the request.
type attempt struct {
	body   *replayBody
	off    int
	closed atomic.Bool
}

func (a *attempt) Read(p []byte) (int, error) {
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.closed.Load() || b.current.Load() != a {
		return 0, errBodyClosed
	}
	if a.off < len(b.buf) {
		n := copy(p, b.buf[a.off:])
		a.off += n
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	b.err = err
	b.keep(p[:n])
	a.off += n
	if b.lost {
		a.off = 0 // b.buf is empty from here on
	}
	return n, err
}

// keep keeps what was read from src, or drops everything that was kept.
func (b *replayBody) keep(p []byte) {
	switch {
	case b.lost || len(p) == 0:
	case b.done.Load() || len(b.buf)+len(p) > b.limit:
		b.lost, b.buf = true, nil
	default:
		b.buf = append(b.buf, p...)
	}
}

// Close ends the attempt. The request's own body is closed with the last one.
func (a *attempt) Close() error {
	a.closed.Store(true)
	if a.body.done.Load() && a.body.current.Load() == a {
		return a.body.close()
	}
	return nil
}
