package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"github.com/caddyserver/certmagic"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// issuer is a certificate authority that counts what it issues.
type issuer struct {
	ca       *pki.CA
	issued   atomic.Int32
	lifetime atomic.Int64
	// overlap is true once two issuances ran at the same time.
	running, overlap atomic.Int32
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	ca, err := pki.NewCA("acme")
	must(t, err)
	i := &issuer{ca: ca}
	i.lifetime.Store(int64(24 * time.Hour))
	return i
}

func (i *issuer) pair(t *testing.T, name string, end time.Time) *pki.KeyPair {
	t.Helper()
	pair, err := i.ca.Issue(pki.Request{DNSNames: []string{name}, NotBefore: end.Add(-72 * time.Hour), NotAfter: end})
	must(t, err)
	return pair
}

// Issue implements certmagic.Issuer. It takes a moment, as an ACME order does.
func (i *issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if i.running.Add(1) > 1 {
		i.overlap.Add(1)
	}
	defer i.running.Add(-1)
	select {
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(i.issued.Add(1))),
		DNSNames:     csr.DNSNames,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Duration(i.lifetime.Load())),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.ca.Certificate, csr.PublicKey, i.ca.Key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// IssuerKey implements certmagic.Issuer.
func (*issuer) IssuerKey() string { return "test-ca" }

// replica is the certificates of one proxy.
func replica(t *testing.T, s certmagic.Storage, i *issuer) *certmagic.Config {
	t.Helper()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{i}, OCSP: certmagic.OCSPConfig{DisableStapling: true}})
	return config
}

func served(t *testing.T, c *certmagic.Config, name string) []byte {
	t.Helper()
	cert, err := c.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
	must(t, err)
	return cert.Certificate[0]
}

// CONF-4: replicas that need the same certificate at the same time obtain it
// once, serve the same one, and renew it once.
func TestReplicasShareCertificates(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	ca := newIssuer(t)
	ca.lifetime.Store(int64(10 * time.Minute)) // due for renewal at once
	var replicas []*certmagic.Config
	for range 3 {
		replicas = append(replicas, replica(t, p.open(), ca))
	}
	const name = "k8s.example.com"
	all := func(do func(c *certmagic.Config) error) {
		t.Helper()
		var wg sync.WaitGroup
		for _, c := range replicas {
			wg.Go(func() {
				if err := do(c); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	ctx := within(t)
	all(func(c *certmagic.Config) error { return c.ObtainCertSync(ctx, name) })
	if n := ca.issued.Load(); n != 1 {
		t.Fatalf("%d certificates were issued, want 1", n)
	}

	ca.lifetime.Store(int64(24 * time.Hour))
	all(func(c *certmagic.Config) error { return c.RenewCertSync(ctx, name, false) })
	if n := ca.issued.Load(); n != 2 {
		t.Fatalf("%d certificates were issued, want 1 and its renewal", n)
	}
	if ca.overlap.Load() > 0 {
		t.Error("two certificates were issued at the same time")
	}

	all(func(c *certmagic.Config) error { return c.ManageSync(ctx, []string{name}) })
	first := served(t, replicas[0], name)
	for _, c := range replicas[1:] {
		if !bytes.Equal(first, served(t, c, name)) {
			t.Error("two replicas serve different certificates")
		}
	}
	if n := ca.issued.Load(); n != 2 {
		t.Errorf("%d certificates were issued in the end", n)
	}
}

// A certificate is obtained although the replica that began to obtain it was
// stopped in the middle, and the lock of a replica that fails is released.
func TestFailedIssuanceReleasesTheLock(t *testing.T) {
	t.Parallel()
	p := newPlace(t, shared.Get(t))
	ca := newIssuer(t)
	ctx, cancel := context.WithCancel(within(t))
	stopped := make(chan error, 1)
	go func() { stopped <- replica(t, p.open(), ca).ObtainCertSync(ctx, "k8s.example.com") }()
	for ca.running.Load() == 0 {
		select {
		case err := <-stopped:
			t.Fatalf("it ended early: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	start := time.Now()
	must(t, replica(t, p.open(), ca).ObtainCertSync(within(t), "k8s.example.com"))
	if took := time.Since(start); took >= leaseDuration {
		t.Errorf("the next replica waited %s, as if the lock had not been released", took)
	}
	if n := ca.issued.Load(); n != 1 {
		t.Errorf("%d certificates were issued", n)
	}
}
