package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// tlsServer serves handler over TLS, HTTP/2 included.
func tlsServer(t *testing.T, handler http.HandlerFunc, change func(*tls.Config)) (string, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if change != nil {
		change(s.TLS)
	}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.URL + "/k8s/c-1", pool
}

// listener hands each connection to serve.
func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return "https://" + l.Addr().String()
}

// REC-6: each reason of Reachable, over HTTP/1.1 and HTTP/2.
func TestReach(t *testing.T) {
	code := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "GET" || r.RequestURI != "/k8s/c-1/version" || r.Header["Authorization"] != nil || len(r.TLS.PeerCertificates) != 0 {
				t.Errorf("%s %s %v", r.Method, r.RequestURI, r.Header)
			}
			w.WriteHeader(code)
		}
	}
	demanding := func(v uint16) func(*tls.Config) {
		return func(c *tls.Config) {
			c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, v
		}
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		server  func(*tls.Config)
		roots   bool // the system's, which do not know the server
		name    string
		reason  string
		message string
	}{
		"200":                  {handler: code(200), reason: k8swatch.ReasonAnswered, message: "answered 200"},
		"401":                  {handler: code(401), reason: k8swatch.ReasonAnswered, message: "answered 401"},
		"403":                  {handler: code(403), reason: k8swatch.ReasonAnswered, message: "answered 403"},
		"redirect":             {handler: code(307), reason: k8swatch.ReasonAnswered, message: "answered 307"},
		"499":                  {handler: code(499), reason: k8swatch.ReasonAnswered, message: "499"},
		"500":                  {handler: code(500), reason: k8swatch.ReasonServerError, message: "answered 500"},
		"503":                  {handler: code(503), reason: k8swatch.ReasonServerError, message: "answered 503"},
		"another CA":           {handler: code(200), roots: true, reason: k8swatch.ReasonTLSFailed, message: "cannot be verified"},
		"another name":         {handler: code(200), name: "other.example.test", reason: k8swatch.ReasonTLSFailed, message: "cannot be verified"},
		"mTLS, TLS 1.2":        {handler: code(200), server: demanding(tls.VersionTLS12), reason: k8swatch.ReasonTLSFailed, message: "client certificate"},
		"mTLS, TLS 1.3":        {handler: code(200), server: demanding(tls.VersionTLS13), reason: k8swatch.ReasonTLSFailed, message: "client certificate"},
		"hangs up":             {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, reason: k8swatch.ReasonServerError, message: "did not answer GET /version"},
		"an endless body":      {handler: endless, reason: k8swatch.ReasonAnswered, message: "answered 200"},
		"does not answer ever": {handler: func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); panic(http.ErrAbortHandler) }, reason: k8swatch.ReasonServerError, message: "took too long"},
	}
	for name, tt := range tests {
		for _, h2 := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/h1", true: "/h2"}[h2], func(t *testing.T) {
				base, pool := tlsServer(t, tt.handler, tt.server)
				conf := &tls.Config{RootCAs: pool, ServerName: tt.name}
				if tt.roots {
					conf.RootCAs = nil
				}
				var asked atomic.Bool
				conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					asked.Store(true)
					return new(tls.Certificate), nil
				}
				rt := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: h2}
				defer rt.CloseIdleConnections()
				ctx := t.Context()
				if name == "does not answer ever" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
				}
				checkReach(t, at(rt, base).Reach(ctx, &asked), tt.reason, tt.message)
			})
		}
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
}

// What is not even TLS, and what is not even there.
func TestReachWithoutTLS(t *testing.T) {
	tests := map[string]struct {
		base            string
		reason, message string
	}{
		"no server": {"https://127.0.0.1:1", k8swatch.ReasonConnectFailed, "the connection was refused"},
		"plain HTTP": {listener(t, func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}), k8swatch.ReasonTLSFailed, "handshake"},
		"closes":   {listener(t, func(c net.Conn) { c.Close() }), k8swatch.ReasonTLSFailed, "handshake"},
		"is quiet": {listener(t, func(c net.Conn) { time.AfterFunc(5*time.Second, func() { c.Close() }) }), k8swatch.ReasonTLSFailed, "took too long"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := 10 * time.Second
			if name == "is quiet" {
				limit = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			checkReach(t, at(transport(), tt.base).Reach(ctx, new(atomic.Bool)), tt.reason, tt.message)
		})
	}
}

func TestReachWithoutAName(t *testing.T) {
	rt := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "apiserver.invalid", Server: "127.0.0.1:53", IsNotFound: true}}
	}}
	base := "https://apiserver.invalid"
	checkReach(t, at(rt, base).Reach(t.Context(), new(atomic.Bool)), k8swatch.ReasonConnectFailed, "cannot be resolved")
}

func checkReach(t *testing.T, got k8swatch.Condition, reason, message string) {
	t.Helper()
	status := k8swatch.StatusFalse
	if reason == k8swatch.ReasonAnswered {
		status = k8swatch.StatusTrue
	}
	if got.Type != k8swatch.ConditionReachable || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) {
		t.Errorf("%+v, want %s %s %q", got, status, reason, message)
	}
	if strings.Contains(got.Message, "127.0.0.1") {
		t.Errorf("the message tells an address: %q", got.Message)
	}
	for _, r := range got.Message {
		if !unicode.IsPrint(r) {
			t.Errorf("message with %U", r)
		}
	}
}
