package upstream

import (
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// upgraded is the connection of a 101 (exec, attach, port-forward), seen from
// the proxy: reading gives what the apiserver sends to the client, writing is
// what the client sends to the apiserver.
//
// A WebSocket is ended with a close frame (1001) to either side, each between
// two frames, and stays open for a moment so that the client can answer it.
// Other protocols (SPDY) have no such word: the connection ends.
//
// Whoever copies the two directions must stop both when Read returns
// ErrEnded, as Caddy's reverse_proxy does: with io.EOF it would pass on a
// half-close and go on waiting for the client.
type upgraded struct {
	node
	rwc io.ReadWriteCloser

	ending   atomic.Bool
	answered chan struct{} // closed when the client has nothing more to say
	answer   sync.Once

	rmu      sync.Mutex // guards in, told
	in       framer
	told     bool // the client has its close frame, or cannot get one
	leftover []byte

	wmu  sync.Mutex // guards out, done; held while writing
	out  framer
	done bool // the apiserver has its close frame; the rest is dropped
}

func newUpgraded(rwc io.ReadWriteCloser, o Options) *upgraded {
	u := &upgraded{node: newNode(o), rwc: rwc, answered: make(chan struct{})}
	if o.Kind == WebSocket {
		u.in.mode, u.out.mode = webSocket, webSocket
	}
	return u
}

func (u *upgraded) Read(p []byte) (int, error) {
	if n, err, done := u.farewell(p); done {
		return n, err
	}
	n, err := u.rwc.Read(p)

	u.rmu.Lock()
	if !u.ending.Load() {
		u.received(n)
		u.in.scan(p[:n])
		u.rmu.Unlock()
		return n, err
	}
	// What comes after the frame in progress is dropped: the close frame takes
	// its place.
	n = u.in.scanToBoundary(p[:n])
	u.received(n)
	if u.in.atBoundary() {
		u.sayGoodbye()
	} else if err != nil {
		// The frame will not be completed: there is nothing to wait for.
		u.told = true
		u.gotAnswer()
	}
	u.rmu.Unlock()
	if n > 0 {
		return n, nil
	}
	if n, err, done := u.farewell(p); done {
		return n, err
	}
	return 0, err
}

// sayGoodbye queues the close frame to the client, once. rmu is held.
func (u *upgraded) sayGoodbye() {
	if u.told {
		return
	}
	u.told = true
	if u.kind == WebSocket && !u.in.sawClose {
		u.leftover = closeFrame[:]
	}
}

// farewell is what Read returns once the end has been decided: the close
// frame, then nothing until the client has answered it, then ErrEnded.
func (u *upgraded) farewell(p []byte) (n int, err error, done bool) {
	if !u.ending.Load() {
		return 0, nil, false
	}
	u.rmu.Lock()
	if !u.told && u.in.atBoundary() {
		u.sayGoodbye()
	}
	if !u.told {
		u.rmu.Unlock()
		return 0, nil, false
	}
	if len(u.leftover) > 0 {
		n = copy(p, u.leftover)
		u.leftover = u.leftover[n:]
		u.rmu.Unlock()
		return n, nil, true
	}
	u.rmu.Unlock()
	if u.kind == WebSocket {
		timer := time.NewTimer(closeGrace)
		defer timer.Stop()
		select {
		case <-u.answered:
		case <-timer.C:
		}
	}
	return 0, ErrEnded, true
}

func (u *upgraded) Write(p []byte) (int, error) {
	u.wmu.Lock()
	defer u.wmu.Unlock()
	if !u.ending.Load() {
		n, err := u.rwc.Write(p)
		u.sent(n)
		u.out.scan(p[:n])
		return n, err
	}
	if !u.done {
		n := u.out.scanToBoundary(p)
		if n > 0 {
			m, err := u.rwc.Write(p[:n])
			u.sent(m)
			if err != nil {
				return m, err
			}
		}
		u.tellApiserver()
		u.out.scan(p[n:])
	} else {
		u.out.scan(p)
	}
	if u.out.sawClose {
		u.gotAnswer()
	}
	return len(p), nil
}

// tellApiserver sends the close frame to the apiserver, once, between two
// frames. wmu is held.
func (u *upgraded) tellApiserver() {
	if u.done || !u.out.atBoundary() {
		return
	}
	u.done = true
	if u.kind != WebSocket || u.out.sawClose {
		return
	}
	var key [4]byte
	_, _ = rand.Read(key[:])
	_, _ = u.rwc.Write(maskedCloseFrame(key))
}

func (u *upgraded) gotAnswer() { u.answer.Do(func() { close(u.answered) }) }

// CloseWrite passes the client's half-close on (RELAY-2): close_notify, where
// the connection is TLS. Once the stream is being ended there is nobody to
// pass it to.
func (u *upgraded) CloseWrite() error {
	u.gotAnswer()
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
	u.gotAnswer()
	return u.rwc.Close()
}

// end lets a Read that waits for the apiserver return: at once where there is
// no close frame to send, else when the apiserver answers it or after a
// moment, which is also what a frame in progress gets.
func (u *upgraded) end() {
	u.rmu.Lock()
	first := u.ending.CompareAndSwap(false, true)
	u.rmu.Unlock()
	if !first {
		return
	}
	if u.kind != WebSocket {
		go u.rwc.Close()
		return
	}
	// Closing also frees a Write that holds wmu because the apiserver does
	// not read.
	time.AfterFunc(boundaryGrace, func() { _ = u.rwc.Close() })
	go func() {
		u.wmu.Lock()
		defer u.wmu.Unlock()
		u.tellApiserver()
	}()
}
