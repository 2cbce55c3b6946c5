package servingcert

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func forServers(o *k8stest.CertOptions) { o.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// servingPair is a good pair for a server, unless changed.
func servingPair(t testing.TB, change ...func(*k8stest.CertOptions)) k8stest.PemPair {
	t.Helper()
	return k8stest.Certificate(t, append([]func(*k8stest.CertOptions){forServers}, change...)...)
}

func servingSecret(version int, pair k8stest.PemPair, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: k8stest.ProxyNamespace, Name: "k8s-tls", UID: "u", ResourceVersion: strconv.Itoa(version)},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: pair.Crt, corev1.TLSPrivateKeyKey: pair.Key},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// servingBench is a ServingCertificate at a time of its own.
type servingBench struct {
	*Holder
	now  time.Time
	logs *observer.ObservedLogs
}

func newServingBench() *servingBench {
	core, logs := observer.New(zapcore.DebugLevel)
	b := &servingBench{Holder: New(zap.New(core)), now: k8stest.Now, logs: logs}
	b.Holder.now = func() time.Time { return b.now }
	return b
}

// wantServes looks several times, as handshakes do.
func (b *servingBench) wantServes(t *testing.T, secret *corev1.Secret, err error, pair k8stest.PemPair) {
	t.Helper()
	for range 3 {
		cert, fault := b.Certificate(secret, err)
		if fault != nil {
			t.Fatalf("no certificate: %v", fault)
		}
		block, _ := pem.Decode(pair.Crt)
		if !bytes.Equal(cert.Certificate[0], block.Bytes) {
			t.Fatal("another certificate")
		}
	}
}

func (b *servingBench) wantFails(t *testing.T, secret *corev1.Secret, err error, says string) {
	t.Helper()
	for range 3 {
		cert, fault := b.Certificate(secret, err)
		if cert != nil || fault == nil || !strings.Contains(fault.Error(), says) {
			t.Fatalf("got %v, want an error that says %q", fault, says)
		}
	}
}

func (b *servingBench) wantLogged(t *testing.T, parts ...string) {
	t.Helper()
	entries := b.logs.TakeAll()
	if len(entries) != len(parts) {
		t.Fatalf("%d lines: %v", len(entries), entries)
	}
	for i, part := range parts {
		if !strings.Contains(entries[i].Message, part) {
			t.Errorf("line %d: %q, want %q", i, entries[i].Message, part)
		}
	}
}

const (
	logServing = "serving the certificate"
	logStays   = "the last good one stays"
	logNone    = "there is no other"
)

// CONF-4: a renewal is served, and what cannot be used leaves the last good
// certificate in force until it expires. Each change is one line in the log.
func TestServingRenewal(t *testing.T) {
	notFound := apierrors.NewNotFound(corev1.Resource("secrets"), "k8s-tls")
	first, second := servingPair(t), servingPair(t, func(o *k8stest.CertOptions) { o.Until = k8stest.Now.Add(48 * time.Hour) })
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		err    error
		says   string
	}{
		"certificate does not parse": {secret: servingSecret(2, k8stest.PemPair{Crt: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), Key: first.Key}), says: "tls.crt holds a certificate that cannot be parsed"},
		"empty":                      {secret: servingSecret(2, k8stest.PemPair{}), says: "tls.crt"},
		"key does not parse":         {secret: servingSecret(2, k8stest.PemPair{Crt: first.Crt, Key: []byte("key")}), says: "tls.key holds no PEM private key"},
		"key of another":             {secret: servingSecret(2, k8stest.PemPair{Crt: first.Crt, Key: k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Signer = k8stest.ECKey(t) }).Key}), says: "tls.key is not the key"},
		"another type":               {secret: servingSecret(2, second, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), says: "its type is not kubernetes.io/tls"},
		"for clients":                {secret: servingSecret(2, k8stest.Certificate(t)), says: "without serverAuth"},
		"expired":                    {secret: servingSecret(2, servingPair(t, func(o *k8stest.CertOptions) { o.Until = k8stest.Now.Add(-time.Minute) })), says: "the certificate expired at"},
		"not yet valid": {secret: servingSecret(2, servingPair(t, func(o *k8stest.CertOptions) {
			o.From, o.Until = k8stest.Now.Add(30*time.Hour), k8stest.Now.Add(40*time.Hour)
		})), says: "the certificate is not valid before"},
		"gone":       {err: notFound, says: "it does not exist"},
		"unreadable": {err: errors.New("forbidden"), says: "it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newServingBench()
			b.wantFails(t, tc.secret, tc.err, tc.says)
			b.wantLogged(t, logNone)
			b.wantServes(t, servingSecret(1, first), nil, first)
			b.wantLogged(t, logServing)
			b.wantServes(t, tc.secret, tc.err, first)
			b.wantLogged(t, logStays)
			b.now = k8stest.Now.Add(24 * time.Hour) // past the first
			b.wantFails(t, tc.secret, tc.err, "")
			b.wantServes(t, servingSecret(3, second), nil, second)
			b.wantLogged(t, logServing)
		})
	}
}

