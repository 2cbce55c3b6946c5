package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority is a certificate authority of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

func (a *authority) issue(t testing.TB, name string, serial int64, dns ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: dns, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// quiet is for servers whose clients leave as part of the test.
var quiet = log.New(io.Discard, "", 0)

const serverName = "up.example.test"

// server is an apiserver of a test and the Config to reach it.
type server struct {
	*httptest.Server
	config Config
}

// newServer serves handler over TLS, with HTTP/2 unless h1 is set. Like an
// apiserver it asks for a client certificate and goes on without one.
func newServer(t testing.TB, h1 bool, handler http.HandlerFunc) *server {
	t.Helper()
	return start(t, h1, httptest.NewUnstartedServer(handler))
}

// newServerOn is newServer in memory.
func newServerOn(t testing.TB, network *pipes, h1 bool, handler http.HandlerFunc) *server {
	t.Helper()
	s := start(t, h1, &httptest.Server{Listener: network, Config: &http.Server{Handler: handler}})
	s.config.Dial = network.dial
	return s
}

func start(t testing.TB, h1 bool, s *httptest.Server) *server {
	t.Helper()
	ca := newAuthority(t, "server CA")
	s.EnableHTTP2 = !h1
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{*ca.issue(t, "server", 2, serverName)},
		ClientAuth:   tls.RequestClientCert,
	}
	if !h1 {
		s.TLS.NextProtos = []string{"h2", "http/1.1"} // httptest would offer h2 alone
	}
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return &server{s, configFor(s.Listener.Addr(), ca)}
}

func configFor(addr net.Addr, ca *authority) Config {
	return Config{
		Target:     k8swatch.Target{Kind: k8swatch.TargetExternal, Address: addr.String(), Host: serverName + ":6443"},
		ServerName: serverName,
		RootCAs:    ca.pool,
		Dial:       Direct(nil),
	}
}

// pair makes a Pair that is closed at the end of the test.
func pair(t testing.TB, c Config) *Pair {
	t.Helper()
	p := New(c)
	t.Cleanup(p.Retire)
	return p
}

// request makes a request as Caddy's reverse_proxy hands it to its transport.
func request(t testing.TB, c Config, method, rawPath string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://proxy.example.test/", body)
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil
	r.URL = &url.URL{}
	SetURL(r, c.Target, rawPath)
	return r
}

// do sends a request and reads the whole response.
func do(t testing.TB, p *Pair, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := p.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// within fails the test when do takes longer than d.
func within(t testing.TB, d time.Duration, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(d):
		t.Fatalf("%s took more than %s", what, d)
	}
}
