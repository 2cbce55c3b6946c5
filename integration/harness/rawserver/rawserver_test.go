package rawserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

func dialH1(t *testing.T, s *rawserver.Server, pair *pki.KeyPair) *rawclient.Conn {
	t.Helper()
	c, err := rawclient.Dial(t.Context(), s.Host, "", s.ServerCA.Pool(), pair.TLS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialH2(t *testing.T, s *rawserver.Server, pair *pki.KeyPair) *rawclient.H2 {
	t.Helper()
	c, err := rawclient.DialH2(t.Context(), s.Host, "", s.ServerCA.Pool(), pair.TLS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRecordsAndJudges(t *testing.T) {
	s := rawserver.Start(t, rawserver.Options{})
	good := s.FrontProxy(7)
	tests := []struct {
		name  string
		pair  *pki.KeyPair
		lines []string
		want  *rawserver.Identity
	}{
		{"front proxy", good, []string{"X-Remote-User: t:alice", "x-remote-GROUP: t:dev", "X-Remote-Group: CN=ops,OU=eu", "X-Remote-Extra-Example.test%2fA: v"},
			&rawserver.Identity{User: "t:alice", Groups: []string{"t:dev", "CN=ops,OU=eu"}, Extra: map[string][]string{"example.test/a": {"v"}}}},
		{"underscores do not count", good, []string{"X_Remote_User: root"}, nil},
		{"empty user", good, []string{"X-Remote-User: "}, nil},
		{"another name", pki.Must(s.FrontProxyCA.Client("other")), []string{"X-Remote-User: alice"}, nil},
		{"another CA", pki.Must(pki.MustCA("x").Client(rawserver.FrontProxyName)), []string{"X-Remote-User: alice"}, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s.Reset()
			raw := rawclient.Request("GET", "/api//v1/%7Bx%7D?a=b", s.Host, tc.lines...)
			answer := dialH1(t, s, tc.pair).Do(t, raw)
			if want := map[bool]int{true: 200, false: 401}[tc.want != nil]; answer.Code != want {
				t.Errorf("code %d, want %d", answer.Code, want)
			}
			r := s.Only(t)
			if diff := cmp.Diff(tc.want, r.Identity); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
			if !bytes.Equal(r.Raw(), raw) {
				t.Errorf("raw bytes %q", r.Raw())
			}
			if r.Target != "/api//v1/%7Bx%7D?a=b" || r.Protocol != "http/1.1" {
				t.Errorf("%s over %q", r.Target, r.Protocol)
			}
		})
	}
	t.Run("h2", func(t *testing.T) {
		s.Reset()
		c := dialH2(t, s, good)
		answer := c.Do(t, rawclient.Fields("GET", s.Host, "/api/v1/pods",
			rawclient.Field{Name: "x-remote-user", Value: "t:élodie"}, rawclient.Field{Name: "x-remote-group", Value: "a"}, rawclient.Field{Name: "x-remote-group", Value: "b,c"}), nil)
		r := s.Only(t)
		if answer.Code != 200 || r.Protocol != "h2" || r.Serial.Int64() != 7 {
			t.Errorf("%d over %s, serial %s", answer.Code, r.Protocol, r.Serial)
		}
		if diff := cmp.Diff(&rawserver.Identity{User: "élodie", Groups: []string{"!a", "!b,c"}, Extra: map[string][]string{}}, r.Identity.Unprefixed("t:")); diff != "" {
			t.Errorf("identity (-want +got):\n%s", diff)
		}
		if got := r.Lines("X-Remote-Group"); !cmp.Equal(got, []string{"a", "b,c"}) {
			t.Errorf("lines %q", got)
		}
	})
	t.Run("a client library forbids what this one sends", func(t *testing.T) {
		// An upper-case name is malformed on HTTP/2: the server resets.
		st, err := dialH2(t, s, good).Open(rawclient.Fields("GET", s.Host, "/", rawclient.Field{Name: "X-Remote-User", Value: "x"}), true)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := st.Head(); err == nil {
			t.Error("an upper-case field name was accepted")
		}
	})
	t.Run("probes are answered apart", func(t *testing.T) {
		s.Reset()
		c := dialH1(t, s, good)
		body := `{}`
		a := c.Do(t, append(rawclient.Request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", s.Host, "X-Remote-User: t:proxyauth-probe", "Content-Length: 2"), body...))
		if a.Code != 201 || !strings.Contains(a.Body, `"username":"t:proxyauth-probe"`) {
			t.Errorf("%+v", a)
		}
		if len(s.Requests()) != 0 || len(s.AllRequests()) != 1 {
			t.Error("the probe is among the requests")
		}
	})
}

func TestBodies(t *testing.T) {
	s := rawserver.Start(t, rawserver.Options{NoIdentity: true, Handler: rawserver.Answer(200, "text/plain", []byte("ok"))})
	c := rawclient.MustDial(t, s.Host, s.ServerCA.Pool())
	one := append(rawclient.Request("POST", "/one", s.Host, "Content-Length: 5"), "hello"...)
	two := append(rawclient.Request("POST", "/two", s.Host, "Transfer-Encoding: chunked"), "5\r\nhello\r\n1\r\n!\r\n0\r\nX-Trailer: 1\r\n\r\n"...)
	for _, raw := range [][]byte{one, two, one} {
		if a := c.Do(t, raw); a.Code != 200 || a.Body != "ok" {
			t.Fatalf("%+v", a)
		}
	}
	got := s.Requests()
	for i, want := range [][]byte{one, two, one} {
		if !bytes.Equal(got[i].Raw(), want) {
			t.Errorf("request %d: %q", i, got[i].Raw())
		}
	}
	if got[1].BodyBytes() != 6 || s.Connections() != 1 {
		t.Errorf("%d bytes of body on %d connections", got[1].BodyBytes(), s.Connections())
	}
	t.Run("expect", func(t *testing.T) {
		if err := c.Send(rawclient.Request("POST", "/three", s.Host, "Content-Length: 2", "Expect: 100-continue")); err != nil {
			t.Fatal(err)
		}
		if r, err := c.Head("POST"); err != nil || r.StatusCode != 100 {
			t.Fatalf("%v, %v", r, err)
		}
		if a := c.Do(t, []byte("hi")); a.Code != 200 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("big ones over h2", func(t *testing.T) {
		const size = 5 << 20
		s.Handle(rawserver.Big(size))
		h2 := rawclient.MustDialH2(t, s.Host, s.ServerCA.Pool())
		a := h2.Do(t, rawclient.Fields("POST", s.Host, "/big"), make([]byte, size))
		if len(a.Body) != size {
			t.Errorf("%d bytes came back", len(a.Body))
		}
		all := s.Requests()
		if n := all[len(all)-1].BodyBytes(); n != size {
			t.Errorf("%d bytes arrived", n)
		}
	})
}

func TestResponders(t *testing.T) {
	s := rawserver.Start(t, rawserver.Options{NoIdentity: true})
	roots := s.ServerCA.Pool()
	get := rawclient.Request("GET", "/x", s.Host)

	t.Run("stream", func(t *testing.T) {
		for _, proto := range []string{"http/1.1", "h2"} {
			events := make(chan string)
			s.Handle(rawserver.Feed("application/json", events))
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: proto == "h2"}}
			resp, err := client.Get(s.URL + "/x") // returns: the header is there before any event
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"one", "two"} {
				events <- want
				got := make([]byte, 3)
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v", proto, got, err)
				}
			}
			close(events)
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
				t.Errorf("%s: the end: %q, %v", proto, rest, err)
			}
			client.CloseIdleConnections()
		}
	})
	t.Run("raw", func(t *testing.T) {
		s.Handle(rawserver.Raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: nonsense\r\nConnection: Upgrade\r\n\r\n"))
		if a := rawclient.Do(t, s.Host, roots, get); a.Code != 101 || a.Header.Get("Upgrade") != "nonsense" {
			t.Errorf("%+v", a)
		}
	})
	t.Run("redirect", func(t *testing.T) {
		s.Handle(rawserver.Redirect(307, "https://elsewhere.example.test/"))
		if a := rawclient.Do(t, s.Host, roots, get); a.Code != 307 || a.Header.Get("Location") == "" {
			t.Errorf("%+v", a)
		}
	})
	t.Run("abort", func(t *testing.T) {
		s.Handle(func(w *rawserver.Writer, _ *rawserver.Request) { w.Abort() })
		for range 2 {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
			if resp, err := client.Post(s.URL, "", strings.NewReader("x")); err == nil {
				resp.Body.Close()
				t.Error("an answer came")
			}
			client.CloseIdleConnections()
		}
	})
	t.Run("hang", func(t *testing.T) {
		s.Handle(rawserver.Hang)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
		if _, err := client.Do(req); err == nil {
			t.Error("an answer came")
		}
	})
	t.Run("goaway", func(t *testing.T) {
		s.Handle(nil)
		s.HandleConn(rawserver.GoAway(2))
		defer s.HandleConn(nil)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		before := s.Connections()
		resp, err := client.Get(s.URL + "/x") // net/http tries again what was not processed
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
		if n := s.Connections() - before; n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
	})
	t.Run("down and up", func(t *testing.T) {
		s.Suspend()
		if _, err := rawclient.Dial(t.Context(), s.Host, "", roots); err == nil {
			t.Error("a stopped server takes connections")
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		if a := rawclient.Do(t, s.Host, roots, get); a.Code != 200 {
			t.Errorf("%+v", a)
		}
	})
}

func TestEcho(t *testing.T) {
	s := rawserver.Start(t, rawserver.Options{NoIdentity: true, Handler: rawserver.Echo})
	t.Run("SPDY", func(t *testing.T) {
		c := rawclient.MustDial(t, s.Host, s.ServerCA.Pool())
		a := c.Do(t, rawclient.Request("POST", "/api/v1/namespaces/x/pods/y/exec?command=sh", s.Host,
			"Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io", "X-Stream-Protocol-Version: v3.channel.k8s.io"))
		if a.Code != 101 || a.Header.Get("Upgrade") != "SPDY/3.1" || a.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
			t.Fatalf("%+v", a)
		}
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		go func() { _, _ = c.Write(sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c.R, got); err != nil || !bytes.Equal(sent, got) {
			t.Errorf("the echo differs: %v", err)
		}
		if err := c.Conn.(*tls.Conn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.R.ReadByte(); err != io.EOF {
			t.Errorf("after a half-close: %v", err)
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		ws := rawclient.MustDialWebSocket(t, s.Host, s.ServerCA.Pool(), "/x", "v5.channel.k8s.io")
		if ws.Protocol != "v5.channel.k8s.io" {
			t.Errorf("protocol %q", ws.Protocol)
		}
		for _, size := range []int{0, 1, 125, 126, 65535, 65536, 1 << 20} {
			sent := bytes.Repeat([]byte{7}, size)
			if err := ws.Send(rawclient.Binary, sent); err != nil {
				t.Fatal(err)
			}
			op, got, err := ws.Receive()
			if err != nil || op != rawclient.Binary || !bytes.Equal(sent, got) {
				t.Errorf("%d bytes: opcode %d, %d bytes, %v", size, op, len(got), err)
			}
		}
		if err := ws.Send(rawclient.Close, []byte{3, 232}); err != nil {
			t.Fatal(err)
		}
		if op, _, err := ws.Receive(); err != nil || op != rawclient.Close {
			t.Errorf("close: opcode %d, %v", op, err)
		}
	})
	t.Run("no upgrade", func(t *testing.T) {
		if a := rawclient.Do(t, s.Host, s.ServerCA.Pool(), rawclient.Request("GET", "/", s.Host)); a.Code != 400 {
			t.Errorf("%+v", a)
		}
	})
}
