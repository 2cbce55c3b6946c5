package lifecycle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// stream is what a client has open.
type stream interface {
	// alive fails the test unless data flows, and none was lost.
	alive(t *testing.T)
	// ended waits for the end, which must be one that a client takes for
	// orderly: the last chunk, END_STREAM, a close frame.
	ended(t *testing.T, within time.Duration)
	// open says whether it has not ended yet, without waiting.
	open() bool
	String() string
	Close() error
}

// Kinds of stream: every protocol of the clients of Kubernetes.
const (
	watchH1     = "watch on HTTP/1.1"
	watchH2     = "watch on HTTP/2"
	watchList   = "WatchList on HTTP/2"
	logsH1      = "logs -f on HTTP/1.1"
	logsH2      = "logs -f on HTTP/2"
	spdy        = "SPDY exec"
	spdyForward = "SPDY port-forward"
	ws          = "WebSocket exec v5"
	ws4         = "WebSocket exec v4"
	tunnel      = "port-forward by SPDY in WebSocket"
)

var (
	responseKinds = []string{watchH1, watchH2, watchList, logsH1, logsH2}
	upgradeKinds  = []string{spdy, spdyForward, ws, ws4, tunnel}
	allKinds      = slices.Concat(responseKinds, upgradeKinds)
)

// openStream opens one stream of a cluster.
func openStream(t *testing.T, px *proxy.Proxy, cluster, kind string) stream {
	t.Helper()
	return session{px, token()}.open(t, cluster, kind)
}

// session is a client of a proxy with one bearer.
type session struct {
	px     *proxy.Proxy
	bearer string
}

func (c session) open(t *testing.T, cluster, kind string) stream {
	t.Helper()
	var s stream
	switch kind {
	case watchH1:
		s = c.watchH1(t, target(cluster, watchPath), kind)
	case watchH2:
		s = c.watchH2(t, target(cluster, watchPath), kind)
	case watchList:
		s = c.watchH2(t, target(cluster, watchListPath), kind)
	case logsH1:
		s = c.watchH1(t, target(cluster, followPath), kind)
	case logsH2:
		s = c.watchH2(t, target(cluster, followPath), kind)
	case spdy:
		s = c.spdy(t, target(cluster, execPath), kind)
	case spdyForward:
		s = c.spdy(t, target(cluster, forwardPath), kind)
	case ws:
		s = c.webSocket(t, target(cluster, execPath), "v5.channel.k8s.io", kind)
	case ws4:
		s = c.webSocket(t, target(cluster, execPath), "v4.channel.k8s.io", kind)
	case tunnel:
		s = c.webSocket(t, target(cluster, forwardPath), "SPDY/3.1+portforward.k8s.io", kind)
	default:
		t.Fatalf("no such kind: %s", kind)
	}
	t.Cleanup(func() { s.Close() })
	s.alive(t)
	return s
}

// openStreams opens one stream of each kind.
func openStreams(t *testing.T, px *proxy.Proxy, cluster string, kinds ...string) []stream {
	t.Helper()
	if kinds == nil {
		kinds = allKinds
	}
	var all []stream
	for _, kind := range kinds {
		all = append(all, openStream(t, px, cluster, kind))
	}
	return all
}

func allAlive(t *testing.T, streams []stream) {
	t.Helper()
	for _, s := range streams {
		s.alive(t)
	}
}

// allEnded waits for the orderly end of all within one time.
func allEnded(t *testing.T, streams []stream, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for _, s := range streams {
		s.ended(t, time.Until(deadline))
	}
}

func closeAll(streams []stream) {
	for _, s := range streams {
		s.Close()
	}
}

// reading is a response body that is read as it comes, line by line.
type reading struct {
	kind  string
	close func() error

	mu    sync.Mutex
	lines int
	last  string
	fault string // an event that was lost, or half of one
	err   error
	at    time.Time // of the end
	done  chan struct{}
}

