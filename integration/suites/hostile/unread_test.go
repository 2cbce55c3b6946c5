package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// endless answers every request without end: an upgrade with bytes, a watch with
// events, anything else with 64 MiB.
func endless(w *rawserver.Writer, r *rawserver.Request) {
	_, _ = io.Copy(io.Discard, r)
	event := append(bytes.Repeat([]byte("e"), 16<<10-1), '\n')
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, err := w.Hijack()
		if err != nil {
			return
		}
		w.Header(http.StatusSwitchingProtocols, rawserver.Field{Name: "Connection", Value: "Upgrade"}, rawserver.Field{Name: "Upgrade", Value: r.Header.Get("Upgrade")})
		for err == nil {
			_, err = conn.Write(event)
		}
	case strings.Contains(r.Target, "watch=true"):
		w.Header(http.StatusOK, rawserver.Field{Name: "Content-Type", Value: "application/json"})
		for w.Write(event) {
		}
	default:
		rawserver.Big(64<<20)(w, r)
	}
}

// smallWindow makes the kernel take little for a client that does not read.
func smallWindow(conn net.Conn, bytes int) {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(bytes)
	}
}

// unreadH1 sends a request on a connection of its own and reads nothing.
func unreadH1(t *testing.T, px *proxy.Proxy, c call) io.Closer {
	t.Helper()
	conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
	smallWindow(conn.Conn, 4<<10)
	if err := conn.Send(c.h1(px)); err != nil {
		t.Fatal(err)
	}
	return conn
}

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// unreadH2 sends 250 requests on one connection and reads headers alone.
func unreadH2(t *testing.T, px *proxy.Proxy, c call) io.Closer {
	t.Helper()
	conn := rawclient.MustDialUnreadH2(t, px.Host, px.CA.Pool())
	for range 250 {
		if _, err := conn.Open(c.h2(px), true); err != nil {
			t.Fatal(err)
		}
	}
	return closer(conn.Close)
}

