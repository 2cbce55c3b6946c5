package upstream

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// conn is the connection of a 101: Read gives what was sent, Write records.
type conn struct {
	*networkBody
	mu      sync.Mutex
	written bytes.Buffer
	// onWrite is what the apiserver does when it gets something.
	onWrite func(p []byte)
	half    bool
	broken  error         // of each Write
	stuck   chan struct{} // Write waits for it, or for Close
	closed  chan struct{}
	once    sync.Once
}

func newConn() *conn { return &conn{networkBody: newNetworkBody(), closed: make(chan struct{})} }

func (c *conn) Write(p []byte) (int, error) {
	if c.stuck != nil {
		select {
		case <-c.stuck:
		case <-c.closed:
			return 0, io.ErrClosedPipe
		}
	}
	select {
	case <-c.closed:
		return 0, io.ErrClosedPipe
	default:
	}
	if c.broken != nil {
		return 0, c.broken
	}
	c.mu.Lock()
	c.written.Write(p)
	c.mu.Unlock()
	if c.onWrite != nil {
		c.onWrite(p)
	}
	return len(p), nil
}

func (c *conn) CloseWrite() error { c.half = true; return nil }

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.networkBody.Close()
}

func (c *conn) got() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.String()
}

func switched(c io.ReadWriteCloser, protocol string) *http.Response {
	return &http.Response{StatusCode: 101, Body: c.(io.ReadCloser), Header: http.Header{"Upgrade": {protocol}}}
}

// frame is a WebSocket frame of n bytes.
func frame(opcode byte, n int, masked bool) []byte {
	m := byte(0)
	if masked {
		m = maskBit
	}
	b := []byte{finalBit | opcode}
	switch {
	case n < 126:
		b = append(b, m|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, m|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, m|127), uint64(n))
	}
	if masked {
		b = append(b, 1, 2, 3, 4)
	}
	return append(b, bytes.Repeat([]byte{0x88}, n)...)
}

// closeCode is the code of a masked close frame.
func closeCode(t *testing.T, b string) int {
	t.Helper()
	if len(b) != 8 || b[0] != 0x88 || b[1] != 0x82 {
		t.Fatalf("%x is no masked close frame", b)
	}
	return int(b[6]^b[2])<<8 | int(b[7]^b[3])
}

// STREAM-1: either side of a WebSocket gets a close frame, each after a whole
// frame, and the client a moment to answer.
func TestWebSocketEnds(t *testing.T) {
	down := string(frame(2, 300, false))
	up := string(frame(2, 200, true))
	tests := []struct {
		name string
		// What the apiserver and the client send before and after the end.
		down, downAfter, up, upAfter string
		wantDown, wantUp             string // before the close frames
		answers                      bool   // the client answers the close frame
		silent                       bool   // the apiserver answers nothing
		took                         time.Duration
	}{
		{name: "quiet", answers: true},
		{name: "after frames", down: down + down, up: up, wantDown: down + down, wantUp: up, answers: true},
		{name: "client does not answer", down: down, up: up, wantDown: down, wantUp: up, took: closeGrace},
		{name: "apiserver does not answer", silent: true, answers: true, took: boundaryGrace},
		{name: "no answer", silent: true, took: boundaryGrace + closeGrace},
		{
			name: "apiserver in mid-frame", down: down + down[:100], downAfter: down[100:] + down,
			wantDown: down + down, answers: true, silent: true,
		},
		{
			name: "client in mid-frame", up: up[:3], upAfter: up[3:] + up, wantUp: up, answers: true,
		},
		{
			name: "client in mid-frame for ever", up: up[:3], wantUp: up[:3], took: boundaryGrace + closeGrace,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn()
				c.onWrite = func(p []byte) {
					if !tt.silent && len(p) == 8 && p[0] == 0x88 {
						go c.send.Write(frame(8, 2, false))
					}
				}
				r := NewRegistry()
				g := r.NewGroup()
				res := switched(c, "websocket")
				g.Track(res, StreamOptions{Kind: Response})
				rwc := res.Body.(io.ReadWriteCloser)
				var got []byte
				var readErr error
				done := make(chan struct{})
				start := time.Now()
				go func() {
					defer close(done)
					p := make([]byte, 4096)
					for readErr == nil {
						var n int
						n, readErr = rwc.Read(p)
						got = append(got, p[:n]...)
						if tt.answers && bytes.HasSuffix(got, closeFrame[:]) {
							io.Copy(rwc, bytes.NewReader(frame(8, 2, true)))
						}
					}
				}()
				if tt.down != "" { // an empty write to a pipe is a read of nothing
					io.WriteString(c.send, tt.down)
				}
				io.WriteString(rwc, tt.up)
				synctest.Wait()
				g.End(0)
				synctest.Wait()
				if tt.upAfter != "" {
					if n, err := io.WriteString(rwc, tt.upAfter); n != len(tt.upAfter) || err != nil {
						t.Errorf("writing on: %d, %v", n, err)
					}
				}
				if tt.downAfter != "" {
					go io.WriteString(c.send, tt.downAfter)
				}
				<-done
				took := time.Since(start)

				if want := tt.wantDown + string(closeFrame[:]); string(got) != want || readErr != ErrEnded {
					t.Errorf("client got %x, %v; want %x", got, readErr, want)
				}
				if took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
				sent := c.got()
				if tail := sent[len(tt.wantUp):]; sent[:len(tt.wantUp)] != tt.wantUp {
					t.Errorf("apiserver got %x", sent)
				} else if tt.name == "client in mid-frame for ever" {
					if tail != "" {
						t.Errorf("a close frame in another frame: %x", tail)
					}
				} else if code := closeCode(t, tail); code != 1001 {
					t.Errorf("close code %d", code)
				}
				if r.Len() != 1 {
					t.Error("left before it was closed")
				}
				rwc.Close()
				rwc.Close()
				if r.Len() != 0 {
					t.Errorf("%d streams are open", r.Len())
				}
				time.Sleep(boundaryGrace)
			})
		})
	}
}