func read(kind string, body io.Reader, numbered bool, closeBody func() error) *reading {
	r := &reading{kind: kind, close: closeBody, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		buffered := bufio.NewReader(body)
		for {
			line, err := buffered.ReadString('\n')
			r.mu.Lock()
			r.take(line, numbered)
			if err != nil {
				r.err, r.at = err, time.Now()
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *reading) take(line string, numbered bool) {
	if line == "" {
		return
	}
	var event struct{ N int }
	switch {
	case !strings.HasSuffix(line, "\n"):
		r.fault = fmt.Sprintf("half an event: %q", line)
	case numbered && (json.Unmarshal([]byte(line), &event) != nil || event.N != r.lines):
		r.fault = fmt.Sprintf("event %d is %q", r.lines, line)
	}
	r.lines++
	r.last = line
}

func (r *reading) state() (lines int, fault string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines, r.fault, r.err
}

func (r *reading) lastLine() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func (r *reading) alive(t *testing.T) {
	t.Helper()
	before, _, _ := r.state()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		lines, fault, err := r.state()
		switch {
		case err != nil:
			t.Fatalf("%s has ended after %d events: %v", r.kind, lines, err)
		case fault != "":
			t.Fatalf("%s: %s", r.kind, fault)
		case lines >= before+2:
			return
		case time.Now().After(deadline):
			t.Fatalf("%s gives nothing", r.kind)
		}
	}
}

func (r *reading) open() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

func (r *reading) ended(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(within):
		t.Errorf("%s has not ended in time", r.kind)
		return
	}
	if lines, fault, err := r.state(); err != io.EOF || fault != "" {
		t.Errorf("%s did not end cleanly after %d events: %v %s", r.kind, lines, err, fault)
	}
}

func (r *reading) String() string { return r.kind }
func (r *reading) Close() error   { return r.close() }

// isNumbered reports whether the lines of a path have numbers.
func isNumbered(path string) bool {
	return strings.HasSuffix(path, "watch=true") || strings.HasSuffix(path, "follow=true")
}

// openWatchH1 opens a response on HTTP/1.1 whose end is told by a last chunk
// alone.
func openWatchH1(t *testing.T, px *proxy.Proxy, path, kind string) *reading {
	t.Helper()
	return session{px, token()}.watchH1(t, path, kind)
}

func (c session) watchH1(t *testing.T, path, kind string) *reading {
	t.Helper()
	conn := c.dial(t)
	if err := conn.Send(rawclient.Request("GET", path, c.px.Host, "Authorization: Bearer "+c.bearer)); err != nil {
		t.Fatal(err)
	}
	res, err := conn.Head("GET")
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 200 || !slices.Equal(res.TransferEncoding, []string{"chunked"}) {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		t.Fatalf("%s: %d %v %s", kind, res.StatusCode, res.TransferEncoding, body)
	}
	return read(kind, res.Body, isNumbered(path), conn.Close)
}

// dial makes a connection for HTTP/1.1, which the end of the test closes.
func (c session) dial(t *testing.T) *rawclient.Conn {
	t.Helper()
	conn, err := rawclient.Dial(t.Context(), c.px.Host, "", c.px.CA.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// openWatchH2 opens a response on an HTTP/2 connection of its own.
func openWatchH2(t *testing.T, px *proxy.Proxy, path, kind string) *reading {
	t.Helper()
	return session{px, token()}.watchH2(t, path, kind)
}

func (c session) watchH2(t *testing.T, path, kind string) *reading {
	t.Helper()
	return c.watchOn(t, rawclient.MustDialH2(t, c.px.Host, c.px.CA.Pool()), path, kind)
}

// watchOn opens a response on a connection.
func (c session) watchOn(t *testing.T, conn *rawclient.H2, path, kind string) *reading {
	t.Helper()
	s, err := conn.Open(rawclient.Fields("GET", c.px.Host, path, rawclient.Field{Name: "authorization", Value: "Bearer " + c.bearer}), true)
	if err != nil {
		t.Fatal(err)
	}
	code, _, err := s.Head()
	if err != nil {
		t.Fatal(err)
	}
	if code != 200 {
		body, _ := io.ReadAll(io.LimitReader(s, 1000))
		t.Fatalf("%s: %d %s", kind, code, body)
	}
	return read(kind, patient{s}, isNumbered(path), func() error { conn.Close(); return nil })
}

// patient reads a stream that may be quiet for longer than its client waits.
type patient struct{ io.Reader }

func (p patient) Read(b []byte) (int, error) {
	for {
		n, err := p.Reader.Read(b)
		if n > 0 || !errors.Is(err, context.DeadlineExceeded) {
			return n, err
		}
	}
}

// openManyWatches opens quiet watches: each on a connection of its own with
// HTTP/1.1, and some on each of a few connections with HTTP/2.
func openManyWatches(t *testing.T, px *proxy.Proxy, h1, connections, streams int) []stream {
	t.Helper()
	path := target("cluster-a", quietPath)
	var mu sync.Mutex
	var all []stream
	var wg sync.WaitGroup
	open := func(n int, one func() *reading) {
		wg.Go(func() {
			for range n {
				r := one() // ends this goroutine when it fails
				mu.Lock()
				all = append(all, r)
				mu.Unlock()
			}
		})
	}
	for range 4 {
		open(h1/4, func() *reading { return openWatchH1(t, px, path, watchH1) })
	}
	for range connections {
		c := rawclient.MustDialH2(t, px.Host, px.CA.Pool())
		open(streams, func() *reading { return session{px, token()}.watchOn(t, c, path, watchH2) })
	}
	wg.Wait()
	if want := h1/4*4 + connections*streams; len(all) != want {
		t.Fatalf("%d of %d watches are open", len(all), want)
	}
	return all
}
