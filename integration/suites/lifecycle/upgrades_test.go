package lifecycle

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// spdyStream is an upgraded connection that ends with a GOAWAY.
type spdyStream struct {
	*rawclient.Conn
	kind string
}

func (c session) spdy(t *testing.T, path, kind string) *spdyStream {
	t.Helper()
	version := "v4.channel.k8s.io"
	if kind == spdyForward {
		version = "portforward.k8s.io"
	}
	conn := c.dial(t)
	if err := conn.Send(rawclient.Request("POST", path, c.px.Host, "Authorization: Bearer "+c.bearer,
		"Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: "+version)); err != nil {
		t.Fatal(err)
	}
	res, err := conn.Head("POST")
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 101 {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		t.Fatalf("%s: %d %s", kind, res.StatusCode, body)
	}
	return &spdyStream{conn, kind}
}

func (s *spdyStream) alive(t *testing.T) {
	t.Helper()
	text := rand.Text()
	sent := append([]byte{0, 0, 0, 5, 0, 0, 0, byte(len(text))}, text...) // a DATA frame
	if err := s.Send(sent); err != nil {
		t.Fatalf("%s: %v", s.kind, err)
	}
	_ = s.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(s.R, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%s: sent %q, got %q, %v", s.kind, sent, got, err)
	}
}

// goAway is a GOAWAY of SPDY.
const goAway = "\x80\x03\x00\x07\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00"

func (s *spdyStream) ended(t *testing.T, within time.Duration) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(within))
	var got []byte
	for err := error(nil); err == nil && !bytes.HasSuffix(got, []byte(goAway)); {
		var b byte
		if b, err = s.R.ReadByte(); err != nil {
			t.Errorf("%s did not end with a GOAWAY in time: %q, %v", s.kind, got, err)
			return
		}
		got = append(got, b)
	}
	// A client of exec takes the end for a success unless the error stream, which
	// is the first, says otherwise.
	if failed := bytes.HasPrefix(got, []byte{0, 0, 0, 1, 1}) && bytes.Contains(got, []byte(`"status":"Failure"`)); failed != (s.kind == spdy) {
		t.Errorf("%s ended with %q", s.kind, got)
	}
	_ = s.CloseWrite()
	if _, err := s.R.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("%s: the connection is open after the GOAWAY: %v", s.kind, err)
	}
}

func (s *spdyStream) open() bool {
	_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := s.R.Peek(1)
	return isTimeout(err)
}

func (s *spdyStream) String() string { return s.kind }

// webSocket is an upgraded connection that ends with a close frame.
type webSocket struct {
	*rawclient.WebSocket
	kind string
}

func (c session) webSocket(t *testing.T, path, protocol, kind string) *webSocket {
	t.Helper()
	conn, err := rawclient.DialWebSocket(t.Context(), c.px.Host, c.px.CA.Pool(), path, protocol, "Authorization: Bearer "+c.bearer)
	if err != nil {
		t.Fatal(err)
	}
	if conn.Protocol != protocol {
		t.Fatalf("%s: the protocol is %q", kind, conn.Protocol)
	}
	return &webSocket{conn, kind}
}

func (s *webSocket) alive(t *testing.T) {
	t.Helper()
	sent := []byte(rand.Text())
	if err := s.Send(rawclient.Binary, sent); err != nil {
		t.Fatalf("%s: %v", s.kind, err)
	}
	op, got, err := s.Receive()
	if err != nil || op != rawclient.Binary || !bytes.Equal(got, sent) {
		t.Fatalf("%s: sent %q, got opcode %x %q, %v", s.kind, sent, op, got, err)
	}
}

// goingAway is the payload of a close frame with code 1001.
var goingAway = []byte{1001 >> 8, 1001 & 0xff}

func (s *webSocket) ended(t *testing.T, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	_ = s.SetReadDeadline(deadline)
	if _, err := s.R.Peek(1); err != nil {
		t.Errorf("%s did not end with a close frame in time: %v", s.kind, err)
		return
	}
	op, payload, err := s.Receive()
	if err != nil || op != rawclient.Close || !bytes.Equal(payload, goingAway) {
		t.Errorf("%s did not end with a close frame: opcode %x %q, %v", s.kind, op, payload, err)
		return
	}
	_ = s.Send(rawclient.Close, goingAway)
	// Answered, the connection need not wait for anything.
	_ = s.SetReadDeadline(deadline)
	if _, err := s.R.ReadByte(); err == nil || isTimeout(err) {
		t.Errorf("%s: the connection is open after both close frames: %v", s.kind, err)
	}
}

func (s *webSocket) open() bool {
	_ = s.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := s.R.Peek(1)
	return isTimeout(err)
}

func (s *webSocket) String() string { return s.kind }

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
