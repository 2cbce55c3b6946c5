package k8swatch

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// keyPair is what a certificate chain and its key hold, looked at once.
type keyPair struct {
	// content is a digest of both values.
	content string
	// leaf is the first certificate, nil when it cannot be parsed.
	leaf *x509.Certificate
	// certificate is nil when the contents cannot be used, at whatever time.
	certificate *ClientCertificate
	// fault says why, without repeating any of the contents.
	fault error
}

// pairNames are what messages call the two values of a pair.
type pairNames struct{ crt, key string }

// secretPair is a pair in a Secret of type kubernetes.io/tls.
var secretPair = pairNames{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}

func (n pairNames) noKey() error {
	return errors.New(n.key + " holds no PEM private key that can be read")
}

func (n pairNames) otherKey() error {
	return errors.New(n.key + " is not the key of the first certificate in " + n.crt)
}

var errClientAuth = errors.New("the certificate has an extended key usage without clientAuth")

func pairContent(crt, key []byte) string {
	d := newDigest("key pair")
	d.bytes(crt)
	d.bytes(key)
	return d.sum()
}

// parseKeyPair looks at everything about a pair that does not depend on the
// time. The leaf is set whenever it parses, since its subject alone can
// withdraw the Secret (CERT-5).
func parseKeyPair(crt, key []byte, names pairNames) keyPair {
	p := keyPair{content: pairContent(crt, key)}
	certificate, leaf, err := matchKeyPair(crt, key, names)
	p.leaf = leaf
	if err != nil {
		p.fault = err
		return p
	}
	if !allowsClientAuth(p.leaf) {
		p.fault = errClientAuth
		return p
	}
	sum := sha256.Sum256(p.leaf.Raw)
	p.certificate = &ClientCertificate{TLS: *certificate, Leaf: p.leaf, Fingerprint: hex.EncodeToString(sum[:])}
	return p
}

// matchKeyPair parses a chain and its key, which have to belong together. The
// leaf is set whenever it parses. Errors repeat none of the contents.
func matchKeyPair(crt, key []byte, names pairNames) (pair *tls.Certificate, leaf *x509.Certificate, err error) {
	certs, err := parseCertificates(crt)
	if err == nil && (len(certs) > maxChain || len(crt) > maxChainSize) {
		err = errLargeChain
	}
	if err != nil {
		return nil, firstCertificate(crt), errors.New(names.crt + " " + err.Error())
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
	return allowsUsage(cert, x509.ExtKeyUsageClientAuth)
}

func allowsUsage(cert *x509.Certificate, usage x509.ExtKeyUsage) bool {
	if len(cert.ExtKeyUsage) == 0 && len(cert.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(cert.ExtKeyUsage, usage) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
}

var (
	oidCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
)

// reservedSubject returns the first common name or organization that starts
// with "system:". Every one counts, not only the last CN that Go calls the
// common name: another reader may take the first. No common name at all is
// allowed: whether an apiserver takes it is a matter of its
// --requestheader-allowed-names, and the probe tells.
func reservedSubject(cert *x509.Certificate) (string, bool) {
	for _, name := range cert.Subject.Names {
		if !name.Type.Equal(oidCommonName) && !name.Type.Equal(oidOrganization) {
			continue
		}
		if value, ok := name.Value.(string); ok && strings.HasPrefix(value, reservedPrefix) {
			return value, true
		}
	}
	return "", false
}

// validityFault says why a certificate cannot be used at a time, empty when it
// can.
func validityFault(cert *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(cert.NotBefore):
		return "the certificate is not valid before " + timestamp(cert.NotBefore)
	case now.After(cert.NotAfter):
		return "the certificate expired at " + timestamp(cert.NotAfter)
	}
	return ""
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const (
	expiringAtMost = 30 * 24 * time.Hour
	expiringGrace  = 10 * time.Minute
)

// expiringFrom is when a certificate is told to be expiring: ten minutes past
// the point where less than min(30 d, a third of its lifetime) is left, so that
// a renewal at a third of the lifetime is not announced each time (REC-6).
func expiringFrom(cert *x509.Certificate) time.Time {
	left := min(cert.NotAfter.Sub(cert.NotBefore)/3, expiringAtMost)
	return cert.NotAfter.Add(-left).Add(expiringGrace)
}

// nextLook is when the passing of time alone changes what may be presented of a
// certificate in use, nil for none, and of the pair that was last seen.
func nextLook(inUse *ClientCertificate, seen keyPair, now time.Time) time.Time {
	var next time.Time
	if inUse != nil {
		// A certificate is still valid at its NotAfter.
		next = earliest(next, inUse.Leaf.NotAfter.Add(time.Nanosecond), now)
		next = earliest(next, expiringFrom(inUse.Leaf), now)
	}
	if seen.certificate != nil {
		next = earliest(next, seen.leaf.NotBefore, now)
		next = earliest(next, seen.leaf.NotAfter.Add(time.Nanosecond), now)
	}
	return next
}

// earliest returns the earlier of two times, of which candidate counts only
// when it is still to come; zero is never.
func earliest(current, candidate, now time.Time) time.Time {
	if !candidate.After(now) || !current.IsZero() && current.Before(candidate) {
		return current
	}
	return candidate
}
