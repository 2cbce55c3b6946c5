// Package pki issues the certificates of the tests: any subject, extended key
// usage, validity and serial number, on ECDSA P-256 keys, in memory.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// CA is a certificate authority.
type CA struct {
	Certificate *x509.Certificate
	Key         crypto.Signer
	// PEM is the certificate in PEM.
	PEM []byte
}

// Request describes a certificate to issue.
type Request struct {
	CommonName   string
	Organization []string
	// DNSNames and IPs are the subject alternative names.
	DNSNames []string
	IPs      []net.IP
	// Usages is the extended key usage; nil issues without that extension.
	Usages []x509.ExtKeyUsage
	// NotBefore defaults to an hour ago, NotAfter to a day from now.
	NotBefore, NotAfter time.Time
	// Serial defaults to a random number.
	Serial *big.Int
}

// KeyPair is a certificate with its key.
type KeyPair struct {
	Certificate     *x509.Certificate
	Key             crypto.Signer
	CertPEM, KeyPEM []byte
}

// NewCA makes a self-signed authority, valid for ten years.
func NewCA(commonName string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of CA %s: %w", commonName, err)
	}
	serial, err := randomSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing CA %s: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing CA %s: %w", commonName, err)
	}
	return &CA{Certificate: cert, Key: key, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// MustCA is NewCA for tests, where it only fails without randomness.
func MustCA(commonName string) *CA {
	ca, err := NewCA(commonName)
	if err != nil {
		panic(err)
	}
	return ca
}

// Issue issues a certificate on a new key.
func (ca *CA) Issue(r Request) (*KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for %s: %w", r.CommonName, err)
	}
	template := &x509.Certificate{
		SerialNumber: r.Serial,
		Subject:      pkix.Name{CommonName: r.CommonName, Organization: r.Organization},
		NotBefore:    r.NotBefore,
		NotAfter:     r.NotAfter,
		DNSNames:     r.DNSNames,
		IPAddresses:  r.IPs,
		ExtKeyUsage:  r.Usages,
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
	if template.SerialNumber == nil {
		if template.SerialNumber, err = randomSerial(); err != nil {
			return nil, err
		}
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, key.Public(), ca.Key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", r.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate of %s: %w", r.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of %s: %w", r.CommonName, err)
	}
	return &KeyPair{
		Certificate: cert,
		Key:         key,
		CertPEM:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// Client issues a client certificate.
func (ca *CA) Client(commonName string, organization ...string) (*KeyPair, error) {
	return ca.Issue(Request{CommonName: commonName, Organization: organization, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

// Server issues a server certificate for 127.0.0.1, localhost and more names
// and addresses.
func (ca *CA) Server(names ...string) (*KeyPair, error) {
	r := Request{
		CommonName: "server",
		DNSNames:   []string{"localhost"},
		IPs:        []net.IP{net.IPv4(127, 0, 0, 1)},
		Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			r.IPs = append(r.IPs, ip)
		} else {
			r.DNSNames = append(r.DNSNames, name)
		}
	}
	return ca.Issue(r)
}

// Pool holds this authority alone.
func (ca *CA) Pool() *x509.CertPool { return Pool(ca) }

// Pool holds the given authorities.
func Pool(cas ...*CA) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.Certificate)
	}
	return pool
}

// Bundle is the authorities in one PEM text.
func Bundle(cas ...*CA) []byte {
	var b []byte
	for _, ca := range cas {
		b = append(b, ca.PEM...)
	}
	return b
}

// TLS is the pair in the form crypto/tls wants.
func (p *KeyPair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Certificate.Raw}, PrivateKey: p.Key, Leaf: p.Certificate}
}

// WriteFiles writes <dir>/<name>.crt and <dir>/<name>.key.
func (p *KeyPair) WriteFiles(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(certFile, p.CertPEM, 0o644); err != nil {
		return "", "", fmt.Errorf("writing the certificate %s: %w", name, err)
	}
	if err := os.WriteFile(keyFile, p.KeyPEM, 0o600); err != nil {
		return "", "", fmt.Errorf("writing the key %s: %w", name, err)
	}
	return certFile, keyFile, nil
}

// Must unwraps the pair of Issue, Client or Server in tests.
func Must(p *KeyPair, err error) *KeyPair {
	if err != nil {
		panic(err)
	}
	return p
}

func randomSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}
