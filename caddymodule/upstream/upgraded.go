package upstream

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// lingering is what a client gets to read the last bytes of an upgraded connection
// that the apiserver has closed, and to close its own end.
const lingering = 2 * time.Minute

// upgraded is the connection of a 101 (exec, attach, port-forward), seen from
// the proxy: reading gives what the apiserver sends to the client, writing is
// what the client sends to the apiserver.
//
// The proxy ends a WebSocket with a close frame (1001) to either side, each
// between two frames, and leaves it open for a moment so that the client can
// answer. With SPDY the client gets a GOAWAY, and the error stream of a command the
// reason, which a client needs to see a failure; the apiserver's connection ends.
//
// The code that copies the two directions must stop both when Read returns
// ErrEnded, as Caddy's reverse_proxy does. After io.EOF it would pass on a
// half-close and go on waiting for the client.
//
// An apiserver closes a stream behind its last bytes. They may still be on their way
// to a client that reads slowly, and that sends more meanwhile, such as the pings
// of kubectl. These cannot be delivered, which is no reason to stop both directions:
// only Read says that the stream has ended.
type upgraded struct {
	node
	rwc io.ReadWriteCloser

	ending   atomic.Bool
	answered chan struct{} // closed when the client sends nothing more
	answer   sync.Once

	// farewell is what the client gets at the end, between two frames.
	farewell []byte

	rmu          sync.Mutex // guards the next four
	readEnd      time.Time  // when the apiserver ended the stream, or the connection broke
	in           framer
	clientClosed bool   // the farewell to the client is queued, or cannot be sent
	queued       []byte // what is left of it

	wmu             sync.Mutex // guards the next three; held while writing
	lost            error      // why the apiserver takes nothing more
	out             framer
	apiserverClosed bool // the apiserver has its close frame; the rest is dropped
}

// newUpgraded makes the stream of a 101 with this header.
func newUpgraded(rwc io.ReadWriteCloser, header http.Header, o StreamOptions) *upgraded {
	u := &upgraded{node: newNode(o), rwc: rwc, answered: make(chan struct{})}
	if o.Kind == WebSocket {
		u.in.mode, u.out.mode = webSocket, webSocket
		u.farewell = closeFrame[:]
	} else {
		u.in.mode = spdy // an upgrade to anything else is not relayed (URL-5)
		u.farewell = spdyFarewell(header.Get("X-Stream-Protocol-Version"))
	}
	return u
}

func (u *upgraded) Read(p []byte) (int, error) {
	if n, err, done := u.readClose(p); done {
		return n, err
	}
	n, err := u.rwc.Read(p)

	u.rmu.Lock()
	if err != nil && u.readEnd.IsZero() {
		u.readEnd = time.Now()
	}
	if !u.ending.Load() {
		u.received(n)
		u.in.scan(p[:n])
		u.rmu.Unlock()
		return n, err
	}
	// The farewell takes the place of what follows the frame in progress.
	n = u.in.scanToBoundary(p[:n])
	u.received(n)
	if u.in.atBoundary() {
		u.queueClose()
	} else if err != nil {
		// The frame will not be completed: there is nothing to wait for.
		u.clientClosed = true
		u.clientAnswered()
	}
	u.rmu.Unlock()
	if n > 0 {
		return n, nil
	}
	if n, err, done := u.readClose(p); done {
		return n, err
	}
	return 0, err
}

// queueClose queues the farewell to the client, once. rmu is held.
func (u *upgraded) queueClose() {
	if u.clientClosed {
		return
	}
	u.clientClosed = true
	if !u.in.sawClose {
		u.queued = u.farewell
	}
}

// readClose is Read once the stream is being ended, which done reports: first the
// farewell, then nothing until the client has answered it or left, then ErrEnded.
func (u *upgraded) readClose(p []byte) (n int, err error, done bool) {
	if !u.ending.Load() {
		return 0, nil, false
	}
	u.rmu.Lock()
	if !u.clientClosed && u.in.atBoundary() {
		u.queueClose()
	}
	if !u.clientClosed {
		u.rmu.Unlock()
		return 0, nil, false
	}
	if len(u.queued) > 0 {
		n = copy(p, u.queued)
		u.queued = u.queued[n:]
		u.rmu.Unlock()
		return n, nil, true
	}
	u.rmu.Unlock()
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-u.answered:
	case <-timer.C:
	}
	return 0, ErrEnded, true
}

// Write does not fail because the stream is being ended: whoever copies would close
// the client's connection before its farewell.
func (u *upgraded) Write(p []byte) (int, error) {
	u.wmu.Lock()
	defer u.wmu.Unlock()
	if !u.ending.Load() {
		if u.lost != nil {
			return u.drop(p)
		}
		n, err := u.rwc.Write(p)
		u.sent(n)
		u.out.scan(p[:n])
		if err == nil {
			return n, nil
		}
		if !u.ending.Load() {
			u.lost = err
			return u.drop(p)
		}
		return len(p), nil
	}
	if !u.apiserverClosed {
		n := u.out.scanToBoundary(p)
		if n > 0 {
			m, err := u.rwc.Write(p[:n])
			u.sent(m)
			if err != nil {
				u.apiserverClosed = true
			}
		}
		u.closeApiserver()
		u.out.scan(p[n:])
	} else {
		u.out.scan(p)
	}
	if u.out.sawClose {
		u.clientAnswered()
	}
	return len(p), nil
}

// drop takes what the client sends to an apiserver that takes nothing more, until
// lingering is over. wmu is held.
func (u *upgraded) drop(p []byte) (int, error) {
	u.rmu.Lock()
	defer u.rmu.Unlock()
	if !u.readEnd.IsZero() && time.Since(u.readEnd) > lingering {
		return 0, u.lost
	}
	return len(p), nil
}

// closeApiserver sends the close frame to the apiserver, once, between two
// frames. wmu is held.
func (u *upgraded) closeApiserver() {
	if u.apiserverClosed || !u.out.atBoundary() {
		return
	}
	u.apiserverClosed = true
	if u.kind != WebSocket || u.out.sawClose {
		return
	}
	var key [4]byte
	_, _ = rand.Read(key[:])
	_, _ = u.rwc.Write(maskedCloseFrame(key))
}

func (u *upgraded) clientAnswered() { u.answer.Do(func() { close(u.answered) }) }

// CloseWrite passes the client's half-close on (RELAY-2): close_notify, where
// the connection is TLS. While the stream is being ended it does nothing.
func (u *upgraded) CloseWrite() error {
	u.clientAnswered()
	if u.ending.Load() {
		return nil
	}
	if half, ok := u.rwc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection to the apiserver.
func (u *upgraded) Close() error {
	u.leave()
	u.clientAnswered()
	return u.rwc.Close()
}

// end lets a Read that waits for the apiserver return: with SPDY at once, else when
// the apiserver answers the close frame or after boundaryGrace, which a frame in
// progress gets with both.
func (u *upgraded) end() {
	u.rmu.Lock()
	first := u.ending.CompareAndSwap(false, true)
	between := u.in.atBoundary()
	u.rmu.Unlock()
	if !first {
		return
	}
	if u.kind != WebSocket && between {
		go u.rwc.Close()
		return
	}
	// Closing also frees a Write that holds wmu because the apiserver does
	// not read.
	time.AfterFunc(boundaryGrace, func() { _ = u.rwc.Close() })
	if u.kind != WebSocket {
		return
	}
	go func() {
		u.wmu.Lock()
		defer u.wmu.Unlock()
		u.closeApiserver()
	}()
}
