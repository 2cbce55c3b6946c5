package request

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// bodyOf returns these errors, one a Read, behind a byte each.
type bodyOf struct {
	errs   []error
	before func()
}

func (b *bodyOf) Read(p []byte) (int, error) {
	b.before()
	err := b.errs[0]
	b.errs = b.errs[1:]
	p[0] = 'x'
	return 1, err
}

func (*bodyOf) Close() error { return nil }

// The end of a client is the end of the answer; the end of the apiserver, or of
// the time that a handler gives, is not.
func TestAnswerOfAClientThatLeft(t *testing.T) {
	fault := errors.New("connection reset by peer")
	for name, tc := range map[string]struct {
		ctx       func(context.Context) (context.Context, context.CancelFunc)
		leaves    bool
		errs      []error
		want      error
		abandoned bool
	}{
		"the client leaves during a read":   {leaves: true, errs: []error{nil, context.Canceled}, abandoned: true},
		"the client leaves between events":  {leaves: true, errs: []error{nil, nil}, abandoned: true},
		"the client leaves at the very end": {leaves: true, errs: []error{nil, io.EOF}},
		"the apiserver fails":               {errs: []error{nil, fault}, want: fault},
		"the proxy ends the stream":         {errs: []error{nil, context.Canceled}, want: context.Canceled},
		"complete":                          {errs: []error{nil, io.EOF}},
		"a handler's time is over": {
			ctx:  func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 0) },
			errs: []error{nil, context.DeadlineExceeded}, want: context.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.ctx == nil {
				tc.ctx = context.WithCancel
			}
			ctx, leave := tc.ctx(t.Context())
			defer leave()
			reads := 0
			source := &bodyOf{errs: tc.errs, before: func() {
				if reads++; tc.leaves && reads == len(tc.errs) {
					leave()
				}
			}}
			body := &answerBody{ReadCloser: source, client: ctx}
			if _, err := io.Copy(io.Discard, body); !errors.Is(err, tc.want) {
				t.Errorf("the body ends with %v, want %v", err, tc.want)
			}
			if got := body.abandoned.Load(); got != tc.abandoned {
				t.Errorf("abandoned: %t, want %t", got, tc.abandoned)
			}
		})
	}
}

// failingWriter is a connection that is broken.
type failingWriter struct {
	discard
	err error
}

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// A failed write is quiet when the client is gone, and an error when the proxy
// cut a client that does not read (RELAY-7) or when the client is still there.
func TestWriteToAClientThatLeft(t *testing.T) {
	broken := errors.New("broken pipe")
	for name, tc := range map[string]struct {
		gone      bool
		err, want error
	}{
		"gone":  {true, broken, nil},
		"cut":   {true, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		"there": {false, broken, broken},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if tc.gone {
				leave()
			}
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
			q := &Request{ResponseWriter: failingWriter{discard{http.Header{}}, tc.err}, r: r, config: &Config{Logger: zap.NewNop()}, decision: new(Decision), sent: true}
			if _, err := q.Write([]byte("x")); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}

// A client that has closed its own half of the connection, and goes on reading,
// does not take a part of an answer for the whole.
func TestHalfClosedClientSeesNoEnd(t *testing.T) {
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &Request{ResponseWriter: w, r: r, config: &Config{Logger: zap.NewNop()}, decision: new(Decision), sent: true}
		defer q.Finish()
		_, _ = q.Write([]byte("a part"))
		_ = q.FlushError()
		close(begun)
		<-r.Context().Done()
		q.decision.body.ReadCloser = io.NopCloser(strings.NewReader("the rest"))
		q.decision.body.client = r.Context()
		_, _ = io.Copy(q, &q.decision.body)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err == nil || string(got) != "a part" {
		t.Errorf("got %q, error %v: want the part and an error", got, err)
	}
}
