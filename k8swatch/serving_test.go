package k8swatch

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
)

func forServers(o *certOptions) { o.usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }

// servingPair is a good pair for a server, unless changed.
func servingPair(t testing.TB, change ...func(*certOptions)) pemPair {
	t.Helper()
	return certificate(t, append([]func(*certOptions){forServers}, change...)...)
}

func servingSecret(version int, pair pemPair, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: proxyNamespace, Name: "k8s-tls", UID: "u", ResourceVersion: strconv.Itoa(version)},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: pair.crt, corev1.TLSPrivateKeyKey: pair.key},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// servingBench is a ServingCertificate at a time of its own.
type servingBench struct {
	*ServingCertificate
	now  time.Time
	logs *observer.ObservedLogs
}

func newServingBench() *servingBench {
	core, logs := observer.New(zapcore.DebugLevel)
	b := &servingBench{ServingCertificate: NewServingCertificate(zap.New(core)), now: testNow, logs: logs}
	b.ServingCertificate.now = func() time.Time { return b.now }
	return b
}

// wantServes looks several times, as handshakes do.
func (b *servingBench) wantServes(t *testing.T, secret *corev1.Secret, err error, pair pemPair) {
	t.Helper()
	for range 3 {
		cert, fault := b.Certificate(secret, err)
		if fault != nil {
			t.Fatalf("no certificate: %v", fault)
		}
		block, _ := pem.Decode(pair.crt)
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
	first, second := servingPair(t), servingPair(t, func(o *certOptions) { o.until = testNow.Add(48 * time.Hour) })
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		err    error
		says   string
	}{
		"certificate does not parse": {secret: servingSecret(2, pemPair{[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), first.key}), says: "tls.crt holds a certificate that cannot be parsed"},
		"empty":                      {secret: servingSecret(2, pemPair{}), says: "tls.crt"},
		"key does not parse":         {secret: servingSecret(2, pemPair{first.crt, []byte("key")}), says: "tls.key holds no PEM private key"},
		"key of another":             {secret: servingSecret(2, pemPair{first.crt, certificate(t, func(o *certOptions) { o.signer = ecKey(t) }).key}), says: "tls.key is not the key"},
		"another type":               {secret: servingSecret(2, second, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), says: "its type is not kubernetes.io/tls"},
		"for clients":                {secret: servingSecret(2, certificate(t)), says: "without serverAuth"},
		"expired":                    {secret: servingSecret(2, servingPair(t, func(o *certOptions) { o.until = testNow.Add(-time.Minute) })), says: "the certificate expired at"},
		"not yet valid":              {secret: servingSecret(2, servingPair(t, func(o *certOptions) { o.from, o.until = testNow.Add(30*time.Hour), testNow.Add(40*time.Hour) })), says: "the certificate is not valid before"},
		"gone":                       {err: notFound, says: "it does not exist"},
		"unreadable":                 {err: errors.New("forbidden"), says: "it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newServingBench()
			b.wantFails(t, tc.secret, tc.err, tc.says)
			b.wantLogged(t, logNone)
			b.wantServes(t, servingSecret(1, first), nil, first)
			b.wantLogged(t, logServing)
			b.wantServes(t, tc.secret, tc.err, first)
			b.wantLogged(t, logStays)
			b.now = testNow.Add(24 * time.Hour) // past the first
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
	next := servingPair(t, func(o *certOptions) { o.from, o.until = testNow.Add(time.Hour), testNow.Add(48*time.Hour) })
	b.wantServes(t, servingSecret(2, next), nil, old)
	b.now = testNow.Add(2 * time.Hour)
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
	for version, bad := range []pemPair{{good.crt, []byte("x")}, {nil, good.key}, {[]byte("x"), []byte("y")}} {
		b.wantServes(t, servingSecret(version+3, bad), nil, good)
	}
	b.wantLogged(t, logStays, logStays, logStays)
}

// API-5: the Secrets of the product are refused, also when a Secret becomes one
// while it is served.
func TestServingRefusesTheProductsSecrets(t *testing.T) {
	b := newServingBench()
	good := servingPair(t)
	label := func(s *corev1.Secret) { s.Labels = map[string]string{ManagedByLabel: ManagedByValue} }
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
		if err := CheckServingSecretName(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := CheckServingSecretName("k8s-wildcard-tls"); err != nil {
		t.Error(err)
	}
}

// Handshakes at the same time as renewals get one certificate or the other,
// and each version is parsed once.
func TestServingConcurrently(t *testing.T) {
	b := newServingBench()
	pairs := []pemPair{servingPair(t), servingPair(t)}
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
