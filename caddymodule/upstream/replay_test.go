package upstream

import (
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// restarting is an apiserver whose first connection goes away with a request
// under way, without having processed it; later ones echo the body.
func restarting(t *testing.T, refuse func(c *h2Conn, stream uint32)) (Config, *atomic.Int32) {
	var conns atomic.Int32
	c := raw(t, []string{"h2"}, func(conn *tls.Conn) {
		first := conns.Add(1) == 1
		c := newH2Conn(conn)
		var body []byte
		for {
			frame, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.MetaHeadersFrame:
				if frame.StreamEnded() {
					if first {
						refuse(c, frame.StreamID)
						first = false
						continue
					}
					c.respond(frame.StreamID, "200", true)
				}
			case *http2.DataFrame:
				n := uint32(len(frame.Data()))
				if n > 0 {
					c.WriteWindowUpdate(0, n)
					c.WriteWindowUpdate(frame.StreamID, n)
				}
				body = append(body, frame.Data()...)
				if first {
					if frame.StreamEnded() || len(body) > 100_000 {
						refuse(c, frame.StreamID)
						first, body = false, nil
					}
					continue
				}
				if frame.StreamEnded() {
					c.respond(frame.StreamID, "200", false)
					for len(body) > 0 {
						n := min(len(body), 16<<10)
						c.WriteData(frame.StreamID, false, body[:n])
						body = body[n:]
					}
					c.WriteData(frame.StreamID, true, nil)
				}
			}
		}
	})
	return c, &conns
}

func goAway(c *h2Conn, _ uint32) { c.WriteGoAway(0, http2.ErrCodeNo, nil) }

func refuseStream(c *h2Conn, stream uint32) { c.WriteRSTStream(stream, http2.ErrCodeRefusedStream) }

// RELAY-5: a request that was not processed is sent again when its body can
// be, else the error says that it was not processed.
func TestReplay(t *testing.T) {
	small, exact, large := "object", strings.Repeat("x", maxReplay), strings.Repeat("x", 300_000)
	tests := []struct {
		name   string
		body   string
		length bool
		ok     bool
	}{
		{"no body", "", true, true},
		{"small", small, true, true},
		{"small, chunked", small, false, true},
		{"as large as the buffer", exact, true, true},
		{"as large as the buffer, chunked", exact, false, true},
		{"large", large, true, false},
		{"large, chunked", large, false, false},
	}
	for _, tt := range tests {
		for refusal, refuse := range map[string]func(*h2Conn, uint32){"GOAWAY": goAway, "REFUSED_STREAM": refuseStream} {
			t.Run(tt.name+", "+refusal, func(t *testing.T) {
				c, _ := restarting(t, refuse)
				src := &closeRecorder{Reader: strings.NewReader(tt.body)}
				r := request(t, c, "POST", "/", nil)
				if tt.body != "" {
					r.Body = src
					r.ContentLength = -1
					if tt.length {
						r.ContentLength = int64(len(tt.body))
					}
				}
				res, err := pair(t, c).RoundTrip(r)
				if !tt.ok {
					if !errors.Is(err, ErrNotProcessed) {
						t.Fatalf("RoundTrip: %v", err)
					}
					eventually(t, "closing the request's body", src.closed.Load)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				if err != nil || string(b) != tt.body {
					t.Errorf("the apiserver got %d bytes, %v; want %d", len(b), err, len(tt.body))
				}
				res.Body.Close()
				if tt.body != "" {
					eventually(t, "closing the request's body", src.closed.Load)
				}
			})
		}
	}
}

type closeRecorder struct {
	io.Reader
	closed atomic.Bool
}

func (r *closeRecorder) Close() error { r.closed.Store(true); return nil }

// RELAY-6: a long upload is not kept.
func TestReplayForgets(t *testing.T) {
	r := request(t, Config{}, "POST", "/", nil)
	r.Body = io.NopCloser(io.LimitReader(zeros{}, 10<<20))
	r.ContentLength = -1
	b := newReplayBody(r)
	n, err := io.Copy(io.Discard, b.first())
	if n != 10<<20 || err != nil {
		t.Fatalf("read %d, %v", n, err)
	}
	if b.buf != nil {
		t.Errorf("%d bytes are kept", len(b.buf))
	}
	if _, err := b.again(); !errors.Is(err, ErrNotProcessed) {
		t.Errorf("again: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// A body that fails keeps failing the same way.
func TestReplayOfBrokenBody(t *testing.T) {
	broken := errors.New("broken")
	r := request(t, Config{}, "POST", "/", nil)
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("abc"), errReader{broken}))
	b := newReplayBody(r)
	first := b.first()
	if got, err := io.ReadAll(first); string(got) != "abc" || err != broken {
		t.Fatalf("%q, %v", got, err)
	}
	first.Close()
	second, err := b.again()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(second); string(got) != "abc" || err != broken {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := first.Read(make([]byte, 1)); err != errBodyClosed {
		t.Errorf("an attempt that was given up reads on: %v", err)
	}
}

// A request that ends while its body is read does not close it at the same time,
// and does not wait for the read.
func TestReplayIsNotClosedWhileRead(t *testing.T) {
	src := &countingBody{reading: make(chan struct{}), more: make(chan struct{})}
	r := request(t, Config{}, "POST", "/", nil)
	r.Body = src
	b := newReplayBody(r)
	a := b.first()
	read := make(chan error)
	go func() {
		_, err := a.Read(make([]byte, 1))
		read <- err
	}()
	<-src.reading
	a.Close()
	b.sent()
	close(src.more)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if _, err := a.Read(make([]byte, 1)); err != errBodyClosed {
		t.Errorf("read on after the end: %v", err)
	}
	if src.reads != 1 || src.closes != 0 {
		t.Errorf("%d reads, %d closes", src.reads, src.closes)
	}
}

// countingBody has no lock, so that the race detector sees who uses it at once.
type countingBody struct {
	reads, closes int
	reading, more chan struct{}
}

func (b *countingBody) Read(p []byte) (int, error) {
	close(b.reading)
	<-b.more
	b.reads++
	return len(p), nil
}

func (b *countingBody) Close() error {
	b.closes++
	return nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
