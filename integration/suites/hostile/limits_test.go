package hostile

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawclient"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// digest answers with the length and the SHA-256 of the request's body.
func digest(w *rawserver.Writer, r *rawserver.Request) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	if err != nil {
		return
	}
	w.JSON(http.StatusOK, fmt.Sprintf("%d %x", n, h.Sum(nil)))
}

func digestOf(n int64, h hash.Hash) string { return strconv.Quote(fmt.Sprintf("%d %x", n, h.Sum(nil))) }

// LIM-02, RELAY-6: what an apiserver accepts passes whole, and its own 413 is
// relayed.
func TestLIM02Bodies(t *testing.T) {
	data := make([]byte, 29<<20/10)
	_, _ = rand.Read(data)
	h := sha256.New()
	h.Write(data)
	want := digestOf(int64(len(data)), h)
	everyWay(t, shared.px, func(t *testing.T, w way) {
		w.up.Handle(digest)
		defer w.up.Handle(nil)
		if a := w.do(t, call{method: "POST", path: "/api"}.asAlice().withBody(data)); a.Code != http.StatusOK || a.Body != want {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		if r := w.up.Only(t); r.BodyBytes() != int64(len(data)) {
			t.Errorf("%d bytes came, want %d", r.BodyBytes(), len(data))
		}
		own := []byte(`{"kind":"Status","code":413,"message":"the apiserver's"}`)
		w.up.Handle(rawserver.Answer(http.StatusRequestEntityTooLarge, "application/json", own))
		if a := w.do(t, call{method: "POST", path: "/api"}.asAlice().withBody(data)); a.Code != 413 || a.Body != string(own) || a.Header.Get("Warning") != "" {
			t.Errorf("the apiserver's own 413: %d %v %s", a.Code, a.Header, a.Body)
		}
	})
}

func (c call) withBody(b []byte) call {
	c.body = b
	return c
}

// LIM-02: Caddy's limit on bodies is answered with a Status, whether the
// length is declared or only found out, and at once.
func TestLIM02RequestBody(t *testing.T) {
	const limit = 5_000_000
	px := startProxy(t, proxy.Options{Site: "request_body {\n\tmax_size 5MB\n}"}, nil)
	above := make([]byte, limit+1<<20)
	everyWay(t, px, func(t *testing.T, w way) {
		w.up.Handle(digest)
		defer w.up.Handle(nil)
		if a := w.do(t, call{method: "POST", path: "/api"}.asAlice().withBody(above[:limit])); a.Code != http.StatusOK {
			t.Errorf("at the limit: %d %s", a.Code, a.Body)
		}
		t.Run("declared", func(t *testing.T) {
			w.up.Reset()
			c := call{method: "POST", cluster: w.cluster, path: "/api"}.asAlice().with("Content-Length: " + fmt.Sprint(len(above)))
			wantStatus(t, withoutBody(t, px, w.protocol, c), http.StatusRequestEntityTooLarge, "request body too large")
			w.up.None(t)
		})
		t.Run("found out", func(t *testing.T) {
			w.up.Reset()
			c := call{method: "POST", cluster: w.cluster, path: "/api"}.asAlice()
			var a rawclient.Answer
			if w.protocol == h2 {
				a = do(t, px, h2, c.withBody(above))
			} else {
				conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
				go func() {
					_ = conn.Send(c.with("Transfer-Encoding: chunked").h1(px))
					for i := 0; i < len(above); i += 64 << 10 {
						if err := conn.Send(chunk(above[i:min(len(above), i+64<<10)])); err != nil {
							return
						}
					}
				}()
				resp, err := conn.Head("POST")
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				a = rawclient.Answer{Code: resp.StatusCode, Header: resp.Header, Body: string(body)}
			}
			wantStatus(t, a, http.StatusRequestEntityTooLarge, "request body too large")
			// What the apiserver saw of it was no whole request.
			for _, r := range w.up.Requests() {
				if r.BodyBytes() > limit {
					t.Errorf("%d bytes came", r.BodyBytes())
				}
			}
		})
		if a := w.do(t, call{path: "/api"}.asAlice()); a.Code != http.StatusOK {
			t.Errorf("afterwards: %d %s", a.Code, a.Body)
		}
	})
}

// withoutBody sends the head of a request and reads the answer.
func withoutBody(t *testing.T, px *proxy.Proxy, protocol string, c call) rawclient.Answer {
	t.Helper()
	if protocol == h2 {
		s, err := rawclient.MustDialH2(t, px.Host, px.CA.Pool()).Open(c.h2(px), false)
		if err != nil {
			t.Fatal(err)
		}
		code, header, err := s.Head()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(s)
		if err != nil {
			t.Fatal(err)
		}
		return rawclient.Answer{Code: code, Header: header, Body: string(body)}
	}
	return rawclient.Do(t, px.Host, px.CA.Pool(), c.h1(px))
}

func chunk(p []byte) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(p), p) }

// residentMemory is what the kernel counts for a process, in bytes.
func residentMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// growth runs f and returns by how much the memory of the proxy grew at most
// while it ran.
func growth(t *testing.T, px *proxy.Proxy, f func()) int64 {
	t.Helper()
	before := residentMemory(t, px.PID())
	most := before
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				most = max(most, residentMemory(t, px.PID()))
			}
		}
	})
	f()
	close(stop)
	wg.Wait()
	return most - before
}

