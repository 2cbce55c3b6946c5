package keypair

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Pair is a parsed certificate chain with its key.
type Pair struct {
	// Content tells two pairs apart.
	Content Digests
	// Leaf is the first certificate, nil when it cannot be parsed.
	Leaf *x509.Certificate
	// Certificate is nil when the pair can never be used.
	Certificate *k8swatch.ClientCertificate
	// Fault says why, without repeating any of the contents.
	Fault error
}

// Names are the names that messages give the two values of a pair.
type Names struct{ Certificate, Key string }

// SecretNames are the names of the values in a Secret of type kubernetes.io/tls.
func SecretNames() Names { return Names{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} }

func (n Names) noKey() error {
	return errors.New(n.Key + " holds no PEM private key that can be read")
}

func (n Names) otherKey() error {
	return errors.New(n.Key + " is not the key of the first certificate in " + n.Certificate)
}

var errClientAuth = errors.New("the certificate has an extended key usage without clientAuth")

// Digests are those of a certificate chain and of its key, as they were read.
type Digests [2][sha256.Size]byte

// Content returns the digests of a pair.
func Content(crt, key []byte) Digests { return Digests{sha256.Sum256(crt), sha256.Sum256(key)} }

// Parse looks at everything about a pair that does not depend on the
// time. The leaf is set whenever it parses, since its subject alone can
// withdraw the Secret (CERT-5).
func Parse(crt, key []byte, names Names) Pair {
	p := Pair{Content: Content(crt, key)}
	certificate, leaf, err := Match(crt, key, names)
	p.Leaf = leaf
	if err != nil {
		p.Fault = err
		return p
	}
	if !allowsClientAuth(p.Leaf) {
		p.Fault = errClientAuth
		return p
	}
	sum := sha256.Sum256(p.Leaf.Raw)
	p.Certificate = &k8swatch.ClientCertificate{TLS: *certificate, Leaf: p.Leaf, Fingerprint: hex.EncodeToString(sum[:])}
	return p
}

// Match parses a chain and its key, which have to belong together. The
// leaf is set whenever it parses. Errors repeat none of the contents.
func Match(crt, key []byte, names Names) (pair *tls.Certificate, leaf *x509.Certificate, err error) {
	certs, err := ParseCertificates(crt)
	if err == nil && (len(certs) > maxChain || len(crt) > maxChainSize) {
		err = errLargeChain
	}
	if err != nil {
		return nil, firstCertificate(crt), errors.New(names.Certificate + " " + err.Error())
	}
	leaf = certs[0]
	signer, ok := parsePrivateKey(key)
	if !ok {
		return nil, leaf, names.noKey()
	}
	public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(signer.Public()) {
		return nil, leaf, names.otherKey()
	}
	pair = &tls.Certificate{PrivateKey: signer, Leaf: leaf}
	for _, cert := range certs {
		pair.Certificate = append(pair.Certificate, cert.Raw)
	}
	return pair, leaf, nil
}

func firstCertificate(crt []byte) *x509.Certificate {
	for {
		block, rest := pem.Decode(crt)
		if block == nil {
			return nil
		}
		if block.Type == "CERTIFICATE" {
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil
			}
			return cert
		}
		crt = rest
	}
}

// parsePrivateKey takes PKCS #8, PKCS #1 and SEC 1, as crypto/tls does. The
// errors of these parsers are dropped: they have no business near a key.
func parsePrivateKey(data []byte) (crypto.Signer, bool) {
	var block *pem.Block
	for {
		if block, data = pem.Decode(data); block == nil {
			return nil, false
		}
		// An EC key may be preceded by its parameters.
		if block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY") {
			break
		}
	}
	if checkKeyCost(block.Bytes) != nil {
		return nil, false
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		signer, ok := key.(crypto.Signer)
		return signer, ok
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, true
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, true
	}
	return nil, false
}

// allowsClientAuth: a certificate without the extension may be used for
// anything (RFC 5280 section 4.2.1.12), and kube-apiserver takes it.
func allowsClientAuth(cert *x509.Certificate) bool {
	return AllowsUsage(cert, x509.ExtKeyUsageClientAuth)
}

// AllowsUsage says whether a certificate may be used for usage.
func AllowsUsage(cert *x509.Certificate, usage x509.ExtKeyUsage) bool {
	if len(cert.ExtKeyUsage) == 0 && len(cert.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(cert.ExtKeyUsage, usage) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// ValidityFault says why a certificate cannot be used at a time, empty when it
// can.
func ValidityFault(cert *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(cert.NotBefore):
		return "the certificate is not valid before " + Timestamp(cert.NotBefore)
	case now.After(cert.NotAfter):
		return "the certificate expired at " + Timestamp(cert.NotAfter)
	}
	return ""
}

// Timestamp writes a time as messages show it.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