// A certificate that is not valid yet is served from the moment it is.
func TestServingBecomesValid(t *testing.T) {
	b := newServingBench()
	old := servingPair(t)
	b.wantServes(t, servingSecret(1, old), nil, old)
	next := servingPair(t, func(o *k8stest.CertOptions) {
		o.From, o.Until = k8stest.Now.Add(time.Hour), k8stest.Now.Add(48*time.Hour)
	})
	b.wantServes(t, servingSecret(2, next), nil, old)
	b.now = k8stest.Now.Add(2 * time.Hour)
	b.wantServes(t, servingSecret(2, next), nil, next)
}

// Several bad versions in a row do not wear the good one out, and a new version
// with the same contents is no change.
func TestServingKeepsTheLastGood(t *testing.T) {
	b := newServingBench()
	good := servingPair(t)
	b.wantServes(t, servingSecret(1, good), nil, good)
	b.wantServes(t, servingSecret(2, good), nil, good)
	b.wantLogged(t, logServing)
	for version, bad := range []k8stest.PemPair{{Crt: good.Crt, Key: []byte("x")}, {Key: good.Key}, {Crt: []byte("x"), Key: []byte("y")}} {
		b.wantServes(t, servingSecret(version+3, bad), nil, good)
	}
	b.wantLogged(t, logStays, logStays, logStays)
}

// API-5: the Secrets of the product are refused, also when a Secret becomes one
// while it is served.
func TestServingRefusesTheProductsSecrets(t *testing.T) {
	b := newServingBench()
	good := servingPair(t)
	label := func(s *corev1.Secret) { s.Labels = map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue} }
	b.wantServes(t, servingSecret(1, good), nil, good)
	b.wantFails(t, servingSecret(2, good, label), nil, "belongs to the product")
	b.wantFails(t, nil, errors.New("hub away"), "it cannot be read")
	b.wantServes(t, servingSecret(3, good), nil, good)

	for name, says := range map[string]string{
		"proxyauth-frontproxy-a.b": "belongs to the product",
		"proxyauth-agent-a.b":      "belongs to the product",
		"":                         "name",
		"Upper":                    "name",
		"a/b":                      "name",
	} {
		if err := CheckName(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := CheckName("k8s-wildcard-tls"); err != nil {
		t.Error(err)
	}
}

// Handshakes at the same time as renewals get one certificate or the other,
// and each version is parsed once.
func TestServingConcurrently(t *testing.T) {
	b := newServingBench()
	pairs := []k8stest.PemPair{servingPair(t), servingPair(t)}
	secrets := []*corev1.Secret{servingSecret(0, pairs[0]), servingSecret(1, pairs[1])}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 200 {
				cert, err := b.Certificate(secrets[n/100], nil)
				if err != nil || cert.Leaf == nil {
					t.Errorf("%v", err)
				}
			}
		})
	}
	wg.Wait()
	b.wantServes(t, secrets[1], nil, pairs[1])
	var seen *tls.Certificate
	allocated := testing.AllocsPerRun(100, func() { seen, _ = b.Certificate(secrets[1], nil) })
	if seen == nil || allocated > 0 {
		t.Errorf("%v allocations in a handshake", allocated)
	}
}
