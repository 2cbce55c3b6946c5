package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// limited is an HTTP/2 apiserver that takes a few requests at a time on a
// connection, and counts the connections that are dialed.
func limited(t *testing.T, network *pipes, streams int, handler http.HandlerFunc) (Config, *atomic.Int32) {
	t.Helper()
	s := start(t, false, &httptest.Server{Listener: network, Config: &http.Server{
		Handler: handler, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams},
	}})
	dials := new(atomic.Int32)
	s.config.Dial = func(ctx context.Context, protocol, address string) (net.Conn, error) {
		dials.Add(1)
		return network.dial(ctx, protocol, address)
	}
	return s.config, dials
}

// burst sends n requests at once and reads their answers.
func burst(t *testing.T, p *Pair, c Config, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			res, err := p.RoundTrip(request(t, c, "GET", "/", nil))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// RELAY-1: requests that find no free stream share the connections that are
// opened for them. Each would open one of its own otherwise.
func TestBurstOpensFewConnections(t *testing.T) {
	const requests, streams = 300, 100
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("first requests=%t", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, dials := limited(t, newPipes(), streams, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
				p := pair(t, c)
				if !first {
					burst(t, p, c, 1)
				}
				start := time.Now()
				burst(t, p, c, requests)
				// The least is three. A request that has not noticed yet that a connection
				// is there opens a further one.
				if got := dials.Load(); got > requests/10 {
					t.Errorf("%d requests on connections of %d streams opened %d connections", requests, streams, got)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("the answers took %s, want one after another on each stream at most", took)
				}
				time.Sleep(time.Minute) // for the dials that nobody waits for
			})
		})
	}
}

// RELAY-1: when the streams of a connection are used up there is a second one,
// for as long as it is needed.
func TestSecondConnectionWhileNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 10
		c, _ := limited(t, newPipes(), streams, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
		})
		p := pair(t, c)
		var watches []io.Closer
		for range streams + 1 {
			res, err := p.RoundTrip(request(t, c, "GET", "/watch", nil))
			if err != nil {
				t.Fatal(err)
			}
			watches = append(watches, res.Body)
		}
		if got := p.Connections(); got != 2 {
			t.Errorf("%d connections for %d watches", got, streams+1)
		}
		for _, w := range watches[:streams] {
			w.Close()
		}
		for range 5 { // the first connection serves what comes
			time.Sleep(idleTimeout / 3)
			burst(t, p, c, 1)
		}
		watches[streams].Close()
		for range 5 {
			time.Sleep(idleTimeout / 3)
			burst(t, p, c, 1)
		}
		if got := p.Connections(); got != 1 {
			t.Errorf("%d connections when one is enough", got)
		}
	})
}

// A request does not wait for the failures of others: all of a burst fail
// together when an apiserver cannot be reached, or does not answer the handshake.
func TestFailuresAreNotQueued(t *testing.T) {
	tests := []struct {
		name  string
		dial  func(context.Context) (net.Conn, error)
		after time.Duration
	}{
		{"no connection", func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, 5 * time.Second},
		{"no handshake", func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go io.Copy(io.Discard, server)
			return client, nil
		}, 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := configFor(pipeAddr{}, newAuthority(t, "CA"))
				c.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return tt.dial(ctx) }
				p := pair(t, c)
				start := time.Now()
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() {
						if _, err := p.RoundTrip(request(t, c, "GET", "/", nil)); !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("error %v", err)
						}
					})
				}
				all.Wait()
				if took := time.Since(start); took != tt.after {
					t.Errorf("the last one failed after %s, want %s", took, tt.after)
				}
			})
		})
	}
}

// A client that leaves while its request opens a connection leaves the connection
// to the others.
func TestTurnOfOneThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dials := limited(t, newPipes(), 100, func(http.ResponseWriter, *http.Request) {})
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(time.Second)
			return dial(ctx, network, address)
		}
		p := pair(t, c)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			if _, err := p.RoundTrip(request(t, c, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		}()
		synctest.Wait()
		leave()
		<-left
		burst(t, p, c, 20)
		time.Sleep(time.Minute) // for the dials that nobody waits for
		if got := dials.Load(); got > 5 {
			t.Errorf("%d connections were opened", got)
		}
	})
}

// RELAY-5: requests whose connection the apiserver closes (kube-apiserver's
// --goaway-chance) get another one together, each is answered, and none twice.
func TestBurstOverConnectionsThatGoAway(t *testing.T) {
	var conns, answered atomic.Int32
	c := raw(t, []string{"h2"}, func(conn *tls.Conn) {
		conns.Add(1)
		f := newH2Conn(conn)
		for served := 0; ; {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if ping, ok := frame.(*http2.PingFrame); ok {
				f.WritePing(true, ping.Data)
			}
			headers, ok := frame.(*http2.MetaHeadersFrame)
			if !ok {
				continue
			}
			if served++; served > 100 {
				continue // after the GOAWAY
			}
			answered.Add(1)
			f.respond(headers.StreamID, "204", true)
			if served == 100 {
				f.WriteGoAway(headers.StreamID, http2.ErrCodeNo, nil)
				// An apiserver closes the connection then, whatever the client does.
				_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			}
		}
	})
	p := pair(t, c)
	burst(t, p, c, 200)
	if got := answered.Load(); got != 200 {
		t.Errorf("%d answers to 200 requests", got)
	}
	if got := conns.Load(); got > 20 {
		t.Errorf("%d connections of 100 answers each for 200 requests", got)
	}
}

// A connection that stays open and that nobody uses holds its turn for a while only,
// and makes no request dial that has got another connection meanwhile.
func TestTurnOfUnusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		unused, err := all.take(guard(t.Context()))
		if unused == nil || err != nil {
			t.Fatalf("turn %v, error %v", unused, err)
		}
		served := guard(t.Context())
		served.got(httptrace.GotConnInfo{Reused: true})
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if got, err := all.take(guard(t.Context())); got != nil || err != nil {
				t.Errorf("a request that needs a connection: turn %v, error %v, want it to dial", got, err)
			}
		})
		waiting.Go(func() {
			if _, err := all.take(served); !errors.Is(err, errNotNeeded) {
				t.Errorf("a request that got another connection: error %v", err)
			}
		})
		waiting.Wait()
		start := time.Now()
		next, err := all.take(guard(t.Context()))
		if took := time.Since(start); next == nil || err != nil || took != 0 {
			t.Errorf("a later request: turn %v, error %v after %s", next, err, took)
		}
	})
}
