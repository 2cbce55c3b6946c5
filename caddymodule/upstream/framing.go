package upstream

import (
	"bytes"
	"encoding/binary"
	"mime"
	"net/http"
)

// framer follows the frames of a stream, so that the proxy can end the stream
// between two frames: a client that reads half an event reports a broken watch,
// and a close frame inside another WebSocket frame is data.
type framer struct {
	mode framing
	// need is how many bytes of the current frame's payload are missing.
	need uint64
	// head is what was read of the current frame's header, nhead bytes.
	head  [14]byte
	nhead int
	// partial says that a line has begun.
	partial bool
	// sawClose says that a WebSocket close frame began.
	sawClose bool
}

type framing uint8

const (
	// unframed has a boundary everywhere.
	unframed framing = iota
	// lines is one event in each line: JSON watches and logs.
	lines
	// lengthPrefixed is four bytes of length, big endian, before each event:
	// protobuf watches (k8s.io/apimachinery/pkg/util/framer).
	lengthPrefixed
	// webSocket is RFC 6455 section 5.2.
	webSocket
	// spdy is SPDY/3.1: eight bytes, of which the last three are the length.
	spdy
)

// framingOf says how the events of a watch are separated.
func framingOf(h http.Header) framing {
	if h.Get("Content-Encoding") != "" {
		return unframed
	}
	mediaType, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil:
		return unframed
	case mediaType == "application/vnd.kubernetes.protobuf":
		return lengthPrefixed
	case mediaType == "application/json", mediaType == "text/plain":
		return lines
	}
	return unframed
}

// atBoundary reports whether the bytes so far end with a complete frame.
func (f *framer) atBoundary() bool {
	return f.need == 0 && f.nhead == 0 && !f.partial
}

// scan reads all of p.
func (f *framer) scan(p []byte) {
	switch f.mode {
	case unframed:
	case lines:
		if len(p) > 0 {
			f.partial = p[len(p)-1] != '\n'
		}
	default:
		for len(p) > 0 {
			p = p[f.step(p):]
		}
	}
}

// scanToBoundary reads p up to the first boundary and returns how many bytes that
// is: none when f is at a boundary already, all of p when it has no boundary.
func (f *framer) scanToBoundary(p []byte) int {
	if f.atBoundary() {
		return 0
	}
	if f.mode == lines {
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			f.partial = false
			return i + 1
		}
		return len(p)
	}
	n := 0
	for n < len(p) {
		n += f.step(p[n:])
		if f.atBoundary() {
			break
		}
	}
	return n
}

// step reads a part of p that crosses no boundary and returns its length. p is
// not empty.
func (f *framer) step(p []byte) int {
	if f.need > 0 {
		n := min(uint64(len(p)), f.need)
		f.need -= n
		return int(n)
	}
	f.head[f.nhead] = p[0]
	f.nhead++
	if f.nhead == f.headLength() {
		f.need = f.payload()
		f.nhead = 0
	}
	return 1
}

// headLength is the length of the header, as far as its first bytes decide it.
func (f *framer) headLength() int {
	switch f.mode {
	case lengthPrefixed:
		return 4
	case spdy:
		return spdyHeadLength
	}
	if f.nhead < 2 {
		return 2
	}
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4 // masking key
	}
	return n
}

// payload is the length that the complete header announces.
func (f *framer) payload() uint64 {
	switch f.mode {
	case lengthPrefixed:
		return uint64(binary.BigEndian.Uint32(f.head[:4]))
	case spdy:
		return uint64(binary.BigEndian.Uint32(f.head[4:]) & spdyMaxLength)
	}
	if f.head[0]&0x0f == closeOpcode {
		f.sawClose = true
	}
	switch n := f.head[1] & 0x7f; n {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.head[2:4]))
	case 127:
		return binary.BigEndian.Uint64(f.head[2:10])
	default:
		return uint64(n)
	}
}

const (
	closeOpcode = 0x8
	finalBit    = 0x80
	maskBit     = 0x80
	// goingAway is 1001 (RFC 6455 section 7.4.1).
	goingAwayHigh, goingAwayLow = 1001 >> 8, 1001 & 0xff
)

// closeFrame is the close frame of a server that goes away.
var closeFrame = [...]byte{finalBit | closeOpcode, 2, goingAwayHigh, goingAwayLow}

// maskedCloseFrame is the close frame of a client that goes away.
func maskedCloseFrame(key [4]byte) []byte {
	return []byte{
		finalBit | closeOpcode, maskBit | 2, key[0], key[1], key[2], key[3],
		goingAwayHigh ^ key[0], goingAwayLow ^ key[1],
	}
}
