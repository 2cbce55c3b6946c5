package upstream

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// newStream wraps the body of res, or returns nil when there is nothing to
// end.
func newStream(res *http.Response, kind Kind) stream {
	if res.StatusCode == http.StatusSwitchingProtocols {
		rwc, ok := res.Body.(io.ReadWriteCloser)
		if !ok {
			return nil
		}
		u := newUpgraded(rwc, strings.EqualFold(res.Header.Get("Upgrade"), "websocket"))
		res.Body = u
		return u
	}
	if res.Body == nil || res.Body == http.NoBody || res.ContentLength == 0 {
		return nil
	}
	if kind == Watch {
		w := &watch{body: res.Body}
		w.kind, w.events.mode = Watch, framingOf(res.Header)
		res.Body = w
		return w
	}
	u := &unary{body: res.Body}
	res.Body = u
	return u
}

// unary is the body of a response that ends by itself. Nearly all requests
// have one, so it costs one allocation and no lock while it is read.
type unary struct {
	node
	body io.ReadCloser
	cut  atomic.Bool
}

func (u *unary) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	if err != nil {
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
	body io.ReadCloser

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
		w.events.scan(p[:n])
		if err != nil {
			w.leave()
		}
		return n, err
	}
	n = w.events.scanToBoundary(p[:n])
	if err != nil || w.events.atBoundary() {
		w.over = true
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
// body under it; between two halves of an event it waits for the second.
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
