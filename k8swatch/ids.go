package k8swatch

import (
	"bytes"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/digest"
)

// EndpointID is a digest of where the apiserver is and what verifies it: target,
// CA and server name.
func (c *Cluster) EndpointID() string { return digest.Of("endpoint", c.endpoint()) }

// CredentialID is a digest of everything that decides how a connection for requests
// to the apiserver is made: target, CA, server name and the certificate that it
// presents. Two clusters with the same CredentialID still never share a connection.
//
// In Passthrough it leaves the front-proxy certificate out, which requests do not
// present (ID-4): preparation never touches their connections (REC-7), and a switch
// of mode needs other ones.
func (c *Cluster) CredentialID() string {
	return digest.Of("credential", c.endpoint(), c.Presented().chain())
}

// TrustKey is a digest of everything that a trust verdict depends on: target, CA,
// server name, front-proxy certificate, both prefixes and forward_uid. It does
// not depend on the mode: a switch of mode keeps the verdict (TRUST-2).
func (c *Cluster) TrustKey() string {
	return digest.Of("trust", c.endpoint(), c.FrontProxy.chain(), c.UserPrefix, c.GroupPrefix, c.ForwardUID)
}

// endpoint is what EndpointID depends on. An empty pool and the system roots are far
// from the same.
func (c *Cluster) endpoint() []any { return []any{c.Target, c.ServerName, c.CA == nil, c.CAHash} }

// chain is what two connections with a certificate differ by: the same leaf with
// another intermediate is another handshake. The leaf determines the private key.
func (c *ClientCertificate) chain() any {
	if c == nil {
		return nil
	}
	return c.TLS.Certificate
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
	return renewed.TrustKey() == c.TrustKey()
}
