package lifecycle

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
)

// STREAM-1: a connection that was accepted before a reload and speaks HTTP/2 only
// after it is unknown to the server that stops. It must not stay with a
// configuration that is not in force any more.
func TestSTREAM1LateConnection(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	waitCode(t, px, "cluster-a", http.StatusOK)

	prompt, late, http1 := dialTCP(t, px), dialTCP(t, px), dialTCP(t, px)
	eventually(t, "the connections are accepted", patience, func() error {
		if n := countGoroutines(t, px, "tls.(*Conn).readClientHello"); n < 3 {
			return fmt.Errorf("%d of 3", n)
		}
		return nil
	})
	reload(t, px, func(o *proxy.Options) { o.AllowedModes = []string{"Passthrough"} })
	reloaded := time.Now()
	if a := get(t, px, "cluster-a"); a.Code != http.StatusServiceUnavailable {
		t.Fatalf("the new configuration answers %d", a.Code)
	}
	idle := handshake(t, px, late)
	defer idle.Close()

	// A fact of net/http, which docs/streams.md tells users: whoever changes the
	// first request of such a connection into an answer can take that out.
	t.Run("HTTP/1.1", func(t *testing.T) {
		c := &rawclient.Conn{Conn: secure(t, px, http1, "http/1.1")}
		c.R = bufio.NewReader(c.Conn)
		if err := c.Send(rawclient.Request("GET", target("cluster-a", getPath), px.Host, "Authorization: Bearer "+token())); err != nil {
			t.Fatal(err)
		}
		if res, err := c.Head("GET"); err == nil {
			t.Errorf("answered %s", res.Status)
		}
	})
	t.Run("at once", func(t *testing.T) {
		cc := handshake(t, px, prompt)
		defer cc.Close()
		if code, body := askOn(t, px, cc); code != http.StatusOK && code != http.StatusServiceUnavailable {
			t.Errorf("answered %d %s", code, body)
		}
		eventually(t, "the client is told to leave", patience, func() error {
			if cc.Err() == nil && cc.Available() > 0 {
				return errors.New("it may go on")
			}
			return nil
		})
	})
	t.Run("later", func(t *testing.T) {
		time.Sleep(time.Until(reloaded.Add(6 * time.Second)))
		if code, body := askOn(t, px, idle); code != http.StatusServiceUnavailable {
			t.Errorf("answered %d %s", code, body)
		}
	})
}

// dialTCP opens a connection and sends nothing.
func dialTCP(t *testing.T, px *proxy.Proxy) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", px.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// handshake begins HTTP/2 on a connection.
func handshake(t *testing.T, px *proxy.Proxy, raw net.Conn) *http.ClientConn {
	t.Helper()
	transport := &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return secure(t, px, raw, "h2"), nil },
		Protocols:      new(http.Protocols),
	}
	transport.Protocols.SetHTTP2(true)
	cc, err := transport.NewClientConn(t.Context(), "https", px.Host)
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

func secure(t *testing.T, px *proxy.Proxy, raw net.Conn, protocol string) *tls.Conn {
	t.Helper()
	host, _, _ := net.SplitHostPort(px.Host)
	c := tls.Client(raw, &tls.Config{RootCAs: px.CA.Pool(), ServerName: host, NextProtos: []string{protocol}})
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func askOn(t *testing.T, px *proxy.Proxy, cc *http.ClientConn) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.URL+target("cluster-a", getPath), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token())
	res, err := cc.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
