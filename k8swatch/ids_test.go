package k8swatch

import (
	"crypto/x509"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// drawCluster draws a cluster from few values, so that pairs often differ in one
// place only, or in where a separator stands.
func drawCluster(t *rapid.T) *Cluster {
	word := rapid.SampledFrom([]string{"", "a", "b", "ab", "a\x00", "\x00\x00\x00\x00\x00\x00\x00\x01a"})
	c := &Cluster{
		Mode: rapid.SampledFrom([]v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy}).Draw(t, "mode"),
		Target: Target{
			Kind:      TargetKind(rapid.IntRange(1, 3).Draw(t, "kind")),
			Canonical: word.Draw(t, "canonical"), Address: word.Draw(t, "address"),
			Host: word.Draw(t, "host"), BasePath: word.Draw(t, "base"),
		},
		ServerName: word.Draw(t, "server name"),
		CAHash:     word.Draw(t, "ca"),
		UserPrefix: word.Draw(t, "user"), GroupPrefix: word.Draw(t, "group"), ForwardUID: rapid.Bool().Draw(t, "uid"),
	}
	if rapid.Bool().Draw(t, "pool") {
		c.CA = x509.NewCertPool()
	}
	for _, into := range []**ClientCertificate{&c.FrontProxy, &c.ClientCert} {
		if !rapid.Bool().Draw(t, "certificate") {
			continue
		}
		*into = &ClientCertificate{}
		for _, der := range rapid.SliceOfN(word, 1, 3).Draw(t, "chain") {
			(*into).TLS.Certificate = append((*into).TLS.Certificate, []byte(der))
		}
	}
	return c
}

// endpoint and trusted are what the digests must tell apart, as values to compare.
func endpoint(c *Cluster, cert *ClientCertificate) string {
	var chain [][]byte
	if cert != nil {
		chain = cert.TLS.Certificate
	}
	return fmt.Sprintf("%#v %q %v %q %v %q", c.Target, c.ServerName, c.CA == nil, c.CAHash, cert == nil, chain)
}

func trusted(c *Cluster) string {
	return endpoint(c, c.FrontProxy) + fmt.Sprintf("%q %q %v", c.UserPrefix, c.GroupPrefix, c.ForwardUID)
}

func TestDigestsTellClustersApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawCluster(t), drawCluster(t)
		if rapid.Bool().Draw(t, "alike") {
			*b = *a
			switch rapid.IntRange(0, 7).Draw(t, "change") {
			case 0:
				b.UserPrefix, b.GroupPrefix = b.GroupPrefix, b.UserPrefix
			case 1:
				b.Target.Address, b.Target.Host = b.Target.Host, b.Target.Address
			case 2:
				b.FrontProxy = nil
			case 3:
				b.ForwardUID = !b.ForwardUID
			case 4:
				b.Mode = v1.ModeFrontProxy
			case 5:
				b.Key.Name, b.Generation, b.RequiredGroup = "x", 9, "g"
			case 6:
				b.FrontProxy, b.ClientCert = b.ClientCert, b.FrontProxy
			}
		}
		if (a.TrustKey() == b.TrustKey()) != (trusted(a) == trusted(b)) {
			t.Fatalf("TrustKey of %+v and %+v", a, b)
		}
		if (a.CredentialID() == b.CredentialID()) != (endpoint(a, a.Presented()) == endpoint(b, b.Presented())) {
			t.Fatalf("CredentialID of %+v and %+v", a, b)
		}
		if (a.EndpointID() == b.EndpointID()) != (endpoint(a, nil) == endpoint(b, nil)) {
			t.Fatalf("EndpointID of %+v and %+v", a, b)
		}
		if a.TrustKey() == a.CredentialID() || a.EndpointID() == a.CredentialID() {
			t.Fatal("digests of different things are equal")
		}
	})
}
