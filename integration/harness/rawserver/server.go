package rawserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// Options shape a server. The zero value is UP of the field cases.
type Options struct {
	// Addr to listen on, 127.0.0.1:0 when empty.
	Addr string
	// Protocols are offered by ALPN, in order; default h2 and http/1.1.
	Protocols []string
	// ServerCA and FrontProxyCA are made when nil.
	ServerCA, FrontProxyCA *pki.CA
	// AllowedName is the common name of the front proxy, default
	// front-proxy-a.
	AllowedName string
	// DNSNames of the serving certificate, beside localhost and 127.0.0.1.
	DNSNames []string
	// Bare leaves /version and SelfSubjectReviews to the handler too.
	Bare bool
	// NoIdentity gives requests without an identity to the handler instead of
	// answering 401: an upstream in Passthrough.
	NoIdentity bool
	// Handler answers; nil is WhoAmI. Handle changes it later.
	Handler Handler
}

// FrontProxyName is the common name that is allowed by default.
const FrontProxyName = "front-proxy-a"

// Server is a running recording server.
type Server struct {
	// URL is https://127.0.0.1:<port>.
	URL string
	// Host is 127.0.0.1:<port>.
	Host string
	// ServerCA signed the serving certificate.
	ServerCA *pki.CA
	// FrontProxyCA signs the certificates whose X-Remote-* headers count.
	FrontProxyCA *pki.CA

	options Options
	cert    tls.Certificate
	authn   authenticator.Request
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	handler  Handler
	connHook func(*RawConn) bool
	listener net.Listener // nil while suspended
	conns    map[net.Conn]bool
	accepted int
	requests []*Request
	changed  chan struct{} // closed and replaced with each request
}

// New starts a server.
func New(o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Protocols == nil {
		o.Protocols = []string{"h2", "http/1.1"}
	}
	if o.AllowedName == "" {
		o.AllowedName = FrontProxyName
	}
	if o.Handler == nil {
		o.Handler = WhoAmI
	}
	for name, ca := range map[string]**pki.CA{"up-server-ca": &o.ServerCA, "up-front-proxy-ca": &o.FrontProxyCA} {
		if *ca != nil {
			continue
		}
		made, err := pki.NewCA(name)
		if err != nil {
			return nil, err
		}
		*ca = made
	}
	serving, err := o.ServerCA.Server(o.DNSNames...)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("starting the recording server: %w", err)
	}
	s := &Server{
		URL: "https://" + listener.Addr().String(), Host: listener.Addr().String(),
		ServerCA: o.ServerCA, FrontProxyCA: o.FrontProxyCA,
		options: o, cert: serving.TLS(), handler: o.Handler,
		authn: newAuthenticator(o.FrontProxyCA, o.AllowedName),
		conns: map[net.Conn]bool{}, changed: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.serve(listener)
	return s, nil
}

// Start is New for a test, which ends with it.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

func (s *Server) serve(l net.Listener) {
	s.listener = l
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.accepted++
			s.mu.Unlock()
			s.wg.Go(func() {
				defer func() {
					c.Close()
					s.mu.Lock()
					delete(s.conns, c)
					s.mu.Unlock()
				}()
				s.serveConn(c)
			})
		}
	})
}

// serveConn speaks TLS and then whichever protocol was negotiated.
func (s *Server) serveConn(c net.Conn) {
	tc := tls.Server(c, &tls.Config{
		Certificates: []tls.Certificate{s.cert},
		NextProtos:   s.options.Protocols,
		ClientAuth:   tls.RequestClientCert,
		ClientCAs:    s.FrontProxyCA.Pool(),
		MinVersion:   tls.VersionTLS12,
	})
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	if err := tc.HandshakeContext(ctx); err != nil {
		return
	}
	s.mu.Lock()
	hook := s.connHook
	s.mu.Unlock()
	if hook != nil && hook(&RawConn{Conn: tc, server: s}) {
		return
	}
	if tc.ConnectionState().NegotiatedProtocol == "h2" {
		s.serveH2(tc)
	} else {
		s.serveH1(tc)
	}
}

// RawConn is a connection after its TLS handshake.
type RawConn struct {
	*tls.Conn
	server *Server
}

// HandleConn gives each new connection to a function first, which returns
// true when it has dealt with it whole; nil ends that.
func (s *Server) HandleConn(f func(*RawConn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connHook = f
}

// Handle changes how requests are answered; nil is WhoAmI.
func (s *Server) Handle(h Handler) {
	if h == nil {
		h = WhoAmI
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = h
}

// Stop ends the server and waits for its handlers.
func (s *Server) Stop() {
	s.cancel()
	s.Suspend()
	s.wg.Wait()
}

// Suspend closes the listener and all connections: an apiserver that is down.
func (s *Server) Suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	for c := range s.conns {
		c.Close()
	}
}

// Resume listens again on the same address.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", s.Host)
	if err != nil {
		return fmt.Errorf("resuming the recording server: %w", err)
	}
	s.serve(l)
	return nil
}

// Connections is how many connections were accepted so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// FrontProxy issues a certificate that this server believes, with that serial
// number.
func (s *Server) FrontProxy(serial int64) *pki.KeyPair {
	r := clientRequest(s.options.AllowedName)
	if serial != 0 {
		r.Serial = bigInt(serial)
	}
	return pki.Must(s.FrontProxyCA.Issue(r))
}

func (s *Server) record(r *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Requests are the requests so far, in order of arrival, without the proxy's
// own: see Request.Probe.
func (s *Server) Requests() []*Request {
	return slices.DeleteFunc(s.AllRequests(), func(r *Request) bool { return r.Probe })
}

// AllRequests are all requests so far.
func (s *Server) AllRequests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Reset forgets the requests so far.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

var errNoRequest = errors.New("no such request came")

// Wait returns the first request that matches, when it is there.
func (s *Server) Wait(ctx context.Context, match func(*Request) bool) (*Request, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		for _, r := range s.Requests() {
			if match(r) {
				return r, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNoRequest, ctx.Err())
		}
	}
}

// Only is the one request that came; a test that expects one fails otherwise.
func (s *Server) Only(tb testing.TB) *Request {
	tb.Helper()
	all := s.Requests()
	if len(all) != 1 {
		tb.Fatalf("%d requests reached the server, want 1: %v", len(all), all)
	}
	return all[0]
}

// None fails the test when a request came: refusals happen before any
// upstream byte.
func (s *Server) None(tb testing.TB) {
	tb.Helper()
	if all := s.Requests(); len(all) != 0 {
		tb.Errorf("%d requests reached the server, want none: %v", len(all), all)
	}
}

// respond runs the handler, or the server's own answers.
func (s *Server) respond(w *Writer, r *Request) {
	s.mu.Lock()
	h := s.handler
	s.mu.Unlock()
	r.Probe = isProbe(r)
	s.record(r)
	switch {
	case !s.options.Bare && isOwn(r):
		WhoAmI(w, r)
	case r.Identity == nil && !s.options.NoIdentity:
		Unauthorized(w, r)
	default:
		h(w, r)
	}
}

func (s *Server) netHTTPHandler(tc *tls.Conn) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, hr *http.Request) {
		r := s.newRequest(tc, hr, nil)
		r.body, r.trailer = hr.Body, func() http.Header { return hr.Trailer }
		s.respond(&Writer{h2: rw, ctx: hr.Context()}, r)
	})
}