// A frame that the apiserver never completes gets no close frame inside it.
func TestWebSocketEndsInMidFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn()
		g := NewRegistry().NewGroup()
		res := switched(c, "websocket")
		g.Track(res, StreamOptions{Kind: Response})
		part := string(frame(2, 300, false)[:100])
		go func() {
			io.WriteString(c.send, part)
			synctest.Wait()
			g.End(0)
		}()
		start := time.Now()
		got, err := io.ReadAll(res.Body)
		if string(got) != part || err != ErrEnded || time.Since(start) != boundaryGrace {
			t.Errorf("%x, %v after %s", got, err, time.Since(start))
		}
		res.Body.Close()
	})
}

// A close that is under way is not said twice.
func TestWebSocketAlreadyClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn()
		g := NewRegistry().NewGroup()
		res := switched(c, "websocket")
		g.Track(res, StreamOptions{Kind: Response})
		rwc := res.Body.(io.ReadWriteCloser)
		bye := string(frame(8, 2, false))
		go func() {
			io.WriteString(c.send, bye)
			synctest.Wait()
			rwc.Write(frame(8, 2, true))
			g.End(0)
		}()
		if got, err := io.ReadAll(rwc); string(got) != bye || err != ErrEnded {
			t.Errorf("%x, %v", got, err)
		}
		synctest.Wait()
		if got := c.got(); got != string(frame(8, 2, true)) {
			t.Errorf("apiserver got %x", got)
		}
		rwc.Close()
	})
}

// An apiserver that does not read does not keep a stream.
func TestWebSocketEndsWithStuckWrite(t *testing.T) {
	t.Parallel() // it waits: synctest does not pass time while a lock is held
	c := newConn()
	writing := make(chan struct{})
	c.stuck = make(chan struct{})
	g := NewRegistry().NewGroup()
	res := switched(c, "websocket")
	g.Track(res, StreamOptions{Kind: Response})
	rwc := res.Body.(io.ReadWriteCloser)
	wrote := make(chan error)
	go func() { close(writing); _, err := rwc.Write(frame(2, 10, true)); wrote <- err }()
	<-writing
	g.End(0)
	within(t, 5*time.Second, "ending", func() {
		if _, err := io.ReadAll(rwc); err != ErrEnded {
			t.Error(err)
		}
		if err := <-wrote; err != nil {
			t.Error(err) // it would keep the close frame from the client
		}
	})
	rwc.Close()
}

// spdyData is a DATA frame of SPDY.
func spdyData(stream uint32, flags byte, data string) string {
	b := binary.BigEndian.AppendUint32(nil, stream)
	return string(binary.BigEndian.AppendUint32(b, uint32(flags)<<24|uint32(len(data)))) + data
}

const spdyGoAway = "\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00"