// LIM-02, RELAY-6: memory does not grow with what flows, in either direction
// and over every combination of protocols.
func TestLIM02Memory(t *testing.T) {
	const (
		mebibyte = 1 << 20
		large    = 100 * mebibyte
		most     = 16 * mebibyte
	)
	px := startProxy(t, proxy.Options{LogLevel: "INFO"}, nil)
	block := make([]byte, mebibyte)
	_, _ = rand.Read(block)
	post := func(t *testing.T, w way, size int) {
		t.Helper()
		h := sha256.New()
		c := call{method: "POST", cluster: w.cluster, path: "/api"}.asAlice()
		var send func(p []byte) error
		var end func() (int, string)
		if w.protocol == h2 {
			conn := rawclient.MustDialH2(t, px.Host, px.CA.Pool())
			defer conn.Close()
			s, err := conn.Open(c.h2(px), false)
			if err != nil {
				t.Fatal(err)
			}
			send = func(p []byte) error { _, err := s.Write(p); return err }
			end = func() (int, string) {
				_ = s.CloseWrite()
				code, _, err := s.Head()
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(s)
				return code, string(body)
			}
		} else {
			conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
			defer conn.Close()
			if err := conn.Send(c.with("Transfer-Encoding: chunked").h1(px)); err != nil {
				t.Fatal(err)
			}
			send = func(p []byte) error { return conn.Send(chunk(p)) }
			end = func() (int, string) {
				_ = conn.Send([]byte("0\r\n\r\n"))
				resp, err := conn.Head("POST")
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				return resp.StatusCode, string(body)
			}
		}
		for range size / mebibyte {
			h.Write(block)
			if err := send(block); err != nil {
				t.Fatal(err)
			}
		}
		if code, body := end(); code != http.StatusOK || body != digestOf(int64(size), h) {
			t.Errorf("%d %s", code, body)
		}
	}
	get := func(t *testing.T, w way, size int) {
		t.Helper()
		code, _, stream := body(t, px, w.protocol, call{cluster: w.cluster, path: "/big"}.asAlice())
		if code != http.StatusOK {
			t.Fatalf("code %d", code)
		}
		if n, err := io.Copy(io.Discard, stream); err != nil || n != int64(size) {
			t.Errorf("%d bytes came of %d: %v", n, size, err)
		}
	}
	everyWay(t, px, func(t *testing.T, w way) {
		if !w.frontProxy() {
			return // the same code, with less to do
		}
		defer w.up.Handle(nil)
		for _, way := range []struct {
			name    string
			handler rawserver.Handler
			flow    func(t *testing.T, w way, size int)
			warm    rawserver.Handler
		}{
			{"up", digest, post, digest},
			{"down", rawserver.Big(large), get, rawserver.Big(8 * mebibyte)},
		} {
			// Buffers, windows and the collector's idea of the heap are there
			// after some of it.
			w.up.Handle(way.warm)
			way.flow(t, w, 8*mebibyte)
			w.up.Handle(way.handler)
			start := time.Now()
			grown := growth(t, px, func() { way.flow(t, w, large) })
			t.Logf("100 MiB %s: the proxy grew by %.1f MiB, %.0f MiB/s", way.name, float64(grown)/mebibyte, 100/time.Since(start).Seconds())
			if grown > most {
				t.Errorf("%s: the proxy grew by %d bytes", way.name, grown)
			}
		}
	})
	for _, cluster := range []string{fpH2, ptH1} {
		t.Run("exec to "+cluster, func(t *testing.T) {
			up := shared.ups[cluster]
			up.Handle(rawserver.Echo)
			defer up.Handle(nil)
			exec := func(size int) {
				conn := rawclient.MustDial(t, px.Host, px.CA.Pool())
				defer conn.Close()
				if a := conn.Do(t, call{method: "POST", cluster: cluster, path: execPath}.asAlice().with("Connection: Upgrade", "Upgrade: SPDY/3.1").h1(px)); a.Code != http.StatusSwitchingProtocols {
					t.Fatalf("%+v", a)
				}
				_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
				sent := make(chan error, 1)
				go func() {
					for range size / mebibyte {
						if _, err := conn.Write(block); err != nil {
							sent <- err
							return
						}
					}
					sent <- conn.CloseWrite()
				}()
				part := make([]byte, mebibyte)
				for i := range size / mebibyte {
					if _, err := io.ReadFull(conn.R, part); err != nil || !bytes.Equal(part, block) {
						t.Fatalf("after %d MiB: equal: %t, %v", i, bytes.Equal(part, block), err)
					}
				}
				if rest, err := io.ReadAll(conn.R); err != nil || len(rest) > 0 {
					t.Errorf("%d bytes more, %v", len(rest), err)
				}
				if err := <-sent; err != nil {
					t.Errorf("sending: %v", err)
				}
			}
			exec(8 * mebibyte)
			start := time.Now()
			grown := growth(t, px, func() { exec(200 * mebibyte) })
			t.Logf("200 MiB through exec and back: the proxy grew by %.1f MiB, %.0f MiB/s each way", float64(grown)/mebibyte, 200/time.Since(start).Seconds())
			if grown > most {
				t.Errorf("the proxy grew by %d bytes", grown)
			}
		})
	}
}
