package rawclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Field is one header field, pseudo-header fields included. On the wire it is
// what it says here, whatever RFC 9113 thinks of it.
type Field struct{ Name, Value string }

// Fields are the pseudo-header fields of a request, and more.
func Fields(method, authority, path string, more ...Field) []Field {
	return append([]Field{{":method", method}, {":scheme", "https"}, {":authority", authority}, {":path", path}}, more...)
}

var (
	errNotH2  = errors.New("the server did not choose h2")
	errReset  = errors.New("the stream was reset")
	errGoAway = errors.New("the connection is going away")
)

// window is announced for streams and connection: nothing here waits for
// WINDOW_UPDATE frames of this client.
const window = 1 << 30

// H2 is an HTTP/2 connection at the level of frames.
type H2 struct {
	conn   *tls.Conn
	framer *http2.Framer

	write  sync.Mutex // framer writes, encoder
	enc    *hpack.Encoder
	encBuf bytes.Buffer

	mu       sync.Mutex
	cond     *sync.Cond
	streams  map[uint32]*Stream
	nextID   uint32
	credit   int64 // what the server lets us send on the connection
	initial  int64 // and on a new stream
	maxFrame int
	settings map[http2.SettingID]uint32
	err      error // why the connection has ended
}

// DialH2 connects with ALPN h2 and starts reading.
func DialH2(ctx context.Context, addr, serverName string, roots *x509.CertPool, certs ...tls.Certificate) (*H2, error) {
	return dialH2(ctx, addr, serverName, roots, window, certs)
}

func dialH2(ctx context.Context, addr, serverName string, roots *x509.CertPool, streamWindow uint32, certs []tls.Certificate) (*H2, error) {
	conn, err := dial(ctx, addr, serverName, roots, "h2", certs)
	if err != nil {
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
		return nil, errNotH2
	}
	c := &H2{conn: conn, framer: http2.NewFramer(conn, conn), streams: map[uint32]*Stream{}, nextID: 1, credit: 65535, initial: 65535, maxFrame: 16384, settings: map[http2.SettingID]uint32{}}
	c.cond = sync.NewCond(&c.mu)
	c.enc = hpack.NewEncoder(&c.encBuf)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := c.hello(streamWindow); err != nil {
		conn.Close()
		return nil, fmt.Errorf("starting HTTP/2: %w", err)
	}
	go c.readLoop()
	return c, nil
}

func (c *H2) hello(streamWindow uint32) error {
	if _, err := io.WriteString(c.conn, http2.ClientPreface); err != nil {
		return err
	}
	err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	if err != nil {
		return err
	}
	return c.framer.WriteWindowUpdate(0, window)
}

// MustDialH2 is DialH2 for a test, which closes the connection at its end.
func MustDialH2(tb testing.TB, addr string, roots *x509.CertPool) *H2 {
	tb.Helper()
	c, err := DialH2(tb.Context(), addr, "", roots)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// MustDialUnreadH2 is MustDialH2 with a client that takes headers and no byte of a
// body: its streams have no window.
func MustDialUnreadH2(tb testing.TB, addr string, roots *x509.CertPool) *H2 {
	tb.Helper()
	c, err := dialH2(tb.Context(), addr, "", roots, 0, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// Setting is what the server has announced of it so far, which is all once an
// answer is there.
func (c *H2) Setting(id http2.SettingID) (value uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok = c.settings[id]
	return value, ok
}

// Close closes the connection.
func (c *H2) Close() { c.conn.Close() }

// Stream is one request and its answer.
type Stream struct {
	c      *H2
	id     uint32
	credit int64

	header http.Header
	body   bytes.Buffer
	ended  bool
	err    error
}

// Open sends a HEADERS frame with those fields in that order.
func (c *H2) Open(fields []Field, end bool) (*Stream, error) {
	c.write.Lock()
	defer c.write.Unlock()
	c.mu.Lock()
	s := &Stream{c: c, id: c.nextID, credit: c.initial}
	c.nextID += 2
	c.streams[s.id] = s
	err := c.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s, c.writeFields(s.id, fields, end)
}

// Trailers sends fields after the body and ends it.
func (s *Stream) Trailers(fields []Field) error {
	s.c.write.Lock()
	defer s.c.write.Unlock()
	return s.c.writeFields(s.id, fields, true)
}

// writeFields sends a header block; the caller holds the lock for writing.
func (c *H2) writeFields(id uint32, fields []Field, end bool) error {
	c.mu.Lock()
	maxFrame := c.maxFrame
	c.mu.Unlock()
	c.encBuf.Reset()
	for _, f := range fields {
		if err := c.enc.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
			return err
		}
	}
	block := c.encBuf.Bytes()
	first := block[:min(len(block), maxFrame)]
	block = block[len(first):]
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0}); err != nil {
		return err
	}
	for len(block) > 0 {
		part := block[:min(len(block), maxFrame)]
		block = block[len(part):]
		if err := c.framer.WriteContinuation(id, len(block) == 0, part); err != nil {
			return err
		}
	}
	return nil
}

