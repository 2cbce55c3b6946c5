package probe

import (
	"net"
	"sync"
	"testing"
	"time"
)

// pipe relays TCP connections from an address of its own to another one.
type pipe struct {
	url string

	listener net.Listener
	mu       sync.Mutex
	target   string
	delay    time.Duration
	held     chan struct{} // open while bytes are held; nil when they are not
	refuse   bool
	conns    map[net.Conn]bool
	flows    sync.WaitGroup
}

func newPipe(t *testing.T, target string) *pipe {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pipe{url: "https://" + l.Addr().String(), listener: l, target: target, conns: map[net.Conn]bool{}}
	p.flows.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.release()
		p.cut()
		p.flows.Wait()
	})
	return p
}

// lead makes the pipe lead elsewhere; open connections are cut.
func (p *pipe) lead(target string) {
	p.mu.Lock()
	p.target, p.refuse = target, false
	p.mu.Unlock()
	p.cut()
}

// close cuts all connections and refuses new ones, until lead.
func (p *pipe) close() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.cut()
}

// hold keeps every byte back until release.
func (p *pipe) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *pipe) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

func (p *pipe) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *pipe) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target, refuse := p.target, p.refuse
		p.mu.Unlock()
		if refuse {
			client.Close()
			continue
		}
		p.flows.Go(func() { p.connect(client, target) })
	}
}

func (p *pipe) connect(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	p.track(true, client, server)
	defer p.track(false, client, server)
	var flows sync.WaitGroup
	flows.Go(func() { p.flow(server, client) })
	flows.Go(func() { p.flow(client, server) })
	flows.Wait()
}

func (p *pipe) track(add bool, conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if add {
			p.conns[c] = true
		} else {
			delete(p.conns, c)
		}
	}
}

// flow copies one way. Each piece arrives a delay after it was sent, as on a
// long line.
func (p *pipe) flow(to, from net.Conn) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 4096)
	p.flows.Go(func() {
		defer close(pieces)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				p.mu.Lock()
				at := time.Now().Add(p.delay)
				p.mu.Unlock()
				pieces <- piece{at, b[:n]}
			}
			if err != nil {
				return
			}
		}
	})
	for piece := range pieces {
		time.Sleep(time.Until(piece.at))
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held != nil {
			<-held
		}
		if _, err := to.Write(piece.data); err != nil {
			break
		}
	}
	// One end is gone: so is the other.
	to.Close()
	from.Close()
	for range pieces { // until the reader has seen it
	}
}
