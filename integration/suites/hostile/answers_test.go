package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// patience is far above what an answer takes that waits for nothing, and below
// any timeout of the proxy.
const patience = 8 * time.Second

// refusals are requests that never reach the shared upstreams.
func refusals() map[string]struct {
	c    call
	code int
} {
	type refusal = struct {
		c    call
		code int
	}
	return map[string]refusal{
		"no token":        {call{path: "/api"}, 401},
		"a bad token":     {call{path: "/api"}.bearer("nonsense"), 401},
		"unknown cluster": {call{target: "/clusters/team-a/none/api"}.asAlice(), 404},
		"dot segment":     {call{path: "/api/../x"}.asAlice(), 400},
		"bad identity":    {call{path: "/api"}.bearer(token(map[string]any{"preferred_username": ""})), 403},
	}
}

// ANS-3: a refusal does not wait for the request's body, and what comes of the
// body later is no request.
func TestANS3RefusedWithoutBody(t *testing.T) {
	for name, tc := range refusals() {
		for _, cluster := range []string{fpH2, ptH1} {
			up := shared.ups[cluster]
			c := tc.c
			c.cluster, c.method = cluster, "POST"
			if c.target == "" && strings.Contains(c.path, "..") {
				// The matcher of the shared proxy must see the cluster's path.
				c.path = "/api/%2e%2e/x"
				c.target = "/clusters/" + ns + "/" + cluster + "/a/b/c/../x"
			}
			smuggled := "GET /clusters/" + ns + "/" + cluster + "/smuggled HTTP/1.1\r\nHost: " + shared.px.Host + "\r\nAuthorization: Bearer " + token(nil) + "\r\n\r\n"
			for framing, lines := range map[string][]string{
				"a length": {"Content-Length: 100000"}, "chunks": {"Transfer-Encoding: chunked"},
				"expecting, a length": {"Content-Length: 100000", "Expect: 100-continue"}, "expecting, chunks": {"Transfer-Encoding: chunked", "Expect: 100-continue"},
			} {
				t.Run(name+" h1 "+framing+" to "+cluster, func(t *testing.T) {
					up.Reset()
					conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
					if err := conn.Send(c.with(lines...).h1(shared.px)); err != nil {
						t.Fatal(err)
					}
					_ = conn.SetReadDeadline(time.Now().Add(patience))
					resp, err := http.ReadResponse(conn.R, &http.Request{Method: "POST"})
					if err != nil {
						t.Fatalf("no answer before the body: %v", err)
					}
					body, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Fatal(err)
					}
					if resp.StatusCode == http.StatusContinue {
						t.Fatal("the client was told to send its body")
					}
					wantStatus(t, rawclient.Answer{Code: resp.StatusCode, Header: resp.Header, Body: string(body)}, tc.code, "")
					if !resp.Close {
						t.Error("the connection is to be used again, with a body outstanding")
					}
					_ = conn.Send([]byte(smuggled + smuggled))
					_ = conn.CloseWrite()
					if rest, _ := io.ReadAll(conn.R); strings.Contains(string(rest), "HTTP/1.1") {
						t.Errorf("the body was answered: %q", rest)
					}
					up.None(t)
				})
			}
			for _, lines := range [][]string{{"content-length: 100000"}, nil, {"expect: 100-continue"}} {
				t.Run(name+" h2 "+strings.Join(lines, "")+" to "+cluster, func(t *testing.T) {
					up.Reset()
					conn := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool())
					s, err := conn.Open(c.with(lines...).h2(shared.px), false)
					if err != nil {
						t.Fatal(err)
					}
					start := time.Now()
					code, header, err := s.Head()
					if err != nil || time.Since(start) > patience {
						t.Fatalf("no answer before the body: %v", err)
					}
					body, err := io.ReadAll(s)
					if err != nil {
						t.Fatal(err)
					}
					wantStatus(t, rawclient.Answer{Code: code, Header: header, Body: string(body)}, tc.code, "")
					// Other streams of the connection go on.
					if a := conn.Do(t, call{cluster: fpH2, path: "/api"}.asAlice().h2(shared.px), nil); a.Code != http.StatusOK {
						t.Errorf("the next request: %d", a.Code)
					}
				})
			}
		}
	}
}

// ANS-3 while the client is sending: it gets its answer and is not left
// writing into nothing.
func TestANS3RefusedWhileSending(t *testing.T) {
	for name, tc := range refusals() {
		if tc.c.path == "/api/../x" {
			continue // above
		}
		c := tc.c
		c.cluster, c.method = fpH2, "POST"
		chunk := make([]byte, 64<<10)
		t.Run(name+" h1", func(t *testing.T) {
			conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			if err := conn.Send(c.with("Content-Length: 1000000000").h1(shared.px)); err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			go func() {
				for {
					if _, err := conn.Write(chunk); err != nil {
						sent <- err
						return
					}
				}
			}()
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			resp, err := http.ReadResponse(conn.R, &http.Request{Method: "POST"})
			if err != nil || resp.StatusCode != tc.code {
				t.Fatalf("%v, %+v", err, resp)
			}
			select {
			case <-sent:
			case <-time.After(patience):
				t.Error("the proxy goes on reading a body it refused")
			}
		})
		t.Run(name+" h2", func(t *testing.T) {
			s, err := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool()).Open(c.h2(shared.px), false)
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for {
					if _, err := s.Write(chunk); err != nil {
						return
					}
				}
			}()
			if code, _, err := s.Head(); err != nil || code != tc.code {
				t.Errorf("%d, %v", code, err)
			}
			select {
			case <-sent:
			case <-time.After(patience):
				t.Error("the stream was not reset")
			}
		})
	}
}

