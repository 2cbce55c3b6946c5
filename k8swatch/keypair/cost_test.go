package keypair

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func keyPEM(t *testing.T, kind string, value any) []byte {
	t.Helper()
	der, err := asn1.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// CERT-9, CERT-5: a key that a tenant made up takes no longer than a good one,
// however large its numbers are: all clusters wait for the compiler.
func TestPrivateKeysThatCost(t *testing.T) {
	good, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	goodDER := x509.MarshalPKCS1PrivateKey(good)
	one := big.NewInt(1)
	p, q := k8stest.Odd(t, 8192), k8stest.Odd(t, 8192)
	type without struct {
		Version       int
		N, E, D, P, Q *big.Int
	}
	huge := without{0, new(big.Int).Mul(p, q), big.NewInt(65537), new(big.Int).Mul(p, q), p, q}
	small := without{0, good.N, big.NewInt(65537), good.D, p, q}
	bare := without{0, good.N, big.NewInt(65537), good.D, good.Primes[0], good.Primes[1]}
	type prime struct{ R, D, T *big.Int }
	multi := struct {
		Version                   int
		N, E, D, P, Q, Dp, Dq, Qi *big.Int
		More                      []prime
	}{1, good.N, big.NewInt(65537), good.D, good.Primes[0], good.Primes[1], one, one, one, []prime{{p, one, one}}}
	lies := privateRSA{0, good.N, big.NewInt(65537), good.D, good.Primes[0], good.Primes[1], one, one, one}
	inner, err := asn1.Marshal(huge)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := pkcs8{PrivateKey: inner}
	wrapped.Algorithm.Algorithm = oidRSA
	wrapped.Algorithm.Parameters = asn1.NullRawValue
	type attributed struct {
		Version    int
		Algorithm  any
		PrivateKey []byte
	}

	before := processorTime(t)
	for range 20 {
		if _, ok := parsePrivateKey(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: goodDER})); !ok {
			t.Fatal("a good key is refused")
		}
	}
	usual := processorTime(t) - before
	for name, key := range map[string][]byte{
		"of 16384 bits":             keyPEM(t, "RSA PRIVATE KEY", huge),
		"of 16384 bits, in PKCS #8": keyPEM(t, "PRIVATE KEY", attributed{0, wrapped.Algorithm, inner}),
		"with larger primes":        keyPEM(t, "RSA PRIVATE KEY", small),
		"without the values":        keyPEM(t, "RSA PRIVATE KEY", bare),
		"of three primes":           keyPEM(t, "RSA PRIVATE KEY", multi),
		"with wrong values":         keyPEM(t, "RSA PRIVATE KEY", lies),
		"of a megabyte":             pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: make([]byte, 1<<20)}),
	} {
		t.Run(name, func(t *testing.T) {
			before := processorTime(t)
			if _, ok := parsePrivateKey(key); ok {
				t.Error("it is taken")
			}
			if spent := processorTime(t) - before; spent > usual+200*time.Millisecond {
				t.Errorf("it took %s, twenty good keys %s", spent, usual)
			}
		})
	}
}

// AUTH-13, API-6: a root is verified in every handshake, which nothing can
// interrupt, and a bundle is kept.
func TestBundlesThatCost(t *testing.T) {
	one := k8stest.Certificate(t).Crt
	for name, tt := range map[string]struct {
		bundle []byte
		want   error
	}{
		"a root of 8192 bits":  {k8stest.RootOfBits(t, MaxRSABits), nil},
		"a root of 8193 bits":  {k8stest.RootOfBits(t, MaxRSABits+1), ErrLargeKey},
		"a root of 128 kbit":   {append(bytes.Clone(one), k8stest.RootOfBits(t, 128<<10)...), ErrLargeKey},
		"as many as there may": {bytes.Repeat(one, maxBundle), nil},
		"one more":             {bytes.Repeat(one, maxBundle+1), ErrLargeBundle},
		"with much in between": {append(make([]byte, maxBundleSize), one...), ErrLargeBundle},
	} {
		if _, err := ParseCertificates(tt.bundle); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	pair := k8stest.Certificate(t)
	for n, want := range map[int]string{maxChain: "", maxChain + 1: "tls.crt " + errLargeChain.Error()} {
		_, leaf, err := Match(bytes.Repeat(pair.Crt, n), pair.Key, SecretNames())
		if leaf == nil || (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("a chain of %d: %v", n, err)
		}
	}
}
