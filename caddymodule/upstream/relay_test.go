package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// front relays through a Pair and a Group, with the copying of the standard
// library's reverse proxy. It listens on network if that is not nil.
func front(t *testing.T, network *pipes, c Config, kind Kind) (*httptest.Server, *Registry, *Group) {
	t.Helper()
	p := pair(t, c)
	r := NewRegistry()
	g := r.NewGroup()
	s := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { SetURL(r.Out, c.Target, r.In.URL.EscapedPath()) },
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := p.RoundTrip(r)
			if err == nil {
				g.Track(res, StreamOptions{Kind: kind})
			}
			return res, err
		}),
		FlushInterval: -1,
		ErrorLog:      quiet,
	})
	if network != nil {
		s.Listener.Close()
		s.Listener = network
	}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, r, g
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// STREAM-1: what the client of an exec and its apiserver see when the cluster
// is deleted: a close frame each, then the end, though the client never
// answers.
func TestRelayedWebSocketEnds(t *testing.T) { synctest.Test(t, testRelayedWebSocketEnds) }

func testRelayedWebSocketEnds(t *testing.T) {
	up := frame(2, 5, true)
	apiserver := make(chan string, 1)
	cluster := newPipes()
	c := rawOn(t, cluster, nil, func(conn *tls.Conn) {
		_, in := readHead(conn)
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.ReadFull(in, make([]byte, len(up)))
		conn.Write(frame(2, 5, false))
		b, _ := io.ReadAll(in)
		apiserver <- string(b)
	})
	c.Dial = cluster.dial
	network := newPipes()
	_, registry, group := front(t, network, c, Response)
	plain, err := network.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(plain, &tls.Config{InsecureSkipVerify: true})
	defer conn.Close()
	fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	head, in := readHead(conn)
	if head[:12] != "HTTP/1.1 101" {
		t.Fatalf("head %q", head)
	}
	conn.Write(up)
	got := make([]byte, 7)
	if _, err := io.ReadFull(in, got); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	group.End(0)
	rest, err := io.ReadAll(in)
	if string(rest) != string(closeFrame[:]) || err != nil {
		t.Errorf("client got %x, %v", rest, err)
	}
	if b := <-apiserver; closeCode(t, b) != 1001 {
		t.Errorf("apiserver got %x", b)
	}
	if err := registry.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("ending took %s", took)
	}
}

// STREAM-1: the response of a watch ends properly: a last chunk, or
// END_STREAM, and no reset.
func TestRelayedWatchEnds(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			u := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, "{}\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
			s, registry, group := front(t, nil, u.config, Watch)
			protocols := new(http.Protocols)
			protocols.SetHTTP1(proto == "HTTP/1.1")
			protocols.SetHTTP2(proto != "HTTP/1.1")
			client := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: protocols}
			defer client.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/v1/pods?watch=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.RoundTrip(r)
			if err != nil || res.Proto != proto {
				t.Fatal(res, err)
			}
			defer res.Body.Close()
			lines := bufio.NewReader(res.Body)
			if line, err := lines.ReadString('\n'); line != "{}\n" || err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			group.End(0)
			within(t, 5*time.Second, "ending", func() {
				if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
					t.Errorf("end %q, %v", rest, err)
				}
				if err := registry.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// RELAY-1: the HTTP/2 settings reach the wire.
func TestHTTP2Settings(t *testing.T) {
	window := make(chan uint32, 1)
	c := raw(t, []string{"h2"}, func(conn *tls.Conn) {
		f := newH2Conn(conn)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
					window <- v
				}
			case *http2.MetaHeadersFrame:
				f.respond(frame.StreamID, "204", true)
			}
		}
	})
	p := pair(t, c)
	do(t, p, request(t, c, "GET", "/", nil))
	if got := <-window; got != http2StreamWindow {
		t.Errorf("stream window %d", got)
	}
	if conf := p.plain.HTTP2; conf.SendPingTimeout != 30*time.Second || conf.PingTimeout != 15*time.Second {
		t.Errorf("pings %+v", conf)
	}
	if p.plain.ResponseHeaderTimeout != 0 || p.upgrade.ResponseHeaderTimeout != 0 {
		t.Error("there is a limit on the time to a response's header")
	}
}

// RELAY-1: a watch whose apiserver is gone without a word ends with an error, after
// 30 s of silence and 15 s without an answer to a ping.
func TestPingsASilentApiserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		s := newServerOn(t, network, false, func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		var gone atomic.Bool
		s.config.Dial = func(ctx context.Context, protocol, address string) (net.Conn, error) {
			conn, err := network.dial(ctx, protocol, address)
			return &cutConn{conn, &gone}, err
		}
		res, err := pair(t, s.config).RoundTrip(request(t, s.config, "GET", "/watch", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		time.AfterFunc(time.Hour, func() { gone.Store(true) })
		start := time.Now()
		if _, err := res.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("the watch ended with %v", err)
		}
		if took := time.Since(start) - time.Hour; took < 15*time.Second || took > 45*time.Second {
			t.Errorf("it ended %s after the apiserver was gone", took)
		}
	})
}

// cutConn is a connection whose other end gets nothing more, once it is gone.
type cutConn struct {
	net.Conn
	gone *atomic.Bool
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.gone.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// RELAY-1: answers that nobody reads do not stop others on the same connection.
func TestUnreadAnswersStopNoOthers(t *testing.T) {
	const unread = 80
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			_, _ = w.Write(make([]byte, 2*http2StreamWindow))
			return
		}
		_, _ = io.WriteString(w, "event")
	})
	p := pair(t, s.config)
	for range unread {
		res, err := p.RoundTrip(request(t, s.config, "GET", "/list", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	within(t, 10*time.Second, "an answer beside unread ones", func() {
		if _, got := do(t, p, request(t, s.config, "GET", "/", nil)); got != "event" {
			t.Errorf("%q", got)
		}
	})
	if got := p.Connections(); got != 1 {
		t.Errorf("%d connections", got)
	}
}
