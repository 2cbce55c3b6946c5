package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func clientSerial(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "none"
	}
	return r.TLS.PeerCertificates[0].SerialNumber.String()
}

// RELAY-1: HTTP/2 for requests, HTTP/1.1 for upgrades, one certificate and
// server name for both (STR-02).
func TestProtocolAndCertificate(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s", r.Proto, clientSerial(r), r.TLS.ServerName, r.Host)
	})
	// The server's list of acceptable CAs names another one: the certificate
	// is shown all the same.
	s.TLS.ClientCAs = newAuthority(t, "another CA").pool
	s.config.Certificate = newAuthority(t, "front-proxy CA").issue(t, "front-proxy-a", 7)
	p := pair(t, s.config)

	_, got := do(t, p, request(t, s.config, "GET", "/api", nil))
	if want := "HTTP/2.0 7 up.example.test up.example.test:6443"; got != want {
		t.Errorf("request: %q, want %q", got, want)
	}
	r := request(t, s.config, "POST", "/api/v1/namespaces/a/pods/b/exec", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	res, got := do(t, p, r)
	if want := "HTTP/1.1 7 up.example.test up.example.test:6443"; got != want || res.StatusCode != 200 {
		t.Errorf("refused upgrade: %d %q, want %q", res.StatusCode, got, want)
	}
}

func TestWithoutCertificate(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, clientSerial(r)) })
	if _, got := do(t, pair(t, s.config), request(t, s.config, "GET", "/", nil)); got != "none" {
		t.Errorf("client certificate %q", got)
	}
}

// The apiserver's certificate is always verified: CA and name.
func TestVerifies(t *testing.T) {
	s := newServer(t, false, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	for name, change := range map[string]func(*Config){
		"another CA":   func(c *Config) { c.RootCAs = newAuthority(t, "x").pool },
		"another name": func(c *Config) { c.ServerName = "other.example.test" },
		"system roots": func(c *Config) { c.RootCAs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := s.config
			change(&c)
			for _, protocol := range []string{"", "SPDY/3.1", "websocket"} {
				_, err := pair(t, c).RoundTrip(asking(request(t, c, "GET", "/", nil), protocol))
				var verification *tls.CertificateVerificationError
				if !errors.As(err, &verification) {
					t.Errorf("upgrade %q: error %v", protocol, err)
				}
			}
		})
	}
}

// asking makes r ask for an upgrade, unless protocol is empty.
func asking(r *http.Request, protocol string) *http.Request {
	if protocol != "" {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", protocol)
	}
	return r
}

// STR-02: ALPN names one protocol, for upgrades HTTP/1.1.
func TestNamesItsProtocol(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.TLS.NegotiatedProtocol) })
	p := pair(t, s.config)
	for protocol, want := range map[string]string{"": "h2", "SPDY/3.1": "http/1.1", "websocket": "http/1.1"} {
		if _, got := do(t, p, asking(request(t, s.config, "GET", "/", nil), protocol)); got != want {
			t.Errorf("upgrade %q: went over %q, want %q", protocol, got, want)
		}
	}
}

// A Pair dials its own target, whatever the URL says, and no proxy of the
// environment.
func TestDialsItsTarget(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) })
	p := pair(t, s.config)
	r := request(t, s.config, "GET", "/", nil)
	r.URL.Host = "192.0.2.1:443"
	if _, got := do(t, p, r); got != serverName+":6443" {
		t.Errorf("host %q", got)
	}
}

func TestDialTimesOut(t *testing.T) {
	c := Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > dialTimeout {
			t.Errorf("dialing may take %s", left)
		}
		return nil, context.DeadlineExceeded
	}}
	c.Target.Address, c.Target.Host = "192.0.2.1:443", "192.0.2.1:443"
	if _, err := pair(t, c).RoundTrip(request(t, c, "GET", "/", nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestDialsNothingWithoutAddressAndDialer(t *testing.T) {
	s := newServer(t, false, func(http.ResponseWriter, *http.Request) { t.Error("a request came") })
	noAddress, noDialer := s.config, s.config
	noAddress.Target.Address, noDialer.Dial = "", nil
	for name, c := range map[string]Config{"no address": noAddress, "no dialer": noDialer} {
		if _, err := pair(t, c).RoundTrip(request(t, c, "GET", "/", nil)); !errors.Is(err, errNoTarget) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// RELAY-6: what is compressed stays so, nothing asks for compression.
func TestEncodingsUntouched(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Accept-Encoding"]; r.URL.Path == "/none" && got != nil || r.URL.Path == "/gzip" && len(got) != 1 {
			t.Errorf("%s: Accept-Encoding %q", r.URL.Path, got)
		}
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "not really gzip")
	})
	p := pair(t, s.config)
	for _, path := range []string{"/none", "/gzip"} {
		r := request(t, s.config, "GET", path, nil)
		if path == "/gzip" {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		res, got := do(t, p, r)
		if got != "not really gzip" || res.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %q, %v", path, got, res.Header)
		}
	}
}

