// Package rawclient writes requests as bytes (HTTP/1.1) and as header fields
// (HTTP/2, HTTP/3) that no client library would send: doubled, misspelt, folded,
// forbidden ones.
package rawclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Timeout bounds the connection and each wait for an answer, unless a deadline
// is set on the connection.
const Timeout = 20 * time.Second

// Conn is a TLS connection on which HTTP/1.1 is written byte by byte.
type Conn struct {
	net.Conn
	R *bufio.Reader
}

// Dial connects with ALPN http/1.1. serverName is the name to verify and the
// SNI; empty is the host of addr.
func Dial(ctx context.Context, addr, serverName string, roots *x509.CertPool, certs ...tls.Certificate) (*Conn, error) {
	c, err := dial(ctx, addr, serverName, roots, "http/1.1", certs)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, R: bufio.NewReader(c)}, nil
}

func dial(ctx context.Context, addr, serverName string, roots *x509.CertPool, protocol string, certs []tls.Certificate) (*tls.Conn, error) {
	if serverName == "" {
		serverName, _, _ = net.SplitHostPort(addr)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	cfg := &tls.Config{RootCAs: roots, ServerName: serverName, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12}
	if len(certs) > 0 {
		// Presented whatever CAs the server says it accepts.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
	}
	d := tls.Dialer{Config: cfg}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return c.(*tls.Conn), nil
}

// MustDial is Dial for a test, which closes the connection at its end.
func MustDial(tb testing.TB, addr string, roots *x509.CertPool) *Conn {
	tb.Helper()
	c, err := Dial(tb.Context(), addr, "", roots)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// Request is the bytes of a request head: the lines are written as they are,
// and only Host is added when no line begins with it.
func Request(method, target, host string, lines ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", method, target)
	hasHost := false
	for _, l := range lines {
		hasHost = hasHost || strings.HasPrefix(strings.ToLower(l), "host:")
	}
	if !hasHost {
		fmt.Fprintf(&b, "Host: %s\r\n", host)
	}
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// Send writes bytes.
func (c *Conn) Send(p []byte) error {
	_, err := c.Write(p)
	return err
}

// CloseWrite ends the sending half.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Head reads the head of one answer; its body is read from the response. After
// a 101 the stream is read from c.R and written to c.
func (c *Conn) Head(method string) (*http.Response, error) {
	_ = c.SetReadDeadline(time.Now().Add(Timeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	return http.ReadResponse(c.R, &http.Request{Method: method})
}

// Answer is a response with its whole body.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
}

// Do sends bytes on a connection of its own and reads one answer.
func Do(tb testing.TB, addr string, roots *x509.CertPool, request []byte) Answer {
	tb.Helper()
	c := MustDial(tb, addr, roots)
	defer c.Close()
	return c.Do(tb, request)
}

// Do sends bytes and reads one answer.
func (c *Conn) Do(tb testing.TB, request []byte) Answer {
	tb.Helper()
	if err := c.Send(request); err != nil {
		tb.Fatalf("sending the request: %v", err)
	}
	method, _, _ := strings.Cut(string(request), " ")
	_ = c.SetReadDeadline(time.Now().Add(Timeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	resp, err := http.ReadResponse(c.R, &http.Request{Method: method})
	if err != nil {
		tb.Fatalf("reading the answer: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return Answer{Code: resp.StatusCode, Header: resp.Header}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatalf("reading the body of the answer (%d): %v", resp.StatusCode, err)
	}
	return Answer{Code: resp.StatusCode, Header: resp.Header, Body: string(body)}
}
