package k8swatch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"reflect"
)

// digest hashes a sequence of fields. Each field is preceded by its length, so
// that no two different sequences give the same input to the hash.
type digest struct{ h hash.Hash }

// newDigest starts a digest; purpose keeps the digests of different things apart.
func newDigest(purpose string) digest {
	d := digest{h: sha256.New()}
	d.string(purpose)
	return d
}

func (d digest) bytes(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	d.h.Write(n[:])
	d.h.Write(b)
}

func (d digest) string(s string) { d.bytes([]byte(s)) }

func (d digest) bool(b bool) {
	if b {
		d.bytes([]byte{1})
		return
	}
	d.bytes([]byte{0})
}

// list writes how many fields follow, then the fields.
func (d digest) list(fields [][]byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(fields)))
	d.bytes(n[:])
	for _, f := range fields {
		d.bytes(f)
	}
}

func (d digest) sum() string { return hex.EncodeToString(d.h.Sum(nil)) }

func endpointID(c *Cluster) string {
	d := newDigest("endpoint")
	writeEndpoint(d, c)
	return d.sum()
}

// credentialID leaves the front-proxy certificate out in Passthrough, where the
// relay does not present it (ID-4): preparation never touches the relay (REC-7),
// and a switch of mode needs connections of its own.
func credentialID(c *Cluster) string {
	d := newDigest("credential")
	writeEndpoint(d, c)
	writeCertificate(d, c.Presented())
	return d.sum()
}

// setID does not depend on the mode: a switch of mode keeps the verdict (TRUST-2).
func setID(c *Cluster) string {
	d := newDigest("set")
	writeEndpoint(d, c)
	writeCertificate(d, c.FrontProxy)
	writeAssertion(d, c)
	return d.sum()
}

func writeEndpoint(d digest, c *Cluster) {
	var kind [8]byte
	binary.BigEndian.PutUint64(kind[:], uint64(c.Target.Kind))
	d.bytes(kind[:])
	d.string(c.Target.Canonical)
	d.string(c.Target.Address)
	d.string(c.Target.Host)
	d.string(c.Target.BasePath)
	d.string(c.ServerName)
	// An empty pool and the system roots are far from the same.
	d.bool(c.CA == nil)
	d.string(c.CAHash)
}

// writeCertificate takes the whole chain: the same leaf with another
// intermediate is another handshake. The key needs no place of its own, it is
// the one of the leaf.
func writeCertificate(d digest, cert *ClientCertificate) {
	d.bool(cert != nil)
	if cert != nil {
		d.list(cert.TLS.Certificate)
	}
}

func writeAssertion(d digest, c *Cluster) {
	d.string(c.UserPrefix)
	d.string(c.GroupPrefix)
	d.bool(c.ForwardUID)
}

// Renews says whether the set of c is that of old with another certificate of
// the same issuer and subject: a status then goes on showing the old verdict
// until the new set is probed (TRUST-2).
func (c *Cluster) Renews(old *Cluster) bool {
	if c.FrontProxy == nil || old.FrontProxy == nil || c.SetID() == old.SetID() {
		return false
	}
	a, b := c.FrontProxy.Leaf, old.FrontProxy.Leaf
	if !bytes.Equal(a.RawIssuer, b.RawIssuer) || !bytes.Equal(a.RawSubject, b.RawSubject) {
		return false
	}
	renewed := *old
	renewed.FrontProxy = c.FrontProxy
	return setID(&renewed) == setID(c)
}

// sameCluster says whether nothing about a cluster changed. What is compiled or
// parsed is compared by what it was made from.
func sameCluster(a, b *Cluster) bool {
	if a == nil || b == nil {
		return false
	}
	x, y := *a, *b
	if x.FrontProxy != y.FrontProxy || x.ClientCert != y.ClientCert || (x.CA == nil) != (y.CA == nil) ||
		!sameJWT(x.Auth.JWT, y.Auth.JWT) || x.Auth.OIDC != y.Auth.OIDC {
		return false
	}
	x.CA, x.FrontProxy, x.ClientCert, x.Auth.JWT, x.Auth.OIDC = nil, nil, nil, nil, nil
	y.CA, y.FrontProxy, y.ClientCert, y.Auth.JWT, y.Auth.OIDC = nil, nil, nil, nil, nil
	return reflect.DeepEqual(x, y)
}

// sameJWT compares identity: a slice is compiled once for each auth_config.
func sameJWT(a, b []JWT) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
