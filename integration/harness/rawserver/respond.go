package rawserver

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"time"
)

// Answer responds whole: reads the request's body and sends this.
func Answer(code int, contentType string, body []byte, fields ...Field) Handler {
	return func(w *Writer, r *Request) {
		_, _ = io.Copy(io.Discard, r)
		all := append([]Field{}, fields...)
		if contentType != "" {
			all = append(all, Field{"Content-Type", contentType})
		}
		w.Respond(code, body, all...)
	}
}

// Redirect answers with that code and Location.
func Redirect(code int, location string) Handler {
	return Answer(code, "", nil, Field{"Location", location})
}

// Big answers with n zero bytes, streamed.
func Big(n int64) Handler {
	return func(w *Writer, r *Request) {
		_, _ = io.Copy(io.Discard, r)
		w.Header(http.StatusOK, Field{"Content-Type", "application/octet-stream"})
		chunk := make([]byte, 64<<10)
		for n := n; n > 0; n -= int64(len(chunk)) {
			if !w.Write(chunk[:min(int64(len(chunk)), n)]) {
				return
			}
		}
	}
}

// Hang reads the request and never answers; it ends with the connection.
func Hang(w *Writer, r *Request) {
	_, _ = io.Copy(io.Discard, r)
	if w.H1() {
		// Only reading tells that an HTTP/1.1 client is gone.
		if rw, err := w.Hijack(); err == nil {
			_, _ = io.Copy(io.Discard, rw)
		}
		return
	}
	<-w.Context().Done()
}

// Event is a part of a streamed body, sent After the one before it.
type Event struct {
	After time.Duration
	Data  string
}

// Stream sends the header at once and then each event; it ends cleanly after
// the last one.
func Stream(contentType string, events ...Event) Handler {
	return func(w *Writer, r *Request) {
		w.Header(http.StatusOK, Field{"Content-Type", contentType})
		for _, e := range events {
			select {
			case <-time.After(e.After):
			case <-w.Context().Done():
				return
			}
			if !w.Write([]byte(e.Data)) {
				return
			}
		}
	}
}

// Feed sends the header at once and then whatever the channel gives; it ends
// cleanly when the channel is closed.
func Feed(contentType string, events <-chan string) Handler {
	return func(w *Writer, r *Request) {
		w.Header(http.StatusOK, Field{"Content-Type", contentType})
		for {
			select {
			case e, ok := <-events:
				if !ok || !w.Write([]byte(e)) {
					return
				}
			case <-w.Context().Done():
				return
			}
		}
	}
}

// Raw answers with those bytes, HTTP/1.1 only, and closes: a 101 without an
// upgrade request, a 101 for another protocol, nonsense.
func Raw(response string) Handler {
	return func(w *Writer, r *Request) { w.Raw([]byte(response)) }
}

// Echo answers an upgrade with 101 and sends back what comes: bytes for
// SPDY/3.1, messages for a WebSocket. A half-close is answered by one. What is
// no upgrade gets a 400.
func Echo(w *Writer, r *Request) {
	protocol := r.Header.Get("Upgrade")
	if protocol == "" || !w.H1() {
		Answer(http.StatusBadRequest, "text/plain", []byte("no upgrade"))(w, r)
		return
	}
	rw, err := w.Hijack()
	if err != nil {
		return
	}
	fields := []Field{{"Connection", "Upgrade"}, {"Upgrade", protocol}}
	if strings.EqualFold(protocol, "websocket") {
		fields = append(fields, Field{"Sec-WebSocket-Accept", acceptKey(r.Header.Get("Sec-WebSocket-Key"))})
	}
	if offered := r.Header.Get("Sec-WebSocket-Protocol"); offered != "" {
		first, _, _ := strings.Cut(offered, ",")
		fields = append(fields, Field{"Sec-WebSocket-Protocol", strings.TrimSpace(first)})
	}
	if versions := r.Header.Values("X-Stream-Protocol-Version"); len(versions) > 0 {
		fields = append(fields, Field{"X-Stream-Protocol-Version", versions[0]})
	}
	w.Header(http.StatusSwitchingProtocols, fields...)
	if strings.EqualFold(protocol, "websocket") {
		echoMessages(rw)
	} else {
		_, _ = io.Copy(rw, rw)
	}
	_ = w.CloseWrite()
}

// acceptKey is RFC 6455, section 4.2.2.
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

const opClose = 0x8

// echoMessages sends each WebSocket frame back without its mask, and ends
// after a close frame.
func echoMessages(rw io.ReadWriter) {
	for {
		first, payload, err := readFrame(rw)
		if err != nil {
			return
		}
		if _, err := rw.Write(frame(first, payload)); err != nil || first&0xf == opClose {
			return
		}
	}
}

func readFrame(r io.Reader) (first byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	size := uint64(head[1] & 0x7f)
	if size >= 126 {
		extended := make([]byte, map[uint64]int{126: 2, 127: 8}[size])
		if _, err := io.ReadFull(r, extended); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(append(make([]byte, 8-len(extended)), extended...))
	}
	var mask [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, mask[:]); err != nil {
			return 0, nil, err
		}
	}
	if size > 64<<20 {
		return 0, nil, io.ErrShortBuffer
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0], payload, nil
}

func frame(first byte, payload []byte) []byte {
	var b bytes.Buffer
	b.WriteByte(first)
	switch n := len(payload); {
	case n < 126:
		b.WriteByte(byte(n))
	case n < 1<<16:
		b.WriteByte(126)
		_ = binary.Write(&b, binary.BigEndian, uint16(n))
	default:
		b.WriteByte(127)
		_ = binary.Write(&b, binary.BigEndian, uint64(n))
	}
	b.Write(payload)
	return b.Bytes()
}
