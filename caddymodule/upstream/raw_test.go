package upstream

import (
	"bufio"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
)

// raw serves connections without any HTTP library; protos are the ALPN names
// offered.
func raw(t *testing.T, protos []string, serve func(*tls.Conn)) Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return rawOn(t, l, protos, serve)
}

func rawOn(t *testing.T, plain net.Listener, protos []string, serve func(*tls.Conn)) Config {
	t.Helper()
	ca := newAuthority(t, "server CA")
	l := tls.NewListener(plain, &tls.Config{
		Certificates: []tls.Certificate{*ca.issue(t, "server", 2, serverName)}, NextProtos: protos,
	})
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				serve(conn.(*tls.Conn))
			})
		}
	})
	return configFor(l.Addr(), ca)
}

// readHead reads a request's header from a raw connection.
func readHead(conn net.Conn) (string, *bufio.Reader) {
	r := bufio.NewReader(conn)
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			return head.String(), r
		}
	}
}