// ID-7: trailers of a request do not reach the apiserver, announced or not.
func TestNoRequestTrailers(t *testing.T) {
	for _, h1 := range []bool{true, false} {
		s := newServer(t, h1, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %d", b, len(r.Trailer))
		})
		r := request(t, s.config, "POST", "/", io.NopCloser(strings.NewReader("body")))
		r.ContentLength = -1
		r.Trailer = http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": nil}
		if _, got := do(t, pair(t, s.config), r); got != "body 0" {
			t.Errorf("h1 %t: %q", h1, got)
		}
		if len(r.Trailer) != 2 {
			t.Error("the caller's request was changed")
		}
	}
}

// RELAY-4: redirects are relayed.
func TestRedirectsAreRelayed(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example.test/", http.StatusFound)
	})
	res, _ := do(t, pair(t, s.config), request(t, s.config, "GET", "/", nil))
	if res.StatusCode != http.StatusFound || res.Header.Get("Location") != "https://elsewhere.example.test/" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}

// TLS-01, CERT-8: a retired pair closes its idle connections now and those in
// use when their stream ends, and ends no stream.
func TestRetire(t *testing.T) {
	for _, h1 := range []bool{true, false} {
		t.Run(fmt.Sprintf("h1=%t", h1), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testRetire(t, h1) }) })
	}
}

func testRetire(t *testing.T, h1 bool) {
	more := make(chan string)
	s := newServerOn(t, newPipes(), h1, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/watch" {
			return
		}
		w.(http.Flusher).Flush()
		for event := range more {
			io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
	})
	p := pair(t, s.config)
	do(t, p, request(t, s.config, "GET", "/", nil))
	if p.Connections() == 0 {
		t.Fatal("no connection is kept")
	}
	p.Retire()
	eventually(t, "closing the idle connection", func() bool { return p.Connections() == 0 })

	p = pair(t, s.config)
	res, err := p.RoundTrip(request(t, s.config, "GET", "/watch", nil))
	if err != nil {
		t.Fatal(err)
	}
	p.Retire()
	events := bufio.NewReader(res.Body)
	for range 3 {
		go func() { more <- "event\n" }()
		if line, err := events.ReadString('\n'); err != nil || line != "event\n" {
			t.Fatalf("after Retire: %q, %v", line, err)
		}
		time.Sleep(2 * retireSweep)
	}
	if p.Connections() != 1 {
		t.Errorf("%d connections", p.Connections())
	}
	close(more)
	if _, err := io.Copy(io.Discard, events); err != nil {
		t.Error(err)
	}
	res.Body.Close()
	eventually(t, "closing the connection of the ended stream", func() bool { return p.Connections() == 0 })

	// A request that was decided before still works and leaves nothing.
	do(t, p, request(t, s.config, "GET", "/", nil))
	eventually(t, "closing the late connection", func() bool { return p.Connections() == 0 })
}

// Many requests at once find connections kept for them, far more than the two
// that net/http keeps by itself.
func TestIdlePool(t *testing.T) {
	const n = 100
	var gate atomic.Pointer[rendezvous]
	gate.Store(newRendezvous(n))
	s := newServer(t, true, func(http.ResponseWriter, *http.Request) { gate.Load().wait() })
	p := pair(t, s.config)
	burst := func() {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				res, err := p.RoundTrip(request(t, s.config, "GET", "/", nil))
				if err != nil {
					t.Error(err)
					gate.Load().leave() // the others must not wait for this one
					return
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			})
		}
		all.Wait()
	}
	burst()
	eventually(t, "keeping the connections", func() bool { return p.Connections() == n })
	gate.Store(newRendezvous(n))
	burst()
	if got := p.Connections(); got != n {
		t.Errorf("%d connections after a second burst of %d", got, n)
	}
}

// rendezvous keeps n parties until all are there.
type rendezvous struct {
	missing atomic.Int64
	all     chan struct{}
}

func newRendezvous(n int64) *rendezvous {
	r := &rendezvous{all: make(chan struct{})}
	r.missing.Store(n)
	return r
}

func (r *rendezvous) leave() {
	if r.missing.Add(-1) == 0 {
		close(r.all)
	}
}

func (r *rendezvous) wait() {
	r.leave()
	<-r.all
}
