package keypair

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

var (
	errNoCertificate = errors.New("holds no PEM certificate")
	errBrokenPEM     = errors.New("holds a certificate whose PEM block is broken")
)

// ParseCertificates returns the certificates of a PEM bundle. One that cannot
// be parsed refuses the bundle, as in kube-apiserver: half a CA is not what its
// author wrote. Errors never repeat the contents.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	begun := bytes.Count(data, []byte("-----BEGIN CERTIFICATE-----"))
	if begun > maxBundle || len(data) > maxBundleSize {
		return nil, ErrLargeBundle
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that cannot be parsed (number %d)", len(certs)+1)
		}
		if !affordable(cert) {
			return nil, ErrLargeKey
		}
		certs = append(certs, cert)
	}
	switch {
	case len(certs) == 0:
		return nil, errNoCertificate
	case len(certs) < begun:
		// pem.Decode steps over a block that is broken or cut short.
		return nil, errBrokenPEM
	}
	return certs, nil
}