// STREAM-1: a client of SPDY gets a GOAWAY after a whole frame, and that of a
// command a failure on its error stream before it, and a moment to leave.
func TestSPDYEnds(t *testing.T) {
	frame := spdyData(5, 0, strings.Repeat("x", 300))
	failure := spdyData(1, 1, spdyFailure)
	for _, tt := range []struct {
		name, version string
		// What the apiserver sends before and after the end.
		before, after string
		// want is what the client gets.
		want   string
		leaves bool // the client leaves at GOAWAY
		took   time.Duration
	}{
		{name: "a quiet command", version: "v4.channel.k8s.io", want: failure + spdyGoAway, leaves: true},
		{name: "a command", version: "v4.channel.k8s.io", before: frame + frame, want: frame + frame + failure + spdyGoAway, leaves: true},
		{name: "port-forward", version: "portforward.k8s.io", before: frame, want: frame + spdyGoAway, leaves: true},
		{name: "without a version", before: frame, want: frame + spdyGoAway, leaves: true},
		{name: "the client stays", version: "v4.channel.k8s.io", want: failure + spdyGoAway, took: closeGrace},
		{
			name: "in mid-frame", version: "v4.channel.k8s.io", before: frame + frame[:100], after: frame[100:] + frame,
			want: frame + frame + failure + spdyGoAway, leaves: true,
		},
		{name: "in mid-frame for ever", version: "v4.channel.k8s.io", before: frame + frame[:7], want: frame + frame[:7], took: boundaryGrace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn()
				g := NewRegistry().NewGroup()
				res := switched(c, "SPDY/3.1")
				res.Header.Set("X-Stream-Protocol-Version", tt.version)
				g.Track(res, StreamOptions{Kind: Response})
				rwc := res.Body.(io.ReadWriteCloser)
				half := rwc.(interface{ CloseWrite() error })
				start := time.Now()
				go func() {
					if tt.before != "" {
						io.WriteString(c.send, tt.before)
					}
					synctest.Wait()
					g.End(time.Hour)
					synctest.Wait()
					if n, err := io.WriteString(rwc, "too late"); n != 8 || err != nil {
						t.Errorf("writing on: %d, %v", n, err)
					}
					if tt.after != "" {
						go io.WriteString(c.send, tt.after)
					}
				}()
				var got []byte
				var err error
				for p := make([]byte, 64); err == nil; {
					var n int
					n, err = rwc.Read(p)
					got = append(got, p[:n]...)
					if tt.leaves && bytes.HasSuffix(got, []byte(spdyGoAway)) {
						_ = half.CloseWrite()
					}
				}
				if string(got) != tt.want || err != ErrEnded || time.Since(start) != tt.took {
					t.Errorf("%q, %v after %s, want %q", got, err, time.Since(start), tt.want)
				}
				if c.got() != "" {
					t.Errorf("apiserver got %q", c.got())
				}
				if err := half.CloseWrite(); err != nil || c.half {
					t.Errorf("half-close of an ended stream: %v, %t", err, c.half)
				}
				rwc.Close()
				time.Sleep(boundaryGrace)
			})
		})
	}
}

// A stream that is not ended passes everything on, both ways, half-close included.
func TestUpgradePassesOn(t *testing.T) {
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		c := newConn()
		r := NewRegistry()
		res := switched(c, protocol)
		r.NewGroup().Track(res, StreamOptions{Kind: Response})
		rwc := res.Body.(io.ReadWriteCloser)
		go func() { io.WriteString(c.send, "\x82\x05any bytes"); c.send.Close() }()
		if got, err := io.ReadAll(rwc); string(got) != "\x82\x05any bytes" || err != nil {
			t.Errorf("%s: read %q, %v", protocol, got, err)
		}
		io.WriteString(rwc, "\x82\x85and more")
		if c.got() != "\x82\x85and more" {
			t.Errorf("%s: wrote %q", protocol, c.got())
		}
		if err := rwc.(interface{ CloseWrite() error }).CloseWrite(); err != nil || !c.half {
			t.Errorf("%s: CloseWrite: %v, passed on: %t", protocol, err, c.half)
		}
		if r.Len() != 1 {
			t.Errorf("%s: half-closed streams are over", protocol)
		}
		rwc.Close()
		if r.Len() != 0 {
			t.Errorf("%s: still open", protocol)
		}
	}
	// A connection that cannot half-close says so: the copier then ends both.
	u := newUpgraded(struct{ io.ReadWriteCloser }{newConn()}, http.Header{}, StreamOptions{Kind: Upgrade})
	if u.CloseWrite() == nil {
		t.Error("CloseWrite succeeded")
	}
}

// RELAY-2: an apiserver that has closed a stream takes nothing more. Its last bytes
// are read nevertheless, and the client has time to close its end.
func TestUpgradeDeliversTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn()
		c.broken = io.ErrClosedPipe
		res := switched(c, "SPDY/3.1")
		NewRegistry().NewGroup().Track(res, StreamOptions{Kind: Response})
		rwc := res.Body.(io.ReadWriteCloser)
		write := func(want error) {
			t.Helper()
			if n, err := rwc.Write([]byte("ping")); err != want || (n == 4) != (want == nil) {
				t.Errorf("writing: %d, %v; want %v", n, err, want)
			}
		}
		write(nil)
		time.Sleep(2 * lingering) // a client that reads slowly
		write(nil)
		go func() { io.WriteString(c.send, "last bytes"); c.send.Close() }()
		if got, err := io.ReadAll(rwc); string(got) != "last bytes" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		time.Sleep(lingering)
		write(nil)
		time.Sleep(time.Nanosecond)
		write(io.ErrClosedPipe)
		if c.got() != "" {
			t.Errorf("the apiserver got %q", c.got())
		}
		rwc.Close()
	})
}
