package k8swatch

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// drawSet draws a cluster from few values, so that pairs often differ in one
// place only, or in where a separator stands.
func drawSet(t *rapid.T) *Cluster {
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

// endpoint and set are what the digests must tell apart, as values to compare.
func endpoint(c *Cluster, cert *ClientCertificate) string {
	var chain [][]byte
	if cert != nil {
		chain = cert.TLS.Certificate
	}
	return fmt.Sprintf("%#v %q %v %q %v %q", c.Target, c.ServerName, c.CA == nil, c.CAHash, cert == nil, chain)
}

func set(c *Cluster) string {
	return endpoint(c, c.FrontProxy) + fmt.Sprintf("%q %q %v", c.UserPrefix, c.GroupPrefix, c.ForwardUID)
}

func TestDigestsTellClustersApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSet(t), drawSet(t)
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
		if (a.SetID() == b.SetID()) != (set(a) == set(b)) {
			t.Fatalf("SetID of %+v and %+v", a, b)
		}
		if (a.CredentialID() == b.CredentialID()) != (endpoint(a, a.Presented()) == endpoint(b, b.Presented())) {
			t.Fatalf("CredentialID of %+v and %+v", a, b)
		}
		if (a.EndpointID() == b.EndpointID()) != (endpoint(a, nil) == endpoint(b, nil)) {
			t.Fatalf("EndpointID of %+v and %+v", a, b)
		}
		if a.SetID() == a.CredentialID() || a.EndpointID() == a.CredentialID() {
			t.Fatal("digests of different things are equal")
		}
	})
}

func TestSameCluster(t *testing.T) {
	base := func() *Cluster {
		return &Cluster{Notices: []Condition{notice("A", "b")}, Auth: Auth{
			JWT: make([]JWT, 1), Hash: "h", OIDC: &OIDCProvider{}, Exchange: &TokenExchange{TokenURL: "https://t"},
		}}
	}
	a := base()
	same := *a
	if !sameCluster(a, &same) {
		t.Error("a copy is not the same")
	}
	changes := map[string]func(*Cluster){
		"notice":      func(c *Cluster) { c.Notices = []Condition{notice("A", "c")} },
		"ready":       func(c *Cluster) { c.Ready.Message = "x" },
		"pool":        func(c *Cluster) { c.CA = x509.NewCertPool() },
		"certificate": func(c *Cluster) { c.FrontProxy = &ClientCertificate{TLS: tls.Certificate{}} },
		"client_cert": func(c *Cluster) { c.ClientCert = &ClientCertificate{TLS: tls.Certificate{}} },
		"jwt":         func(c *Cluster) { c.Auth.JWT = make([]JWT, 1) },
		"no jwt":      func(c *Cluster) { c.Auth.JWT = nil },
		"oidc":        func(c *Cluster) { c.Auth.OIDC = &OIDCProvider{} },
		"exchange":    func(c *Cluster) { c.Auth.Exchange = &TokenExchange{} },
		"recheck":     func(c *Cluster) { c.RecheckAt = testNow },
		"missing":     func(c *Cluster) { c.Missing = []Condition{{}} },
	}
	for name, change := range changes {
		changed := *a
		change(&changed)
		if sameCluster(a, &changed) {
			t.Errorf("%s: the same", name)
		}
	}
	if sameCluster(nil, a) || sameCluster(a, nil) {
		t.Error("nothing is the same as a cluster")
	}
}

// A field added to Cluster is compared, or this test says where to think of it.
func TestSameClusterKnowsAllThatCannotBeCompared(t *testing.T) {
	special := map[string]bool{"CA": true, "FrontProxy": true, "ClientCert": true, "Auth": true}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(Cluster{})) {
		switch f.Type.Kind() {
		case reflect.Pointer, reflect.Interface, reflect.Func, reflect.Map, reflect.Chan:
			if !special[f.Name] {
				t.Errorf("sameCluster compares %s by what it points to", f.Name)
			}
		}
	}
}

func TestRenews(t *testing.T) { // TRUST-2
	compile := func(pair pemPair, change ...func(*v1.ProxyKubeApiSpec)) *Cluster {
		b := newBench(t)
		b.put(object(append([]func(*v1.ProxyKubeApiSpec){inFrontProxy}, change...)...))
		b.putSecret(frontProxySecretOf(pair))
		return b.compile()
	}
	first, second := certificate(t), certificate(t)
	old := compile(first)
	if !compile(second).Renews(old) {
		t.Error("a renewal is not seen as one")
	}
	others := map[string]*Cluster{
		"nothing new":     compile(first),
		"another subject": compile(certificate(t, func(o *certOptions) { o.subject.CommonName = "b" })),
		"another prefix":  compile(second, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix = ptr("u:") }),
		"another name":    compile(second, func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = "other" }),
		"no certificate":  compile(pemPair{}),
	}
	for name, c := range others {
		if c.Renews(old) || name != "nothing new" && old.Renews(c) {
			t.Errorf("%s passes for a renewal", name)
		}
	}
}
