package rawserver

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
)

// recorder copies what is read from a connection to the current request.
type recorder struct {
	net.Conn
	mu      sync.Mutex
	pending bytes.Buffer // bytes before the request they belong to is known
	current *Request
}

func (c *recorder) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.capture(p[:n])
	} else {
		c.pending.Write(p[:n])
	}
	return n, err
}

// begin ties the bytes read so far, and those to come, to a request.
func (c *recorder) begin(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.capture(c.pending.Bytes())
	c.pending.Reset()
	c.current = r
}

func (c *recorder) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
}

// serveH1 answers the requests of one connection. A client that pipelines
// would have bytes of its next request recorded with the one before; proxies
// do not.
func (s *Server) serveH1(tc *tls.Conn) {
	conn := &recorder{Conn: tc}
	buffered := bufio.NewReaderSize(conn, 64<<10)
	for {
		head, err := readHead(buffered)
		if err != nil {
			return
		}
		hr, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
		if err != nil {
			// What net/http refuses is kept all the same.
			r := &Request{Protocol: tc.ConnectionState().NegotiatedProtocol, Fields: fieldsOf(head)}
			conn.begin(r)
			s.record(r)
			_, _ = io.WriteString(tc, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			return
		}
		r := s.newRequest(tc, hr, fieldsOf(head))
		conn.begin(r)
		w := &Writer{h1: tc, method: hr.Method, ctx: s.ctx, buffered: buffered}
		r.body = bodyReader(hr, buffered)
		if strings.EqualFold(hr.Header.Get("Expect"), "100-continue") {
			r.body = &continueBody{w: w, Reader: r.body}
		}
		s.respond(w, r)
		if err := w.finish(); err != nil || w.hijacked || w.close || hr.Close {
			return
		}
		// The next request begins after the rest of this body.
		if _, err := io.Copy(io.Discard, r); err != nil {
			return
		}
		conn.end()
	}
}

// readHead reads up to and including the empty line.
func readHead(r *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		line, err := r.ReadSlice('\n')
		head = append(head, line...)
		if err != nil && err != bufio.ErrBufferFull {
			return nil, err
		}
		if err == nil && (string(line) == "\r\n" || string(line) == "\n") && len(head) > len(line) {
			return head, nil
		}
		if len(head) > 1<<20 {
			return nil, bufio.ErrTooLong
		}
	}
}

func fieldsOf(head []byte) []Field {
	fields := []Field{}
	for i, line := range strings.Split(strings.TrimRight(string(head), "\r\n"), "\n") {
		if i == 0 {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		fields = append(fields, Field{name, strings.Trim(value, " \t")})
	}
	return fields
}

// bodyReader frames the body of a request whose head alone was parsed.
func bodyReader(hr *http.Request, buffered *bufio.Reader) io.Reader {
	switch {
	case hr.ContentLength == 0:
		return nil
	case hr.ContentLength > 0:
		return io.LimitReader(buffered, hr.ContentLength)
	default:
		return &chunkedBody{Reader: httputil.NewChunkedReader(buffered), buffered: buffered}
	}
}

// chunkedBody also reads what follows the last chunk: trailers, empty line.
type chunkedBody struct {
	io.Reader
	buffered *bufio.Reader
	done     bool
}

func (b *chunkedBody) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.Reader.Read(p)
	if err != io.EOF {
		return n, err
	}
	b.done = true
	for {
		line, err := b.buffered.ReadSlice('\n')
		if err != nil {
			return n, err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return n, io.EOF
		}
	}
}

// continueBody sends 100 Continue when the handler wants the body.
type continueBody struct {
	w *Writer
	io.Reader
	sent bool
}

func (b *continueBody) Read(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		b.w.Raw([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
	}
	return b.Reader.Read(p)
}