// Write sends data within the windows the server grants.
func (s *Stream) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		s.c.mu.Lock()
		for s.credit <= 0 || s.c.credit <= 0 {
			if err := s.failed(); err != nil {
				s.c.mu.Unlock()
				return written, err
			}
			s.c.cond.Wait()
		}
		n := int(min(int64(len(p)), s.credit, s.c.credit, int64(s.c.maxFrame)))
		s.credit -= int64(n)
		s.c.credit -= int64(n)
		s.c.mu.Unlock()
		s.c.write.Lock()
		err := s.c.framer.WriteData(s.id, false, p[:n])
		s.c.write.Unlock()
		if err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// CloseWrite ends the request's body.
func (s *Stream) CloseWrite() error {
	s.c.write.Lock()
	defer s.c.write.Unlock()
	return s.c.framer.WriteData(s.id, true, nil)
}

// Reset cancels the stream.
func (s *Stream) Reset() error {
	s.c.write.Lock()
	defer s.c.write.Unlock()
	return s.c.framer.WriteRSTStream(s.id, http2.ErrCodeCancel)
}

// failed is why nothing more will come; the caller holds the lock.
func (s *Stream) failed() error {
	if s.err != nil {
		return s.err
	}
	return s.c.err
}

// Head waits for the answer's header; ":status" is among it.
func (s *Stream) Head() (int, http.Header, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if err := s.wait(func() bool { return s.header != nil }); err != nil {
		return 0, nil, err
	}
	code, err := strconv.Atoi(s.header[":status"][0])
	return code, s.header, err
}

// Read reads the answer's body.
func (s *Stream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	err := s.wait(func() bool { return s.body.Len() > 0 || s.ended })
	if s.body.Len() > 0 {
		return s.body.Read(p)
	}
	if s.ended {
		return 0, io.EOF
	}
	return 0, err
}

// wait waits, with the lock, until done or nothing more can come.
func (s *Stream) wait(done func() bool) error {
	deadline := time.Now().Add(Timeout)
	timer := time.AfterFunc(Timeout, s.c.cond.Broadcast)
	defer timer.Stop()
	for !done() {
		if err := s.failed(); err != nil {
			return err
		}
		if !time.Now().Before(deadline) {
			return fmt.Errorf("nothing came on stream %d: %w", s.id, context.DeadlineExceeded)
		}
		s.c.cond.Wait()
	}
	return nil
}

// Do sends a request with a body and reads the whole answer.
func (c *H2) Do(tb testing.TB, fields []Field, body []byte) Answer {
	tb.Helper()
	s, err := c.Open(fields, len(body) == 0)
	if err != nil {
		tb.Fatalf("sending the request: %v", err)
	}
	if len(body) > 0 {
		if _, err := s.Write(body); err == nil {
			_ = s.CloseWrite()
		}
	}
	code, header, err := s.Head()
	if err != nil {
		tb.Fatalf("reading the answer: %v", err)
	}
	answer, err := io.ReadAll(s)
	if err != nil {
		tb.Fatalf("reading the body of the answer (%d): %v", code, err)
	}
	return Answer{Code: code, Header: header, Body: string(answer)}
}
