package rawserver

import (
	"crypto/tls"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// serveH2 answers the requests of one HTTP/2 connection.
func (s *Server) serveH2(tc *tls.Conn) {
	server := &http2.Server{MaxConcurrentStreams: 1000, IdleTimeout: 0}
	server.ServeConn(tc, &http2.ServeConnOpts{
		Context:    s.ctx,
		BaseConfig: &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: discardLog},
		Handler:    s.netHTTPHandler(tc),
	})
}

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
