package k8swatch

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

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// odd is some odd number of that many bits.
func odd(t *testing.T, bits int) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-1)))
	if err != nil {
		t.Fatal(err)
	}
	return n.SetBit(n.SetBit(n, bits-1, 1), 0, 1)
}

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
	p, q := odd(t, 8192), odd(t, 8192)
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

// withKey is a certificate of a made-up RSA key of that many bits.
func withKey(t *testing.T, bits int) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: testNow.Add(-time.Hour), NotAfter: testNow.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: odd(t, bits), E: 65537}, signer())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// AUTH-13, API-6: a root is verified in every handshake, which nothing can
// interrupt, and a bundle is kept.
func TestBundlesThatCost(t *testing.T) {
	one := certificate(t).crt
	for name, tt := range map[string]struct {
		bundle []byte
		want   error
	}{
		"a root of 8192 bits":  {withKey(t, maxRSABits), nil},
		"a root of 8193 bits":  {withKey(t, maxRSABits+1), errLargeKey},
		"a root of 128 kbit":   {append(bytes.Clone(one), withKey(t, 128<<10)...), errLargeKey},
		"as many as there may": {bytes.Repeat(one, maxBundle), nil},
		"one more":             {bytes.Repeat(one, maxBundle+1), errLargeBundle},
		"with much in between": {append(make([]byte, maxBundleSize), one...), errLargeBundle},
	} {
		if _, err := parseCertificates(tt.bundle); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	pair := certificate(t)
	for n, want := range map[int]string{maxChain: "", maxChain + 1: "tls.crt " + errLargeChain.Error()} {
		_, leaf, err := matchKeyPair(bytes.Repeat(pair.crt, n), pair.key, secretPair)
		if leaf == nil || (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("a chain of %d: %v", n, err)
		}
	}
}

// API-4: each place where a CA can be written refuses what costs too much.
func TestEveryPlaceOfACA(t *testing.T) {
	large := string(withKey(t, maxRSABits+1))
	for path, change := range map[string]func(*v1.ProxyKubeApiSpec){
		"spec.cert.Cert": func(s *v1.ProxyKubeApiSpec) { s.Cert = &v1.CertSource{Cert: base64PEM([]byte(large))} },
		"spec.auth_config.jwt[0].issuer.certificate_authority": func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.JWT[0].Issuer.CertificateAuthority = &large
		},
	} {
		b := newBench(t)
		b.put(object(change))
		c := b.compile()
		if c.Ready.Reason != ReasonInvalidSpec || !bytes.Contains([]byte(c.Ready.Message), []byte(path)) || !bytes.Contains([]byte(c.Ready.Message), []byte(errLargeKey.Error())) {
			t.Errorf("%s: %+v", path, c.Ready)
		}
	}
}

// A thousand objects may name one bundle.
func TestBundlesAreShared(t *testing.T) {
	b := newBench(t)
	ca := certificate(t).crt
	all := b.bundles
	first, err := all.get(ca)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := all.get(bytes.Clone(ca)); err != nil || second != first {
		t.Errorf("got %p and %p, %v", first, second, err)
	}
	if other, err := all.get(certificate(t).crt); err != nil || other == first {
		t.Errorf("another is the same, %v", err)
	}
}