// head reads the head of one answer, an interim one too.
func head(t *testing.T, conn *rawclient.Conn) int {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	r := textproto.NewReader(conn.R)
	line, err := r.ReadLine()
	if err != nil {
		t.Fatalf("reading an answer: %v", err)
	}
	var code int
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &code); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if _, err := r.ReadMIMEHeader(); err != nil {
		t.Fatalf("reading the head of a %d: %v", code, err)
	}
	return code
}

// heads reads answers up to and with the final one.
func heads(t *testing.T, conn *rawclient.Conn) (codes []int) {
	t.Helper()
	for {
		codes = append(codes, head(t, conn))
		if codes[len(codes)-1] >= 200 {
			return codes
		}
	}
}

// RELAY-4: Expect: 100-continue goes to the apiserver, whose answer decides
// whether the body is sent.
func TestRELAY4Expect(t *testing.T) {
	for cluster, up := range shared.ups {
		c := call{method: "POST", cluster: cluster, path: "/api"}.asAlice().with("Expect: 100-continue", "Content-Length: 5")
		t.Run("accepted, to "+cluster, func(t *testing.T) {
			up.Reset()
			conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			if err := conn.Send(c.h1(shared.px)); err != nil {
				t.Fatal(err)
			}
			if code := head(t, conn); code != http.StatusContinue {
				t.Fatalf("before the body: %d", code)
			}
			if err := conn.Send([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if codes := heads(t, conn); len(codes) != 1 || codes[0] != http.StatusOK {
				t.Errorf("after the body: %v", codes)
			}
			r := up.Only(t)
			if got := r.Lines("Expect"); r.Protocol != "h2" && len(got) != 1 || r.BodyBytes() != 5 { // net/http takes it away on HTTP/2
				t.Errorf("Expect %q, %d bytes", got, r.BodyBytes())
			}
		})
		t.Run("refused by the apiserver, to "+cluster, func(t *testing.T) {
			up.Reset()
			up.Handle(func(w *rawserver.Writer, r *rawserver.Request) { w.Respond(http.StatusForbidden, []byte("no")) })
			defer up.Handle(nil)
			conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
			if err := conn.Send(c.h1(shared.px)); err != nil {
				t.Fatal(err)
			}
			if codes := heads(t, conn); len(codes) != 1 || codes[0] != http.StatusForbidden {
				t.Errorf("%v", codes)
			}
		})
		t.Run("over HTTP/2, to "+cluster, func(t *testing.T) {
			up.Reset()
			s, err := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool()).Open(c.h2(shared.px), false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			_ = s.CloseWrite()
			if code, _, err := s.Head(); err != nil || code != http.StatusOK {
				t.Errorf("%d, %v", code, err)
			}
			if r := up.Only(t); r.BodyBytes() != 5 {
				t.Errorf("%d bytes", r.BodyBytes())
			}
		})
		t.Run("an unknown expectation, to "+cluster, func(t *testing.T) {
			up.Reset()
			a := rawclient.Do(t, shared.px.Host, shared.px.CA.Pool(), call{cluster: cluster, path: "/api"}.asAlice().with("Expect: 200-maybe").h1(shared.px))
			if a.Code != http.StatusExpectationFailed {
				t.Errorf("code %d", a.Code)
			}
			up.None(t)
		})
	}
}

// RELAY-6: an apiserver may answer before it has read the body; the answer is
// relayed at once, and the rest of the body is no request.
func TestANS3UpstreamAnswersEarly(t *testing.T) {
	for cluster, up := range shared.ups {
		smuggled := "GET /clusters/" + ns + "/" + cluster + "/smuggled HTTP/1.1\r\nHost: " + shared.px.Host + "\r\nAuthorization: Bearer " + token(nil) + "\r\n\r\n"
		early := func(w *rawserver.Writer, r *rawserver.Request) {
			if !w.H1() {
				w.Respond(http.StatusConflict, []byte("early"))
				return
			}
			w.Raw([]byte("HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\nConnection: close\r\n\r\nearly"))
			// A real server closes in a way that lets the answer through.
			_ = w.CloseWrite()
			_, _ = io.Copy(io.Discard, r)
		}
		for _, lines := range [][]string{{"Content-Length: 100000"}, {"Transfer-Encoding: chunked"}} {
			t.Run("h1 "+lines[0]+" to "+cluster, func(t *testing.T) {
				up.Reset()
				up.Handle(early)
				defer up.Handle(nil)
				conn := rawclient.MustDial(t, shared.px.Host, shared.px.CA.Pool())
				if err := conn.Send(call{method: "POST", cluster: cluster, path: "/api"}.asAlice().with(lines...).h1(shared.px)); err != nil {
					t.Fatal(err)
				}
				if codes := heads(t, conn); codes[len(codes)-1] != http.StatusConflict {
					t.Errorf("%v", codes)
				}
				_ = conn.Send([]byte(smuggled + smuggled))
				_ = conn.CloseWrite()
				rest, _ := io.ReadAll(bufio.NewReader(conn.R))
				if strings.Contains(string(rest), "HTTP/1.1 200") {
					t.Errorf("the body was answered: %q", rest)
				}
				for _, r := range up.Requests() {
					if strings.Contains(r.Target, "smuggled") {
						t.Errorf("the body became a request: %v", r)
					}
				}
			})
		}
		t.Run("h2 to "+cluster, func(t *testing.T) {
			up.Handle(early)
			defer up.Handle(nil)
			s, err := rawclient.MustDialH2(t, shared.px.Host, shared.px.CA.Pool()).Open(call{method: "POST", cluster: cluster, path: "/api"}.asAlice().h2(shared.px), false)
			if err != nil {
				t.Fatal(err)
			}
			if code, _, err := s.Head(); err != nil || code != http.StatusConflict {
				t.Errorf("%d, %v", code, err)
			}
		})
	}
}
