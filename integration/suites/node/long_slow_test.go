//go:build long

package node

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// headerTimeout is read_header of the examples, and of the proxies of the tests.
const headerTimeout = 10 * time.Second

// testSlowClients opens sockets that send one byte in five seconds, each in a
// phase before there is a request. All are closed by the header timeout, and other
// requests stay quick.
func testSlowClients(t *testing.T, b *busy) {
	const pause, late, quick = 5 * time.Second, 10 * time.Second, 500 * time.Millisecond
	var running sync.WaitGroup
	for _, phase := range []struct {
		name    string
		sockets int
		// protocol of TLS; without one the handshake itself is slow.
		protocol, bytes string
	}{
		{"request header", 200, "http/1.1", "GET /clusters/" + tenant + "/front/api HTTP/1.1\r\n"},
		{"HTTP/2 preface", 50, "h2", http2.ClientPreface},
		{"TLS handshake", 50, "", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
	} {
		for range phase.sockets {
			conn, err := dialSlow(t.Context(), b, phase.protocol)
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				defer conn.Close()
				if open := openFor(conn, phase.bytes, pause); open < headerTimeout/2 || open > headerTimeout+late {
					t.Errorf("a socket that is slow with its %s was open for %s", phase.name, open)
				}
			})
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		running.Wait()
	}()
	took := requestsUntil(t, b, closed)
	slices.Sort(took)
	if median := took[len(took)/2]; median > quick {
		t.Errorf("half of the requests took more than %s", median)
	}
	t.Logf("%d requests meanwhile took %s, %s at most", len(took), took[len(took)/2], took[len(took)-1])
}

// dialSlow connects, with a TLS handshake when there is a protocol to speak.
func dialSlow(ctx context.Context, b *busy, protocol string) (net.Conn, error) {
	conn, err := b.node.Namespaces.DialContext(ctx, "tcp", b.px.Host)
	if err != nil || protocol == "" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: b.px.CA.Pool(), ServerName: "localhost", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12})
	return secure, secure.HandshakeContext(ctx)
}

// openFor sends one byte after the other, and returns after what time the server
// closed the connection.
func openFor(conn net.Conn, bytes string, pause time.Duration) time.Duration {
	start := time.Now()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn) // an HTTP/2 server speaks first
	}()
	for i := 0; ; i++ {
		if _, err := io.WriteString(conn, bytes[i%len(bytes):][:1]); err != nil {
			return time.Since(start)
		}
		select {
		case <-closed:
			return time.Since(start)
		case <-time.After(pause):
		}
	}
}

// requestsUntil makes one request after the other, on new connections and on
// one that is kept, and returns how long each took.
func requestsUntil(t *testing.T, b *busy, closed <-chan struct{}) (took []time.Duration) {
	t.Helper()
	kept := b.px.Client("h2")
	defer kept.CloseIdleConnections()
	for {
		fresh := b.px.Client("h1")
		for _, client := range []*http.Client{kept, fresh} {
			start := time.Now()
			if r := kube.MustWhoAmI(t, client, b.px.ClusterURL(tenant, "front"), kube.Bearer(b.idp.Token(oidc.Alice, nil))); r.Code != http.StatusCreated {
				t.Fatalf("%+v", r)
			}
			took = append(took, time.Since(start))
		}
		fresh.CloseIdleConnections()
		select {
		case <-closed:
			return took
		case <-time.After(100 * time.Millisecond):
		}
	}
}
