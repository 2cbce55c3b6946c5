package lifecycle

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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

// Kinds of stream.
const (
	watchH1 = "watch on HTTP/1.1"
	watchH2 = "watch on HTTP/2"
	spdy    = "SPDY exec"
	ws      = "WebSocket exec"
)

var allKinds = []string{watchH1, watchH2, spdy, ws}

// openStream opens one stream of a cluster.
func openStream(t *testing.T, px *proxy.Proxy, cluster, kind string) stream {
	t.Helper()
	var s stream
	switch kind {
	case watchH1:
		s = openWatchH1(t, px, target(cluster, watchPath), kind)
	case watchH2:
		s = openWatchH2(t, px, target(cluster, watchPath), kind)
	case spdy:
		s = openSPDY(t, px, target(cluster, execPath))
	case ws:
		c, err := rawclient.DialWebSocket(t.Context(), px.Host, px.CA.Pool(), target(cluster, execPath), "v5.channel.k8s.io", "Authorization: Bearer "+token())
		if err != nil {
			t.Fatal(err)
		}
		s = &webSocket{WebSocket: c}
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

// openWatchH1 opens a response on HTTP/1.1 whose end is told by a last chunk
// alone.
func openWatchH1(t *testing.T, px *proxy.Proxy, path, kind string) *reading {
	t.Helper()
	c, err := rawclient.Dial(t.Context(), px.Host, "", px.CA.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Send(rawclient.Request("GET", path, px.Host, "Authorization: Bearer "+token())); err != nil {
		t.Fatal(err)
	}
	res, err := c.Head("GET")
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 200 || !slices.Equal(res.TransferEncoding, []string{"chunked"}) {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		t.Fatalf("%s: %d %v %s", kind, res.StatusCode, res.TransferEncoding, body)
	}
	return read(kind, res.Body, strings.Contains(path, "watch=true"), c.Close)
}

// openWatchH2 opens a response on an HTTP/2 connection of its own.
func openWatchH2(t *testing.T, px *proxy.Proxy, path, kind string) *reading {
	t.Helper()
	c := rawclient.MustDialH2(t, px.Host, px.CA.Pool())
	return watchOn(t, px, c, path, kind)
}

// watchOn opens a response on a connection.
func watchOn(t *testing.T, px *proxy.Proxy, c *rawclient.H2, path, kind string) *reading {
	t.Helper()
	s, err := c.Open(rawclient.Fields("GET", px.Host, path, rawclient.Field{Name: "authorization", Value: "Bearer " + token()}), true)
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
	return read(kind, patient{s}, strings.Contains(path, "watch=true"), func() error { c.Close(); return nil })
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
		open(streams, func() *reading { return watchOn(t, px, c, path, watchH2) })
	}
	wg.Wait()
	if want := h1/4*4 + connections*streams; len(all) != want {
		t.Fatalf("%d of %d watches are open", len(all), want)
	}
	return all
}

// spdyExec is an upgraded connection whose protocol has no word for the end.
type spdyExec struct{ *rawclient.Conn }

func openSPDY(t *testing.T, px *proxy.Proxy, path string) *spdyExec {
	t.Helper()
	c, err := rawclient.Dial(t.Context(), px.Host, "", px.CA.Pool())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Send(rawclient.Request("POST", path, px.Host, "Authorization: Bearer "+token(),
		"Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io")); err != nil {
		t.Fatal(err)
	}
	res, err := c.Head("POST")
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 101 {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		t.Fatalf("%s: %d %s", spdy, res.StatusCode, body)
	}
	return &spdyExec{c}
}

func (s *spdyExec) alive(t *testing.T) {
	t.Helper()
	sent := []byte(rand.Text())
	if err := s.Send(sent); err != nil {
		t.Fatalf("%s: %v", spdy, err)
	}
	_ = s.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(s.R, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%s: sent %q, got %q, %v", spdy, sent, got, err)
	}
}

func (s *spdyExec) ended(t *testing.T, within time.Duration) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(within))
	n, err := s.R.Read(make([]byte, 1))
	if n != 0 || err == nil || isTimeout(err) {
		t.Errorf("%s has not ended in time: %d bytes, %v", spdy, n, err)
	}
}

func (s *spdyExec) open() bool {
	_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := s.R.Peek(1)
	return isTimeout(err)
}

func (s *spdyExec) String() string { return spdy }

// webSocket is an upgraded connection that ends with a close frame.
type webSocket struct {
	*rawclient.WebSocket
}

func (s *webSocket) alive(t *testing.T) {
	t.Helper()
	sent := []byte(rand.Text())
	if err := s.Send(rawclient.Binary, sent); err != nil {
		t.Fatalf("%s: %v", ws, err)
	}
	op, got, err := s.Receive()
	if err != nil || op != rawclient.Binary || !bytes.Equal(got, sent) {
		t.Fatalf("%s: sent %q, got opcode %x %q, %v", ws, sent, op, got, err)
	}
}

// goingAway is the payload of a close frame with code 1001.
var goingAway = []byte{1001 >> 8, 1001 & 0xff}

func (s *webSocket) ended(t *testing.T, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	_ = s.SetReadDeadline(deadline)
	if _, err := s.R.Peek(1); err != nil {
		t.Errorf("%s did not end with a close frame in time: %v", ws, err)
		return
	}
	op, payload, err := s.Receive()
	if err != nil || op != rawclient.Close || !bytes.Equal(payload, goingAway) {
		t.Errorf("%s did not end with a close frame: opcode %x %q, %v", ws, op, payload, err)
		return
	}
	_ = s.Send(rawclient.Close, goingAway)
	// Answered, the connection need not wait for anything.
	_ = s.SetReadDeadline(deadline)
	if _, err := s.R.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("%s: the connection is open after both close frames: %v", ws, err)
	}
}

func (s *webSocket) open() bool {
	_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := s.R.Peek(1)
	return isTimeout(err)
}

func (s *webSocket) String() string { return ws }

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
