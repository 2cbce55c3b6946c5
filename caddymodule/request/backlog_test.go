package request

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
)

// onePipe is a listener with one connection, whose writes wait until the client
// reads.
type onePipe struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *onePipe) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *onePipe) Close() error {
	close(l.closed)
	return nil
}

func (l *onePipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// serve answers HTTP/1.1 on a pipe, and returns the client's end.
func serve(t *testing.T, handle func(*Request)) net.Conn {
	t.Helper()
	config := configOf(clustersOf())
	config.Backlog = access.NewBacklog()
	l := &onePipe{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := New(w, r, config, Name{}, "")
		defer q.Finish()
		if refused := q.Enter(); refused != nil {
			t.Error(refused)
		}
		handle(q)
	})}
	client, conn := net.Pipe()
	l.conn <- conn
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return client
}

func get(t *testing.T, client net.Conn, path string) {
	t.Helper()
	if _, err := io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// RELAY-7: a client that does not take a refusal holds its connection for ten
// seconds, or for two when it already has answers that it does not read. One that
// takes it keeps the connection, which has no deadline then.
func TestRefusalDeadline(t *testing.T) {
	for _, tc := range []struct {
		refused *Refusal
		timeout time.Duration
	}{{unknownCluster, refusalTimeout}, {backlogged, backlogTimeout}} {
		t.Run(tc.refused.Audit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := serve(t, func(q *Request) { _ = q.Refuse(tc.refused) })
				in := bufio.NewReader(client)
				for range 2 {
					get(t, client, "/")
					time.Sleep(tc.timeout - time.Second)
					answer, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != tc.refused.Code || !strings.Contains(string(text), "Status") {
						t.Fatalf("%d %q, %v", answer.StatusCode, text, err)
					}
					time.Sleep(2 * tc.timeout)
				}
				get(t, client, "/")
				time.Sleep(tc.timeout + time.Second)
				if n, err := in.Read(make([]byte, 1)); err == nil {
					t.Errorf("%d bytes came after the deadline", n)
				}
			})
		})
	}
}

// RELAY-7: what the server sends when the handler has returned is limited, too. A
// client that takes it keeps its connection, and a long answer afterwards.
func TestEndOfAnswerWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := serve(t, func(q *Request) {
			if q.r.URL.Path == "/slow" {
				time.Sleep(2 * access.NoProgress)
				_, _ = io.WriteString(q, "slow")
				return
			}
			q.WriteHeader(http.StatusNoContent)
		})
		in := bufio.NewReader(client)
		for _, path := range []string{"/", "/slow", "/"} {
			get(t, client, path)
			time.Sleep(access.NoProgress - time.Second)
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(answer.Body); err != nil {
				t.Fatal(err)
			}
		}
		get(t, client, "/")
		time.Sleep(access.NoProgress + time.Second)
		if n, err := in.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came after the deadline", n)
		}
	})
}

// RELAY-7: an answer that is cut on HTTP/1.1 ends at once. Cut when its last byte
// was just written it is whole, and the next request of the connection is answered.
func TestCutOverHTTP1(t *testing.T) {
	for name, length := range map[string]string{"with a length": "5", "without": ""} {
		t.Run("late, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := serve(t, func(q *Request) {
					if length != "" {
						q.Header().Set("Content-Length", length)
					}
					_, _ = io.WriteString(q, "whole")
					_ = q.FlushError()
					q.cut()
				})
				in := bufio.NewReader(client)
				for range 2 {
					get(t, client, "/")
					answer, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Fatal(err)
					}
					if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "whole" {
						t.Fatalf("%q, %v", text, err)
					}
				}
			})
		})
	}
	t.Run("while it is written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			client := serve(t, func(q *Request) {
				time.AfterFunc(time.Minute, q.cut)
				_, err := q.Write(make([]byte, 1<<20))
				ended <- err
			})
			get(t, client, "/")
			began := time.Now()
			if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
}

// deadlineWriter counts the deadlines that are set.
type deadlineWriter struct {
	http.ResponseWriter
	set int
}

func (w *deadlineWriter) SetWriteDeadline(time.Time) error {
	w.set++
	return nil
}

// wrapper is one with a state of its own, which the handler changes as it writes.
type wrapper struct{ deadlineWriter }

func (w *wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// RELAY-7: an answer is cut while its handler writes, so at the writer of the
// server and at none that wraps it.
func TestCutLeavesWrappersAlone(t *testing.T) {
	server := &deadlineWriter{ResponseWriter: httptest.NewRecorder()}
	inner := &wrapper{deadlineWriter{ResponseWriter: server}}
	outer := &wrapper{deadlineWriter{ResponseWriter: inner}}
	q := New(outer, httptest.NewRequest("GET", "/", nil), configOf(clustersOf()), Name{}, "")
	q.cut()
	if server.set != 1 || inner.set != 0 || outer.set != 0 {
		t.Errorf("deadlines set: %d of the server's writer, %d and %d of those around it", server.set, inner.set, outer.set)
	}
}
