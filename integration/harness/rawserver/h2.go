package rawserver

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// serveH2 answers the requests of one HTTP/2 connection.
func (s *Server) serveH2(tc *tls.Conn) {
	l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: tc.LocalAddr()}
	l.conn <- tc
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	server := &http.Server{
		Handler:           s.netHTTPHandler(tc),
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(l.closed)
			}
		},
	}
	_ = server.Serve(l) // until the connection is closed
}

// oneConn is a listener that gives one connection and ends with it.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }

// GoAway makes a HandleConn function for the next n HTTP/2 connections: each
// reads one request, answers GOAWAY that says none was processed, and closes.
// The connections after them are served as usual.
func GoAway(n int) func(*RawConn) bool {
	left := make(chan struct{}, n)
	for range n {
		left <- struct{}{}
	}
	return func(c *RawConn) bool {
		if c.ConnectionState().NegotiatedProtocol != "h2" {
			return false
		}
		select {
		case <-left:
		default:
			return false
		}
		framer, err := c.Framer()
		if err != nil {
			return true
		}
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return true
			}
			switch f := frame.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					_ = framer.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				_ = framer.WriteGoAway(0, http2.ErrCodeNo, nil)
				// What the client still sends is read, so that closing does
				// not reset the connection before it has seen the frame.
				_ = c.CloseWrite()
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				_, _ = io.Copy(io.Discard, c)
				return true
			}
		}
	}
}

// Framer reads the preface of an HTTP/2 client, sends settings and gives the
// frames to the test.
func (c *RawConn) Framer() (*http2.Framer, error) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(c, c)
	return framer, framer.WriteSettings()
}
