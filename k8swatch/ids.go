package k8swatch

import (
	"bytes"
	"encoding/binary"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/digest"
)

func endpointID(c *Cluster) string {
	d := digest.New("endpoint")
	writeEndpoint(d, c)
	return d.Sum()
}

// credentialID leaves the front-proxy certificate out in Passthrough, where the
// relay does not present it (ID-4): preparation never touches the relay (REC-7),
// and a switch of mode needs connections of its own.
func credentialID(c *Cluster) string {
	d := digest.New("credential")
	writeEndpoint(d, c)
	writeCertificate(d, c.Presented())
	return d.Sum()
}

// trustKey does not depend on the mode: a switch of mode keeps the verdict (TRUST-2).
func trustKey(c *Cluster) string {
	d := digest.New("set")
	writeEndpoint(d, c)
	writeCertificate(d, c.FrontProxy)
	writeAssertion(d, c)
	return d.Sum()
}

func writeEndpoint(d digest.Digest, c *Cluster) {
	var kind [8]byte
	binary.BigEndian.PutUint64(kind[:], uint64(c.Target.Kind))
	d.Bytes(kind[:])
	d.Text(c.Target.Canonical)
	d.Text(c.Target.Address)
	d.Text(c.Target.Host)
	d.Text(c.Target.BasePath)
	d.Text(c.ServerName)
	// An empty pool and the system roots are far from the same.
	d.Bool(c.CA == nil)
	d.Text(c.CAHash)
}

// writeCertificate writes the whole chain: the same leaf with another
// intermediate is another handshake. The private key need not be written, since
// the leaf determines it.
func writeCertificate(d digest.Digest, cert *ClientCertificate) {
	d.Bool(cert != nil)
	if cert != nil {
		d.List(cert.TLS.Certificate)
	}
}

func writeAssertion(d digest.Digest, c *Cluster) {
	d.Text(c.UserPrefix)
	d.Text(c.GroupPrefix)
	d.Bool(c.ForwardUID)
}

// Renews says whether c differs from old, in what a verdict depends on, only by
// another certificate of the same issuer and subject. A status then shows the old
// verdict until the new certificate is probed (TRUST-2).
func (c *Cluster) Renews(old *Cluster) bool {
	if c.FrontProxy == nil || old.FrontProxy == nil || c.TrustKey() == old.TrustKey() {
		return false
	}
	a, b := c.FrontProxy.Leaf, old.FrontProxy.Leaf
	if !bytes.Equal(a.RawIssuer, b.RawIssuer) || !bytes.Equal(a.RawSubject, b.RawSubject) {
		return false
	}
	renewed := *old
	renewed.FrontProxy = c.FrontProxy
	return trustKey(&renewed) == trustKey(c)
}
