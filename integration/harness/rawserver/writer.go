package rawserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Handler answers a request. On HTTP/1.1 the connection is closed after it
// when it has written raw bytes.
type Handler func(*Writer, *Request)

// Writer writes an answer in the protocol of the request.
type Writer struct {
	ctx context.Context

	h2 http.ResponseWriter // HTTP/2

	h1       *tls.Conn // HTTP/1.1
	buffered *bufio.Reader
	method   string
	started  bool
	chunked  bool
	close    bool
	hijacked bool
	trailers []Field
	err      error
}

var errNotH1 = errors.New("only possible on HTTP/1.1")

// Context ends with the request's connection or the server.
func (w *Writer) Context() context.Context { return w.ctx }

// H1 says whether the request came over HTTP/1.1.
func (w *Writer) H1() bool { return w.h1 != nil }

// Respond answers whole, with a Content-Length.
func (w *Writer) Respond(code int, body []byte, fields ...Field) {
	fields = append(fields, Field{"Content-Length", strconv.Itoa(len(body))})
	w.Header(code, fields...)
	if w.method != http.MethodHead {
		w.Write(body)
	}
}

// Header sends status and header now. Without a Content-Length the body is
// chunked on HTTP/1.1; Write and the end of the handler do the rest.
func (w *Writer) Header(code int, fields ...Field) {
	w.started = true
	if w.h2 != nil {
		for _, f := range fields {
			w.h2.Header().Add(f.Name, f.Value)
		}
		w.h2.WriteHeader(code)
		w.Flush()
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", code, http.StatusText(code))
	w.chunked = code >= 200 && code != http.StatusNoContent && code != http.StatusNotModified && w.method != http.MethodHead
	for _, f := range fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
		if strings.EqualFold(f.Name, "Content-Length") {
			w.chunked = false
		}
		if strings.EqualFold(f.Name, "Connection") && strings.EqualFold(f.Value, "close") {
			w.close = true
		}
	}
	if w.chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	}
	b.WriteString("\r\n")
	w.raw([]byte(b.String()))
}

// Write sends a part of the body at once. It returns false when the client is
// gone, which ends a stream.
func (w *Writer) Write(p []byte) bool {
	if w.err != nil || len(p) == 0 {
		return w.err == nil
	}
	switch {
	case w.h2 != nil:
		_, w.err = w.h2.Write(p)
		w.Flush()
	case w.chunked:
		w.raw(fmt.Appendf(nil, "%x\r\n%s\r\n", len(p), p))
	default:
		w.raw(p)
	}
	return w.err == nil
}

// Trailers come after a body without a Content-Length.
func (w *Writer) Trailers(fields ...Field) {
	w.trailers = append(w.trailers, fields...)
	if w.h2 != nil {
		for _, f := range fields {
			w.h2.Header().Add(http.TrailerPrefix+f.Name, f.Value)
		}
	}
}

// Flush sends what HTTP/2 holds back.
func (w *Writer) Flush() {
	if w.h2 != nil {
		if err := http.NewResponseController(w.h2).Flush(); err != nil && w.err == nil {
			w.err = err
		}
	}
}

// Raw writes bytes as they are, HTTP/1.1 only, and closes the connection when
// the handler returns, unless they are an interim answer.
func (w *Writer) Raw(p []byte) {
	if w.h1 == nil {
		w.err = errNotH1
		return
	}
	if !strings.HasPrefix(string(p), "HTTP/1.1 100") {
		w.started, w.close = true, true
	}
	w.raw(p)
}

// Abort drops the connection (HTTP/1.1) or resets the stream (HTTP/2).
func (w *Writer) Abort() {
	if w.h2 != nil {
		panic(http.ErrAbortHandler)
	}
	w.started, w.close = true, true
	w.h1.NetConn().Close()
}

// Hijack gives the connection to the handler, HTTP/1.1 only; it ends when the
// handler returns.
func (w *Writer) Hijack() (io.ReadWriter, error) {
	if w.h1 == nil {
		return nil, errNotH1
	}
	w.started, w.hijacked = true, true
	return struct {
		io.Reader
		io.Writer
	}{w.buffered, w.h1}, nil
}

// CloseWrite ends the sending half of a hijacked connection.
func (w *Writer) CloseWrite() error {
	if w.h1 == nil {
		return errNotH1
	}
	return w.h1.CloseWrite()
}

func (w *Writer) raw(p []byte) {
	if w.err == nil {
		_, w.err = w.h1.Write(p)
	}
}

// finish ends an HTTP/1.1 answer; a handler that wrote nothing gave 200.
func (w *Writer) finish() error {
	if !w.started {
		w.Respond(http.StatusOK, nil)
	}
	if w.chunked {
		end := []byte("0\r\n")
		for _, f := range w.trailers {
			end = fmt.Appendf(end, "%s: %s\r\n", f.Name, f.Value)
		}
		w.raw(append(end, "\r\n"...))
	}
	return w.err
}
