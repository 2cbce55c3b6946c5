package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// RELAY-1. There is no limit on the time to the response's header: a watch on
// a quiet resource version, or an exec whose pod starts, may take any time.
const (
	dialTimeout         = 5 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	http2ReadIdle       = 30 * time.Second
	http2Ping           = 15 * time.Second
	// idleTimeout stays below the 180 s after which load balancers in front
	// of apiservers commonly forget a connection.
	idleTimeout = 90 * time.Second
	// maxIdle is how many connections wait for requests where the apiserver
	// speaks HTTP/1.1 only: hundreds, so that a burst does not open
	// connections again and again.
	maxIdle = 512
	// expectContinue is how long a body waits for the apiserver's 100 when
	// the client asked for it (RELAY-4). The apiserver sends it when admission
	// reads the body, long after it has refused what it refuses.
	expectContinue = 5 * time.Second
	// maxResponseHeader is far above what an apiserver sends.
	maxResponseHeader = 1 << 20
	// http2StreamWindow is most of what an answer holds that its caller does not
	// read (access.HeldByAnswer), and lets one stream carry 10 MiB/s over a
	// distance of 50 ms.
	http2StreamWindow = 512 << 10
	// retireSweep is how often a retired pair looks for connections that have
	// become idle.
	retireSweep = time.Second
)

// Dialer opens a connection, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Direct dials over the network of the proxy, but no denied target. Keep-alive
// notices a peer that is gone on upgraded connections, which have no pings: after
// 30 s of silence, within about 75 s.
func Direct(denied *egress.Policy) Dialer {
	return denied.Dialer(net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 3,
	}})
}

// Config is what a Pair is made from.
type Config struct {
	// Target is where to dial: Target.Address, whatever a request's URL says.
	Target k8swatch.Target
	// ServerName is the SNI and the name that the certificate must hold.
	ServerName string
	// RootCAs verifies the apiserver's certificate; nil means the system roots.
	RootCAs *x509.CertPool
	// Certificate is presented to the apiserver; nil for none.
	Certificate *tls.Certificate
	// AskedForCertificate, if not nil, is called when the apiserver asks for a
	// certificate and there is none to present.
	AskedForCertificate func()
	// Dial opens the connection under TLS, to Target.Address, within 5 s. Without
	// it there is no connection: the caller decides which targets are denied.
	Dial Dialer
}

// Pair holds the connections to one apiserver with one credential. A change of
// either makes a new Pair, and no two clusters share one.
type Pair struct {
	plain, upgrade *http.Transport
	turns          turns // of plain

	open             atomic.Int64 // connections
	openedSinceProbe atomic.Bool  // see OpenedSinceProbe
	retired          atomic.Bool
	sweeping         atomic.Bool
}

// New makes a Pair. It connects on first use.
func New(c Config) *Pair {
	p := &Pair{}
	dial := p.dialer(c)
	p.plain = newTransport(c)
	p.plain.Protocols.SetHTTP2(true)
	p.plain.HTTP2 = &http.HTTP2Config{
		SendPingTimeout:           http2ReadIdle,
		PingTimeout:               http2Ping,
		MaxReceiveBufferPerStream: http2StreamWindow,
	}
	p.plain.MaxIdleConnsPerHost = maxIdle
	handshake := encrypted(p.plain.TLSClientConfig, dial, "h2", "http/1.1")
	p.plain.DialTLSContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := p.turns.dial(ctx, network, handshake)
		if err != nil {
			return nil, err
		}
		p.openedSinceProbe.Store(true)
		return conn, nil
	}

	// Go's HTTP/2 would send Upgrade: SPDY/3.1 as a plain header and fail, so
	// upgrades have a transport that does not offer h2 at all.
	p.upgrade = newTransport(c)
	handshakeHTTP1 := encrypted(p.upgrade.TLSClientConfig, dial, "http/1.1")
	p.upgrade.DialTLSContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return handshakeHTTP1(ctx, network)
	}
	return p
}

// encrypted dials and does the TLS handshake. It always names the protocols in
// ALPN: for a WebSocket net/http would name none at all, and a load balancer in
// front of an apiserver may choose a backend by them, or refuse.
func encrypted(conf *tls.Config, dial func(context.Context, string) (*countedConn, error), protocols ...string) func(context.Context, string) (*tls.Conn, error) {
	conf = conf.Clone()
	conf.NextProtos = protocols
	return func(ctx context.Context, network string) (*tls.Conn, error) {
		conn, err := dial(ctx, network)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, tlsHandshakeTimeout)
		defer cancel()
		client := tls.Client(conn, conf)
		if err := client.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return client, nil
	}
}

