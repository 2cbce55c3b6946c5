package upstream

import "encoding/binary"

// Parts of SPDY/3.1 frames (draft-mbelshe-httpbis-spdy-00 section 2.2).
const (
	spdyHeadLength   = 8
	spdyMaxLength    = 1<<24 - 1
	spdyControl      = 1 << 31
	spdyVersion      = 3
	spdyTypeGoAway   = 7
	spdyFlagFin      = 1
	spdyErrorStream  = 1
	spdyErrorVersion = "v4.channel.k8s.io"
)

// spdyFailure is what the error stream of a command says when the proxy ends it:
// without it, kubectl takes an exec that was cut for one that succeeded.
const spdyFailure = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the proxy ended the stream","reason":"ServiceUnavailable","code":503}`

// spdyFarewell is what a client is sent last. protocol is the protocol of the
// channels, as the apiserver answered it.
//
// Clients of exec and attach take the end of a connection, GOAWAY included, for a
// success unless their error stream says otherwise. It holds a Status since the
// protocol v4, and is the first stream that they open: all of them are client-go.
// A command that has ended has told its result already, and what follows is ignored.
func spdyFarewell(protocol string) []byte {
	var b []byte
	if protocol == spdyErrorVersion {
		b = binary.BigEndian.AppendUint32(b, spdyErrorStream)
		b = binary.BigEndian.AppendUint32(b, spdyFlagFin<<24|uint32(len(spdyFailure)))
		b = append(b, spdyFailure...)
	}
	b = binary.BigEndian.AppendUint32(b, spdyControl|spdyVersion<<16|spdyTypeGoAway)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint32(b, spdyErrorStream) // the last stream that was good
	return binary.BigEndian.AppendUint32(b, 0)            // OK
}
