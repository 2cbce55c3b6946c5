package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"golang.org/x/net/http2"
)

// RELAY-4: a 101 that the client did not ask for, or for another protocol.
func TestUnexpectedSwitch(t *testing.T) {
	tests := map[string]struct {
		upgrade, answer string
		ok              bool
	}{
		"not asked for":        {"", "Connection: Upgrade\r\nUpgrade: websocket\r\n", false},
		"not asked, no header": {"", "", false},
		"another protocol":     {"SPDY/3.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", false},
		"two protocols":        {"websocket", "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", false},
		"no upgrade header":    {"websocket", "Connection: Upgrade\r\n", false},
		"no connection header": {"websocket", "Upgrade: websocket\r\n", false},
		"asked for":            {"websocket", "Connection: upgrade\r\nUpgrade: WebSocket\r\n", true},
		"SPDY":                 {"SPDY/3.1", "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := raw(t, nil, func(conn *tls.Conn) {
				readHead(conn)
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+tt.answer+"\r\n")
				io.Copy(io.Discard, conn)
			})
			p := pair(t, c)
			r := request(t, c, "GET", "/", nil)
			if tt.upgrade != "" {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", tt.upgrade)
			}
			res, err := p.RoundTrip(r)
			if tt.ok {
				if err != nil || res.StatusCode != 101 {
					t.Fatalf("RoundTrip: %v", err)
				}
				res.Body.Close()
			} else if !errors.Is(err, ErrUnexpectedSwitch) {
				t.Errorf("RoundTrip: %v", err)
			}
			eventually(t, "closing the connection", func() bool { return p.Connections() == 0 })
		})
	}
}

// RELAY-4: on HTTP/2 a 101 is no response but, to net/http, an informational
// one, which must not reach the client either.
func TestSwitchOverHTTP2(t *testing.T) {
	c := raw(t, []string{"h2"}, func(conn *tls.Conn) {
		f := newH2Conn(conn)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok {
				f.respond(h.StreamID, "101", false)
				f.respond(h.StreamID, "200", true)
			}
		}
	})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			t.Errorf("the client hears of a %d", code)
			return nil
		},
	})
	_, err := pair(t, c).RoundTrip(request(t, c, "GET", "/", nil).WithContext(ctx))
	if !errors.Is(err, ErrUnexpectedSwitch) {
		t.Errorf("RoundTrip: %v", err)
	}
}

// The hooks of Caddy's client trace go on, and hear of no informational answer.
func TestClientTrace(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
	})
	var codes []int
	got := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { codes = append(codes, code); return nil },
		GotConn:        func(httptrace.GotConnInfo) { got = true },
	})
	type keyType struct{}
	ctx = context.WithValue(ctx, keyType{}, 1)
	guarded := guard(ctx)
	if guarded.Value(keyType{}) != 1 {
		t.Error("the context lost a value")
	}
	do(t, pair(t, s.config), request(t, s.config, "GET", "/", nil).WithContext(ctx))
	if !got || len(codes) != 0 {
		t.Errorf("hooks: connection %t, codes %v", got, codes)
	}
	err := httptrace.ContextClientTrace(guarded).Got1xxResponse(101, nil)
	if !errors.Is(err, ErrUnexpectedSwitch) || len(codes) != 0 {
		t.Errorf("101: %v, codes %v", err, codes)
	}
	for i := range maxInformational + 1 {
		if err := httptrace.ContextClientTrace(guarded).Got1xxResponse(103, nil); (err != nil) != (i == maxInformational) {
			t.Errorf("answer %d: %v", i, err)
		}
	}
}

// RELAY-2: the client's half-close reaches the apiserver, and what the
// apiserver says after it reaches the client.
func TestHalfClose(t *testing.T) {
	c := raw(t, nil, func(conn *tls.Conn) {
		_, in := readHead(conn)
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		b, err := io.ReadAll(in)
		fmt.Fprintf(conn, "got %q, %v", b, err)
		conn.CloseWrite()
	})
	r := request(t, c, "POST", "/", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	res, err := pair(t, c).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	NewRegistry().NewGroup().Track(res, StreamOptions{Kind: Response})
	rwc := res.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	defer rwc.Close()
	io.WriteString(rwc, "stdin")
	if err := rwc.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(rwc); string(b) != `got "stdin", <nil>` || err != nil {
		t.Errorf("after half-close: %q, %v", b, err)
	}
}

func BenchmarkOutgoing(b *testing.B) {
	ctx := httptrace.WithClientTrace(b.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil },
	})
	r := request(b, Config{}, "GET", "/api/v1/pods", nil).WithContext(ctx)
	b.ReportAllocs()
	for b.Loop() {
		outgoing(r)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	s := newServer(b, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	p := pair(b, s.config)
	r := request(b, s.config, "GET", "/api/v1/pods", nil)
	b.ReportAllocs()
	for b.Loop() {
		do(b, p, r)
	}
}
