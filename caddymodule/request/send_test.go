package request

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
)

// SIG-3, OBS-01: an apiserver that echoes what it was sent in a broken answer
// gets none of it into an answer or a log line.
func TestFailureHoldsNothingOfTheApiserver(t *testing.T) {
	const secret = "eyJhbGciOiJub25lIn0"
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"HTTP/1.1 2" + secret + " OK\r\n\r\n",
		secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
	} {
		_, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
		if err == nil {
			t.Fatalf("%q is a good answer", answer)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		got := failure(r, r.Context(), &bodyWatcher{}, err)
		var refused *Refusal
		if !errors.As(got, &refused) || refused.Code != http.StatusBadGateway || refused.Detail == "" {
			t.Fatalf("%v gives %v", err, got)
		}
		for _, text := range []string{got.Error(), refused.Message, refused.Detail, string(refused.status())} {
			if strings.Contains(text, secret) {
				t.Errorf("%q holds what the apiserver sent", text)
			}
		}
	}
	long := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New(strings.Repeat("x", 10000))}
	if refused := upstream.Describe(long); len(refused.Detail) > 256 {
		t.Errorf("a detail of %d bytes", len(refused.Detail))
	}
}

// Each kind of trouble has its own answer, and none is the client's 401.
func TestFailureKinds(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	gone, leave := context.WithCancel(r.Context())
	leave()
	ended, end := context.WithCancelCause(r.Context())
	end(upstream.ErrEnded)
	tooLarge := &bodyWatcher{ReadCloser: io.NopCloser(iotestErr{&http.MaxBytesError{Limit: 1}})}
	_, _ = tooLarge.Read(make([]byte, 1))
	for name, tc := range map[string]struct {
		r    *http.Request
		ctx  context.Context
		body *bodyWatcher
		err  error
		code int
		want string
	}{
		"refused connection":      {err: &net.OpError{Op: "dial", Err: errors.New("refused")}, code: 502, want: "cannot be reached"},
		"unknown name":            {err: &net.DNSError{Name: "up.example.test"}, code: 502, want: "cannot be resolved"},
		"timeout":                 {err: context.DeadlineExceeded, code: 502, want: "did not answer in time"},
		"not processed":           {err: upstream.ErrNotProcessed, code: 502, want: "did not process the request"},
		"another protocol":        {err: upstream.ErrUnexpectedSwitch, code: 502, want: "not asked for"},
		"anything":                {err: io.ErrUnexpectedEOF, code: 502, want: "connection to the cluster's apiserver failed"},
		"cluster removed":         {ctx: ended, err: context.Canceled, code: 503, want: "removed from the proxy, or moved"},
		"client gone":             {r: r.WithContext(gone), ctx: gone, err: context.Canceled},
		"body over Caddy's limit": {body: tooLarge, err: io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.r == nil {
				tc.r = r
			}
			if tc.ctx == nil {
				tc.ctx = tc.r.Context()
			}
			if tc.body == nil {
				tc.body = &bodyWatcher{}
			}
			got := failure(tc.r, tc.ctx, tc.body, tc.err)
			var refused *Refusal
			switch {
			case tc.code != 0:
				if !errors.As(got, &refused) || refused.Code != tc.code || !strings.Contains(refused.Message, tc.want) {
					t.Errorf("got %v", got)
				}
			case name == "client gone":
				if !errors.Is(got, context.Canceled) {
					t.Errorf("got %v", got)
				}
			default:
				if !IsBodyTooLarge(got) {
					t.Errorf("got %v", got)
				}
			}
		})
	}
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

// RELAY-2: a 401 of a program behind the proxy subresource is its own; every
// other 401 is about the asserted identity.
func TestUnauthorizedIsAboutTheIdentity(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`
	for _, tc := range []struct {
		path, body string
		length     int64
		want       bool
	}{
		{"/api/v1/namespaces/a/pods", "anything", 8, true},
		{"/api", "anything", -1, true},
		{"/api/v1/namespaces/a/services/web/proxy", "Login please", 12, false},
		{"/api/v1/namespaces/a/services/web/proxy/api", "Login please", -1, false},
		{"/api/v1/namespaces/a/pods/web/proxy/api", status, int64(len(status)), true},
		{"/api/v1/namespaces/a/pods/web%2Fproxy", "Login please", 12, false},
		{"/api/v1/nodes/n/proxy/metrics", `{"kind":"Status","reason":"Forbidden"}`, 38, false},
		{"/api/v1/nodes/n/proxy/metrics", status, 10 << 20, false},
	} {
		parsed, err := access.ParsePath(tc.path)
		if err != nil {
			t.Fatal(err)
		}
		d := &Decision{parsed: parsed}
		res := &http.Response{Body: io.NopCloser(strings.NewReader(tc.body)), ContentLength: tc.length}
		if got := d.isAboutIdentity(httptest.NewRequest(http.MethodGet, "/", nil), res); got != tc.want {
			t.Errorf("%s with %q: about the identity: %v", tc.path, tc.body, got)
		}
		if left, err := io.ReadAll(res.Body); err != nil || string(left) != tc.body {
			t.Errorf("%s: %q is left of the body, %v", tc.path, left, err)
		}
	}
}
