package rawclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// Opcode is a WebSocket opcode (RFC 6455, section 5.2).
type Opcode byte

// The opcodes.
const (
	Text   Opcode = 0x1
	Binary Opcode = 0x2
	Close  Opcode = 0x8
	Ping   Opcode = 0x9
	Pong   Opcode = 0xa
)

// WebSocket is a client's end, one frame a message.
type WebSocket struct {
	*Conn
	// Protocol is the subprotocol the server chose.
	Protocol string
}

// UpgradeLines are the header lines that ask for a WebSocket.
func UpgradeLines(lines ...string) []string {
	key := make([]byte, 16)
	_, _ = rand.Read(key)
	return append([]string{
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: " + base64.StdEncoding.EncodeToString(key),
	}, lines...)
}

// ErrNoUpgrade wraps the answer to an upgrade that was refused.
var ErrNoUpgrade = errors.New("no upgrade")

// DialWebSocket opens a WebSocket; lines are further header lines.
func DialWebSocket(ctx context.Context, addr string, roots *x509.CertPool, target, protocols string, lines ...string) (*WebSocket, error) {
	c, err := Dial(ctx, addr, "", roots)
	if err != nil {
		return nil, err
	}
	if protocols != "" {
		lines = append([]string{"Sec-WebSocket-Protocol: " + protocols}, lines...)
	}
	if err := c.Send(Request("GET", target, addr, UpgradeLines(lines...)...)); err != nil {
		c.Close()
		return nil, err
	}
	resp, err := c.Head("GET")
	if err != nil {
		c.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		c.Close()
		return nil, fmt.Errorf("%w: %s: %s", ErrNoUpgrade, resp.Status, body)
	}
	return &WebSocket{Conn: c, Protocol: resp.Header.Get("Sec-WebSocket-Protocol")}, nil
}

// MustDialWebSocket is DialWebSocket for a test.
func MustDialWebSocket(tb testing.TB, addr string, roots *x509.CertPool, target, protocols string, lines ...string) *WebSocket {
	tb.Helper()
	ws, err := DialWebSocket(tb.Context(), addr, roots, target, protocols, lines...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ws.Close() })
	return ws
}

// Send sends one final, masked frame.
func (ws *WebSocket) Send(op Opcode, payload []byte) error {
	var b bytes.Buffer
	b.WriteByte(0x80 | byte(op))
	switch n := len(payload); {
	case n < 126:
		b.WriteByte(0x80 | byte(n))
	case n < 1<<16:
		b.WriteByte(0x80 | 126)
		_ = binary.Write(&b, binary.BigEndian, uint16(n))
	default:
		b.WriteByte(0x80 | 127)
		_ = binary.Write(&b, binary.BigEndian, uint64(n))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:])
	b.Write(mask[:])
	for i, c := range payload {
		b.WriteByte(c ^ mask[i%4])
	}
	_, err := ws.Write(b.Bytes())
	return err
}

// Receive reads one frame.
func (ws *WebSocket) Receive() (Opcode, []byte, error) {
	_ = ws.SetReadDeadline(time.Now().Add(Timeout))
	defer func() { _ = ws.SetReadDeadline(time.Time{}) }()
	head := make([]byte, 2)
	if _, err := io.ReadFull(ws.R, head); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 0x7f)
	if size >= 126 {
		extended := make([]byte, map[uint64]int{126: 2, 127: 8}[size])
		if _, err := io.ReadFull(ws.R, extended); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(append(make([]byte, 8-len(extended)), extended...))
	}
	payload := make([]byte, size)
	_, err := io.ReadFull(ws.R, payload)
	return Opcode(head[0] & 0xf), payload, err
}
