package compile

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"weak"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/digest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/reference"
)

// authority is what verifies the apiserver's certificate.
type authority struct {
	// pool is nil for the system roots only. A CA that is not known is an
	// empty pool, which verifies nothing (API-6).
	pool     *x509.CertPool
	hash     string
	problems []problem
	stale    []string
}

// goodCA is the last good CA of an object, and the place it was read from. It is
// carried over from one compilation to the next (CERT-7).
type goodCA struct {
	source string
	*bundle
}

// bundle is a parsed CA bundle. It is never changed.
type bundle struct {
	pool *x509.CertPool
	hash string
}

// bundles are the bundles in use, by a digest of their PEM text. Objects with the
// same CA share one: a parsed bundle takes ten times the size of its text, and a
// thousand objects may name the same CA.
type bundles map[[sha256.Size]byte]weak.Pointer[bundle]

// get returns the bundle of a PEM text.
func (all bundles) get(data []byte) (*bundle, error) {
	content := sha256.Sum256(data)
	if known := all[content].Value(); known != nil {
		return known, nil
	}
	certs, err := keypair.ParseCertificates(data)
	if err != nil {
		return nil, err
	}
	b := &bundle{pool: x509.NewCertPool(), hash: authorityHash(certs)}
	for _, cert := range certs {
		b.pool.AddCert(cert)
	}
	maps.DeleteFunc(all, func(_ [sha256.Size]byte, of weak.Pointer[bundle]) bool { return of.Value() == nil })
	all[content] = weak.Make(b)
	return b, nil
}

func (b *builder) authority() authority {
	s := b.spec.Cert
	switch {
	case s == nil:
		return authority{}
	case s.Secret != nil:
		return b.referredAuthority("spec.cert.Secret", k8swatch.KindSecret, s.Secret)
	case s.ConfigMap != nil:
		return b.referredAuthority("spec.cert.ConfigMap", k8swatch.KindConfigMap, s.ConfigMap)
	case s.Cert != nil:
		return b.inlineAuthority(*s.Cert)
	case s.SystemRoots != nil, s.Insecure != nil:
		// Insecure is the legacy spelling: TLS is always verified.
		return authority{}
	}
	return unknownAuthority(invalid("spec.cert", "exactly one of Secret, ConfigMap, Cert, SystemRoots, Insecure must be set"))
}

// unknownCAHash stands for a CA that cannot be read. It differs from the empty
// hash of the system roots.
const unknownCAHash = "unknown"

func unknownAuthority(problems ...problem) authority {
	return authority{pool: x509.NewCertPool(), hash: unknownCAHash, problems: problems}
}

func (b *builder) inlineAuthority(encoded string) authority {
	const path = "spec.cert.Cert"
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return unknownAuthority(invalid(path, "must be PEM in base64"))
	}
	ca, err := b.parseAuthority(path, data)
	if err != nil {
		return unknownAuthority(invalid(path, err.Error()))
	}
	return authority{pool: ca.pool, hash: ca.hash}
}

func (b *builder) referredAuthority(path, kind string, ref *v1.KeyReference) authority {
	r, problems := b.resolve(path, kind, ref)
	if len(problems) > 0 {
		// references() has the problems.
		return unknownAuthority()
	}
	source := r.String() + " " + r.Key
	data, err := b.read(r)
	var ca goodCA
	if err == nil {
		if ca, err = b.parseAuthority(source, data); err != nil {
			err = errReference{r, "key " + text.Quote(r.Key, k8swatch.MaxQuoted) + " " + err.Error()}
		}
	}
	var protected errProtected
	switch {
	case err == nil:
		return authority{pool: ca.pool, hash: ca.hash}
	case errors.As(err, &protected):
		b.carried.ca = goodCA{}
		return unknownAuthority(invalid(path+".name", reference.ProtectedText))
	case b.carried.ca.source == source:
		ca = b.carried.ca
		return authority{pool: ca.pool, hash: ca.hash, stale: []string{err.Error()}}
	}
	return unknownAuthority(problem{reason: k8swatch.ReasonReferenceNotFound, path: path, text: err.Error()})
}

// parseAuthority parses a CA and makes it the last good one.
func (b *builder) parseAuthority(source string, data []byte) (goodCA, error) {
	parsed, err := b.compiler.bundles.get(data)
	if err != nil {
		return goodCA{}, err
	}
	b.carried.ca = goodCA{source, parsed}
	return b.carried.ca, nil
}

// authorityHash does not depend on the order or repetition of the certificates,
// nor on what stands between them.
func authorityHash(certs []*x509.Certificate) string {
	var ders [][]byte
	for _, cert := range certs {
		ders = append(ders, cert.Raw)
	}
	slices.SortFunc(ders, slices.Compare[[]byte])
	ders = slices.CompactFunc(ders, slices.Equal[[]byte])
	return digest.Of("ca", ders)
}