// RELAY-7: callers who do not read hold a bounded amount, and no other caller
// waits for them.
func TestRELAY7CallersWhoDoNotRead(t *testing.T) {
	px := startProxy(t, proxy.Options{LogLevel: "INFO"}, nil)
	up := shared.ups[fpH2]
	up.Handle(endless)
	defer up.Handle(nil)
	plain := call{cluster: fpH2, path: "/api/big"}.asAlice()
	for _, kind := range []struct {
		name  string
		c     call
		open  func(*testing.T, *proxy.Proxy, call) io.Closer
		steps []int
	}{
		{"upgrades", call{cluster: fpH2, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1"), unreadH1, []int{1, 4, 16, 100}},
		{"HTTP/1.1", plain, unreadH1, []int{1, 4, 16, 100}},
		{"HTTP/2, 250 requests each", plain, unreadH2, []int{1, 4, 16}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			var open []io.Closer
			defer func() {
				for _, conn := range open {
					conn.Close()
				}
			}()
			_, before := held(t, px)
			for i, connections := range kind.steps {
				for len(open) < connections {
					open = append(open, kind.open(t, px, kind.c))
				}
				time.Sleep(500 * time.Millisecond)
				if i == len(kind.steps)-1 {
					time.Sleep(2500 * time.Millisecond) // the first ones are cut
				}
				_, now := held(t, px)
				t.Logf("%d connections: %d MiB more in use, %d MiB resident", connections, (now-before)>>20, residentMemory(t, px.PID())>>20)
				if now-before > 128<<20 {
					t.Errorf("%d connections hold %d MiB", connections, (now-before)>>20)
				}
			}
			began := time.Now()
			if a := do(t, px, h1, call{cluster: fpH1, path: "/api"}.asAlice()); a.Code != 200 || time.Since(began) > 3*time.Second {
				t.Errorf("another cluster: %d after %v", a.Code, time.Since(began))
			}
		})
	}
}

// RELAY-7: callers whom the author of a cluster invents hold no more together than
// four do.
func TestRELAY7CallersOfOneNamespace(t *testing.T) {
	px := startProxy(t, proxy.Options{LogLevel: "INFO"}, nil)
	up := shared.ups[fpH2]
	up.Handle(endless)
	defer up.Handle(nil)
	_, before := held(t, px)
	for i := range 24 {
		conn := rawclient.MustDialUnreadH2(t, px.Host, px.CA.Pool())
		c := call{cluster: fpH2, path: "/api/big"}.bearer(token(map[string]any{"preferred_username": fmt.Sprintf("user-%d", i)}))
		for range 60 {
			if _, err := conn.Open(c.h2(px), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(3 * time.Second)
	_, now := held(t, px)
	t.Logf("24 callers with 60 requests each: %d MiB more in use, %d MiB resident", (now-before)>>20, residentMemory(t, px.PID())>>20)
	if now-before > 384<<20 { // without the bound it is 670 MiB
		t.Errorf("they hold %d MiB", (now-before)>>20)
	}
}

// slowly reads at a rate, in bytes a second, for a time, and returns how much came.
func slowly(ctx context.Context, r io.Reader, rate int, d time.Duration) (int64, error) {
	const beat = 50 * time.Millisecond
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	piece := make([]byte, rate/int(time.Second/beat))
	var total int64
	for began := time.Now(); time.Since(began) < d; {
		n, err := io.ReadFull(r, piece)
		total += int64(n)
		if err != nil {
			return total, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return total, ctx.Err()
		}
	}
	return total, nil
}

// slowClient reads with small windows, as on a slow link.
func slowClient(t *testing.T, px *proxy.Proxy, protocol string) *http.Client {
	t.Helper()
	client := px.Client(protocol)
	transport := client.Transport.(*http.Transport)
	transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil && protocol == h1 {
			smallWindow(conn, 64<<10)
		}
		return conn, err
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// mustOpen sends a GET and returns the body of its answer.
func mustOpen(t *testing.T, client *http.Client, px *proxy.Proxy, path, bearer string) io.Reader {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.ClusterURL(ns, fpH2)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = kube.Bearer(bearer)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, res.Status)
	}
	return res.Body
}

// megabit is a rate of 1 Mbit/s, in bytes a second.
const megabit = 1_000_000 / 8

// RELAY-7: while one caller reads nothing on a hundred connections, watches and
// downloads of another one live over a link of 1 Mbit/s, and so does a quiet watch
// of the caller who does not read.
func TestRELAY7SlowCallersLive(t *testing.T) {
	const during = 10 * time.Second
	px := startProxy(t, proxy.Options{LogLevel: "INFO"}, nil)
	up := shared.ups[fpH2]
	quiet := make(chan string, 1)
	up.Handle(func(w *rawserver.Writer, r *rawserver.Request) {
		if strings.HasSuffix(r.Target, "quiet=true") {
			rawserver.Feed("application/json", quiet)(w, r)
			return
		}
		endless(w, r)
	})
	defer up.Handle(nil)
	watch := mustOpen(t, slowClient(t, px, h1), px, "/api/v1/pods?watch=true&quiet=true", token(nil))

	var wg sync.WaitGroup
	bob := token(map[string]any{"preferred_username": "bob"})
	for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/namespaces/a/pods/b/proxy/large"} {
		for _, protocol := range []string{h1, h2} {
			stream := mustOpen(t, slowClient(t, px, protocol), px, path, bob)
			wg.Go(func() {
				n, err := slowly(t.Context(), stream, megabit, during)
				if want := int64(megabit * during / time.Second / 2); err != nil || n < want {
					t.Errorf("%s over %s: %d bytes came, want %d at least; %v", path, protocol, n, want, err)
				}
			})
		}
	}
	for range 100 {
		unreadH1(t, px, call{cluster: fpH2, path: "/api/big"}.asAlice())
	}
	wg.Wait()
	quiet <- "event\n"
	event := make([]byte, len("event\n"))
	if _, err := io.ReadFull(watch, event); err != nil || string(event) != "event\n" {
		t.Errorf("the quiet watch: %q, %v", event, err)
	}
}
