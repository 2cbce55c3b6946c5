package faults

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// behaviour is what a front does with connections.
type behaviour int

const (
	open     behaviour = iota // to the provider and back
	refusing                  // no server listens
	silent                    // accepted, and never answered
	strange                   // to the provider, but with the certificate of another server
)

// front stands before a provider, or before one of its endpoints, and does to
// connections what a provider's own faults cannot.
type front struct {
	// addr is where it listens, in every manner but refusing.
	addr string
	// provider is where the provider listens.
	provider string
	held     int // a socket that keeps the port while no server listens

	mu        sync.Mutex
	behaviour behaviour
	listener  net.Listener
	live      map[net.Conn]struct{}
}

// newFront takes an address, and refuses connections until it is set to
// something else.
func newFront() (*front, error) {
	held, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("holding a port: %w", err)
	}
	f := &front{held: held, behaviour: refusing, live: map[net.Conn]struct{}{}}
	// With SO_REUSEADDR, which net.Listen sets as well, the port can be listened
	// on beside this socket, and the kernel gives it to no other program.
	if err := syscall.SetsockoptInt(held, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, fmt.Errorf("holding a port: %w", err)
	}
	if err := syscall.Bind(held, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, fmt.Errorf("holding a port: %w", err)
	}
	bound, err := syscall.Getsockname(held)
	if err != nil {
		return nil, fmt.Errorf("holding a port: %w", err)
	}
	f.addr = fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
	return f, nil
}

// set changes the behaviour, and ends the connections from before.
func (f *front) set(m behaviour) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behaviour = m
	for c := range f.live {
		c.Close()
	}
	clear(f.live)
	if m == refusing {
		if f.listener != nil {
			f.listener.Close()
			f.listener = nil
		}
		return nil
	}
	if f.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return fmt.Errorf("standing before a provider: %w", err)
	}
	f.listener = l
	go f.accept(l)
	return nil
}

func (f *front) close() {
	_ = f.set(refusing) // which opens nothing
	syscall.Close(f.held)
}

func (f *front) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		m := f.behaviour
		f.live[c] = struct{}{}
		f.mu.Unlock()
		switch m {
		case open:
			go f.relay(c, func() (net.Conn, error) { return net.Dial("tcp", f.provider) })
		case strange:
			// A client that does not verify the certificate gets good answers.
			go f.relay(tls.Server(c, strangersTLS()), func() (net.Conn, error) {
				return tls.Dial("tcp", f.provider, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
			})
		}
	}
}

// relay pipes a connection to the provider. It connects to the provider only once
// the client has sent something.
func (f *front) relay(client net.Conn, dial func() (net.Conn, error)) {
	defer client.Close()
	if c, ok := client.(*tls.Conn); ok && c.Handshake() != nil {
		return
	}
	provider, err := dial()
	if err != nil {
		return
	}
	defer provider.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(client, provider)
		client.Close()
	}()
	_, _ = io.Copy(provider, client)
	provider.Close()
	<-done
}

// strangersTLS is the certificate of an authority that no client trusts.
var strangersTLS = sync.OnceValue(func() *tls.Config {
	pair := pki.Must(pki.MustCA("stranger").Server())
	return &tls.Config{Certificates: []tls.Certificate{pair.TLS()}, MinVersion: tls.VersionTLS12}
})
