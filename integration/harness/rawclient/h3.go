package rawclient

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// Types of streams and frames (RFC 9114, sections 6.2 and 7.2).
const (
	h3ControlStream = 0x0
	h3Data          = 0x0
	h3Headers       = 0x1
	h3Settings      = 0x4
)

// h3MaxHeader bounds the header of an answer, in bytes.
const h3MaxHeader = 1 << 20

var errNoStatus = errors.New("the header of the answer has no :status")

// H3Options shape an HTTP/3 connection.
type H3Options struct {
	// From is a local address; empty is any.
	From string
	// Sessions resume an earlier connection. The requests of a resumed connection are
	// sent as early data until the handshake is complete.
	Sessions tls.ClientSessionCache
	// Packets may change what the connection reads and writes.
	Packets func(net.PacketConn) net.PacketConn
}

// H3 is an HTTP/3 connection at the level of frames.
type H3 struct {
	// Conn tells the state of the handshake.
	Conn      *quic.Conn
	transport *quic.Transport
	packets   net.PacketConn
}

// DialH3 connects. With a session to resume it returns before the server has
// answered.
func DialH3(ctx context.Context, addr string, roots *x509.CertPool, o H3Options) (*H3, error) {
	server, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(o.From)})
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	c := &H3{packets: udp}
	if o.Packets != nil {
		c.packets = o.Packets(udp)
	}
	c.transport = &quic.Transport{Conn: c.packets}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	c.Conn, err = c.transport.DialEarly(ctx, server, &tls.Config{
		RootCAs: roots, ServerName: server.IP.String(), NextProtos: []string{"h3"}, ClientSessionCache: o.Sessions,
	}, nil)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("connecting: %w", err)
	}
	if err := c.hello(); err != nil {
		c.Close()
		return nil, fmt.Errorf("starting HTTP/3: %w", err)
	}
	return c, nil
}

// MustDialH3 is DialH3 for a test, which closes the connection at its end.
func MustDialH3(tb testing.TB, addr string, roots *x509.CertPool, o H3Options) *H3 {
	tb.Helper()
	c, err := DialH3(tb.Context(), addr, roots, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// hello opens the control stream, with no setting.
func (c *H3) hello() error {
	control, err := c.Conn.OpenUniStream()
	if err != nil {
		return err
	}
	_, err = control.Write(h3Frame(quicvarint.Append(nil, h3ControlStream), h3Settings, nil))
	return err
}

// Close closes the connection and its socket.
func (c *H3) Close() {
	if c.Conn != nil {
		_ = c.Conn.CloseWithError(0x100, "") // H3_NO_ERROR
	}
	_ = c.transport.Close()
	_ = c.packets.Close()
}

func h3Frame(b []byte, kind uint64, payload []byte) []byte {
	b = quicvarint.Append(b, kind)
	b = quicvarint.Append(b, uint64(len(payload)))
	return append(b, payload...)
}

// H3Stream is one request and its answer.
type H3Stream struct {
	// Patience bounds each wait for an answer; Timeout if it is not set.
	Patience time.Duration

	str    *quic.Stream
	r      *bufio.Reader
	header http.Header
	// left is what remains of the DATA frame.
	left uint64
}

// Open sends a HEADERS frame with those fields in that order.
func (c *H3) Open(fields []Field, end bool) (*H3Stream, error) {
	str, err := c.Conn.OpenStream()
	if err != nil {
		return nil, err
	}
	s := &H3Stream{str: str, r: bufio.NewReader(str)}
	if err := s.fields(fields); err != nil {
		return nil, err
	}
	if end {
		_ = str.Close() // fails when the server reads no more, and may have answered
	}
	return s, nil
}

// fields sends a HEADERS frame.
func (s *H3Stream) fields(fields []Field) error {
	var block bytes.Buffer
	enc := qpack.NewEncoder(&block)
	for _, f := range fields {
		if err := enc.WriteField(qpack.HeaderField{Name: f.Name, Value: f.Value}); err != nil {
			return err
		}
	}
	_, err := s.str.Write(h3Frame(nil, h3Headers, block.Bytes()))
	if stopped := (*quic.StreamError)(nil); errors.As(err, &stopped) && stopped.Remote {
		return nil // the server reads no more, and may have answered
	}
	return err
}

// Trailers sends fields after the body and ends it.
func (s *H3Stream) Trailers(fields []Field) error {
	return errors.Join(s.fields(fields), s.str.Close())
}

// Write sends a DATA frame.
func (s *H3Stream) Write(p []byte) (int, error) {
	frame := h3Frame(nil, h3Data, p)
	n, err := s.str.Write(frame)
	return max(0, n-(len(frame)-len(p))), err
}

// CloseWrite ends the request's body.
func (s *H3Stream) CloseWrite() error { return s.str.Close() }

// Head waits for the answer's header; ":status" is among it.
func (s *H3Stream) Head() (int, http.Header, error) {
	for {
		h, err := s.nextHeader()
		if err != nil {
			return 0, nil, err
		}
		if len(h[":status"]) == 0 {
			return 0, nil, errNoStatus
		}
		code, err := strconv.Atoi(h[":status"][0])
		if err != nil || code >= 200 { // an interim answer is followed by the final one
			return code, h, err
		}
	}
}

// nextHeader reads frames up to the next HEADERS frame, and that.
func (s *H3Stream) nextHeader() (http.Header, error) {
	for s.header == nil {
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	h := s.header
	s.header = nil
	return h, nil
}

// Read reads the answer's body.
func (s *H3Stream) Read(p []byte) (int, error) {
	for s.left == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
		s.header = nil // trailers are not kept
	}
	s.wait()
	n, err := s.r.Read(p[:min(uint64(len(p)), s.left)])
	s.left -= uint64(n)
	return n, err
}

func (s *H3Stream) wait() { _ = s.str.SetReadDeadline(time.Now().Add(cmp.Or(s.Patience, Timeout))) }

// next reads the head of the next frame, and the whole frame unless it is DATA.
func (s *H3Stream) next() error {
	s.wait()
	kind, err := quicvarint.Read(s.r)
	if err != nil {
		return err
	}
	length, err := quicvarint.Read(s.r)
	if err != nil {
		return err
	}
	if kind == h3Data {
		s.left = length
		return nil
	}
	payload, err := io.ReadAll(io.LimitReader(s.r, int64(min(length, h3MaxHeader))))
	if err != nil || kind != h3Headers {
		return err
	}
	s.header = http.Header{}
	for decode := qpack.NewDecoder().Decode(payload); ; {
		f, err := decode()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the header of the answer: %w", err)
		}
		name := http.CanonicalHeaderKey(f.Name)
		s.header[name] = append(s.header[name], f.Value)
	}
}

// Answer waits for the whole answer.
func (s *H3Stream) Answer() (Answer, error) {
	code, header, err := s.Head()
	if err != nil {
		return Answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	body, err := io.ReadAll(s)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the body of the answer (%d): %w", code, err)
	}
	return Answer{Code: code, Header: header, Body: string(body)}, nil
}

// Do sends a request with a body and reads the whole answer.
func (c *H3) Do(tb testing.TB, fields []Field, body []byte) Answer {
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
	a, err := s.Answer()
	if err != nil {
		tb.Fatal(err)
	}
	return a
}