func newTransport(c Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		// Proxy stays nil: HTTPS_PROXY of the proxy's own process must not
		// decide where a cluster's traffic goes.
		TLSClientConfig:        tlsConfig(c),
		DisableCompression:     true,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  expectContinue,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              protocols,
	}
}

func tlsConfig(c Config) *tls.Config {
	conf := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: c.ServerName,
		RootCAs:    c.RootCAs,
	}
	if certificate := c.Certificate; certificate != nil {
		// With Certificates, crypto/tls would not present the certificate when the
		// server's list of acceptable CAs does not name its issuer. An apiserver
		// that does not trust the proxy would then take its requests for
		// anonymous ones instead of answering 401, which the trust probe
		// understands.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return certificate, nil
		}
	}
	if asked := c.AskedForCertificate; c.Certificate == nil && asked != nil {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked()
			return new(tls.Certificate), nil // none
		}
	}
	return conf
}

// RoundTrip sends a request whose URL and headers are complete (SetURL): over
// HTTP/1.1 when it asks for an upgrade, else over HTTP/2 when the apiserver
// offers it. It sends no trailers.
//
// Besides the errors of net/http it returns ErrUnexpectedSwitch and
// ErrNotProcessed.
func (p *Pair) RoundTrip(r *http.Request) (*http.Response, error) {
	wanted := ""
	transport := p.plain
	if values := r.Header["Upgrade"]; len(values) > 0 {
		wanted = values[0]
		transport = p.upgrade
	}
	out, body, informed := outgoing(r)
	res, err := transport.RoundTrip(out)
	if body != nil {
		body.sent()
	}
	if err != nil {
		if informed.switched.Load() {
			return nil, ErrUnexpectedSwitch
		}
		return nil, err
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		if err := checkSwitch(wanted, res); err != nil {
			_ = res.Body.Close()
			return nil, err
		}
		return res, nil
	}
	if body != nil && res.Body != http.NoBody {
		res.Body = unwaited{res.Body}
	}
	return res, nil
}

// outgoing makes a copy of r that may be changed.
func outgoing(r *http.Request) (*http.Request, *replayBody, *informed) {
	informed := guard(r.Context())
	out := r.WithContext(informed)
	// Caddy fills its request's trailers in while the body is read, so
	// looking at them here would be too early (ID-7).
	out.Trailer = nil
	body := newReplayBody(r)
	if body != nil {
		out.Body, out.GetBody = body.first(), body.again
	}
	if body != nil && httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue") {
		out.Body, out.GetBody = waitForContinue(body, informed)
	}
	return out, body, informed
}

// Retire closes the idle connections now, and those in use when they become
// idle. Streams that are open go on. Requests still work, for those that were
// decided on before the pair was replaced.
func (p *Pair) Retire() {
	p.retired.Store(true)
	p.sweep()
}

// OpenedSinceProbe reports whether a connection was opened since MarkProbed, but for those of
// upgrades, each of which opens one. Another apiserver may answer on a new
// connection, or the same one after a start with other flags.
func (p *Pair) OpenedSinceProbe() bool { return p.openedSinceProbe.Load() }

// MarkProbed notes that the apiserver was probed over the connections that are open.
func (p *Pair) MarkProbed() { p.openedSinceProbe.Store(false) }

// Connections is how many connections are open.
func (p *Pair) Connections() int { return int(p.open.Load()) }

// sweep closes idle connections again and again until none is open. net/http
// does it by itself for HTTP/1.1 but not for HTTP/2.
func (p *Pair) sweep() {
	p.plain.CloseIdleConnections()
	p.upgrade.CloseIdleConnections()
	if p.open.Load() == 0 || !p.sweeping.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(retireSweep, func() {
		p.sweeping.Store(false)
		p.sweep()
	})
}

var errNoTarget = errors.New("dialing: no address, or no dialer")

// dialer dials the target of c and counts.
func (p *Pair) dialer(c Config) func(ctx context.Context, network string) (*countedConn, error) {
	dial, address := c.Dial, c.Target.Address
	return func(ctx context.Context, network string) (*countedConn, error) {
		if dial == nil || address == "" {
			return nil, errNoTarget
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		p.open.Add(1)
		if p.retired.Load() {
			p.sweep()
		}
		return &countedConn{Conn: conn, open: &p.open}, nil
	}
}

// countedConn counts the open connections of a pair.
type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
	turn   *turn // nil unless others wait for the first use
}

func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
		c.turn.end(nil)
	}
	return c.Conn.Close()
}
