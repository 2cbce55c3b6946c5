package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

// plainConfig is what the reverse proxy of Go's own library needs, as JSON in the
// environment of the process that runs it: this test program.
type plainConfig struct {
	Address, Upstream            string
	UpstreamCA, Certificate, Key string // files
	ServerCertificate, ServerKey string
}

const plainVariable = "BENCH_REVERSE_PROXY"

func TestMain(m *testing.M) {
	if text := os.Getenv(plainVariable); text != "" {
		if err := runReverseProxy(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func runReverseProxy(text string) error {
	var c plainConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	target, err := url.Parse(c.Upstream)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.UpstreamCA)
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := func(http2 bool) *http.Transport {
		return &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			DisableCompression: true, MaxIdleConnsPerHost: 512, ForceAttemptHTTP2: http2,
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.Handle("/", &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     byUpgrade{plain: transport(true), upgrade: transport(false)},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	})
	s := &http.Server{Addr: c.Address, Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	return s.ListenAndServeTLS(c.ServerCertificate, c.ServerKey)
}

// byUpgrade sends upgrades over HTTP/1.1, the rest over HTTP/2.
type byUpgrade struct{ plain, upgrade http.RoundTripper }

func (t byUpgrade) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.upgrade.RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

// plainProxy is that process.
type plainProxy struct {
	proc *process.Process
	url  string
	ca   *pki.CA
}

func startReverseProxy(b *testing.B, c plainConfig) *plainProxy {
	b.Helper()
	p := &plainProxy{ca: pki.MustCA("reverse-proxy-ca")}
	dir := b.TempDir()
	var err error
	if c.ServerCertificate, c.ServerKey, err = pki.Must(p.ca.Server()).WriteFiles(dir, "server"); err != nil {
		b.Fatal(err)
	}
	port, err := process.FreePort()
	if err != nil {
		b.Fatal(err)
	}
	c.Address = fmt.Sprintf("127.0.0.1:%d", port)
	p.url = "https://" + c.Address
	text, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	p.proc, err = process.Start(process.Options{Path: os.Args[0], Env: append(os.Environ(), plainVariable+"="+string(text)), Dir: dir, LogFile: dir + "/log"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.proc.Kill() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err = p.get(b.Context(), "/debug/pprof/"); err == nil {
			return p
		}
		if time.Now().After(deadline) {
			b.Fatalf("the reverse proxy does not answer: %v\n%s", err, p.proc.Log())
		}
	}
}

func (p *plainProxy) client(protocol string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: p.ca.Pool(), MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: protocol == "h2",
	}}
}

// get reads what the process says of itself.
func (p *plainProxy) get(ctx context.Context, path string) (string, error) {
	client := p.client("h1")
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
