package compile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

const mtlsRead = "Secret team-a/mtls"

func refTo(name, key string) *v1.KeyReference { return &v1.KeyReference{Name: name, Key: key} }

// withClientCert reads both halves from Secret team-a/mtls.
func withClientCert(s *v1.ProxyKubeApiSpec) {
	s.ClientCert = &v1.ClientCert{Cert: v1.CertSource{Secret: refTo("mtls", "tls.crt")}, Key: v1.CertSource{Secret: refTo("mtls", "tls.key")}}
}

func (b *bench) putMTLS(pair k8stest.PemPair, change ...func(*corev1.Secret)) {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "mtls"},
		Data:       map[string][]byte{"tls.crt": pair.Crt, "tls.key": pair.Key},
	}
	for _, c := range change {
		c(s)
	}
	b.putSecret(s)
}

// wantClientCert checks that a certificate is presented; nil that none is.
func wantClientCert(t *testing.T, c *k8swatch.Cluster, pair *k8stest.PemPair) {
	t.Helper()
	switch {
	case pair == nil && c.ClientCert != nil:
		t.Errorf("presents %v", c.ClientCert)
	case pair == nil:
	case c.ClientCert == nil:
		t.Error("presents nothing")
	case c.ClientCert.Fingerprint != keypair.Parse(pair.Crt, pair.Key, clientCertPair()).Certificate.Fingerprint:
		t.Error("presents another certificate")
	}
}

func TestClientCertSources(t *testing.T) { // CERT-9
	good := k8stest.Certificate(t)
	inline := func(data []byte) v1.CertSource { return v1.CertSource{Cert: base64PEM(data)} }
	secret := func(key string) v1.CertSource { return v1.CertSource{Secret: refTo("mtls", key)} }
	configMap := func(key string) v1.CertSource { return v1.CertSource{ConfigMap: refTo("mtls", key)} }
	broken := "%"
	tests := map[string]struct {
		cert, key v1.CertSource
		reason    string // empty when it is served
		message   string
	}{
		"Secret":                  {cert: secret("tls.crt"), key: secret("tls.key")},
		"ConfigMap":               {cert: configMap("tls.crt"), key: configMap("tls.key")},
		"ConfigMap and Secret":    {cert: configMap("tls.crt"), key: secret("tls.key")},
		"in the object":           {cert: inline(good.Crt), key: inline(good.Key)},
		"half in the object":      {cert: inline(good.Crt), key: secret("tls.key")},
		"no PEM in the object":    {inline([]byte("hidden")), inline(good.Key), k8swatch.ReasonInvalidSpec, "spec.client_cert: client_cert.cert holds no PEM certificate"},
		"no base64 in the object": {v1.CertSource{Cert: &broken}, inline(good.Key), k8swatch.ReasonInvalidSpec, "spec.client_cert.cert.Cert: must be PEM in base64"},
		"no key in the object":    {inline(good.Crt), inline([]byte("hidden")), k8swatch.ReasonInvalidSpec, "spec.client_cert: client_cert.key holds no PEM private key"},
		"another key, half in it": {inline(k8stest.Certificate(t, ownKey(t)).Crt), secret("tls.key"), k8swatch.ReasonReferenceNotFound, "spec.client_cert: get Secret team-a/mtls: client_cert.key is not the key of the first certificate in client_cert.cert"},
		"system roots":            {v1.CertSource{SystemRoots: ptr.To(true)}, secret("tls.key"), k8swatch.ReasonInvalidSpec, "spec.client_cert.cert: must be Secret, ConfigMap or Cert"},
		"insecure":                {secret("tls.crt"), v1.CertSource{Insecure: ptr.To(true)}, k8swatch.ReasonInvalidSpec, "spec.client_cert.key: must be Secret, ConfigMap or Cert"},
		"nothing":                 {v1.CertSource{}, v1.CertSource{}, k8swatch.ReasonInvalidSpec, "spec.client_cert.cert: must be"},
		"no such key":             {secret("other"), secret("tls.key"), k8swatch.ReasonReferenceNotFound, `spec.client_cert: get Secret team-a/mtls: has no key "other"`},
		"two objects":             {configMap("none"), secret("none"), k8swatch.ReasonReferenceNotFound, `get ConfigMap team-a/mtls: has no key "none"; get Secret team-a/mtls: has no key "none"`},
		"cert is the key":         {secret("tls.key"), secret("tls.key"), k8swatch.ReasonReferenceNotFound, "client_cert.cert holds no PEM certificate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putMTLS(good)
			b.store.ConfigMaps[k8swatch.Key{Namespace: "team-a", Name: "mtls"}] = &corev1.ConfigMap{
				Data: map[string]string{"tls.crt": string(good.Crt), "tls.key": string(good.Key)}}
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.ClientCert = &v1.ClientCert{Cert: tt.cert, Key: tt.key} }))
			c := b.compile()
			if strings.Contains(c.Ready.Message, "hidden") {
				t.Errorf("the message repeats a content: %s", c.Ready.Message)
			}
			if tt.reason != "" {
				k8stest.WantReady(t, c, tt.reason, tt.message)
				wantClientCert(t, c, nil)
				return
			}
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			wantClientCert(t, c, &good)
			if b.compile() != c {
				t.Error("a new value though nothing changed")
			}
		})
	}
}

// ownKey gives a certificate another key than the rest.
func ownKey(t *testing.T) func(*k8stest.CertOptions) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *k8stest.CertOptions) { o.Signer = key }
}

// CERT-7: what is wrong with the pair, before and after it was once good.
func TestClientCertHoldsItsLastGoodValue(t *testing.T) {
	good := k8stest.Certificate(t)
	tests := map[string]struct {
		spoil func(*bench)
		part  string
	}{
		"deleted":   {func(b *bench) { b.removeSecret("team-a", "mtls") }, "get Secret team-a/mtls: it does not exist"},
		"forbidden": {func(b *bench) { b.fail(mtlsRead, k8stest.ErrForbidden()) }, "get Secret team-a/mtls: forbidden"},
		"empty":     {func(b *bench) { b.putMTLS(k8stest.PemPair{}) }, "get Secret team-a/mtls: client_cert.cert holds no PEM certificate"},
		"half renewed": {func(b *bench) { b.putMTLS(k8stest.PemPair{Crt: k8stest.Certificate(t, ownKey(t)).Crt, Key: good.Key}) },
			"get Secret team-a/mtls: client_cert.key is not the key of the first certificate"},
		"for servers only": {func(b *bench) {
			b.putMTLS(k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Usages = nil; o.Unknown = true }))
		}, "extended key usage without clientAuth"},
		"expired":       {func(b *bench) { b.putMTLS(validity(t, -2*time.Hour, -time.Hour)) }, "the certificate expired at 2030-03-01T11:00:00Z"},
		"not yet valid": {func(b *bench) { b.putMTLS(validity(t, time.Hour, 2*time.Hour)) }, "not valid before 2030-03-01T13:00:00Z"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(withClientCert))
			b.putMTLS(good)
			tt.spoil(b)
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound, "spec.client_cert: ", tt.part)
			wantClientCert(t, c, nil)

			b = newBench(t)
			b.put(k8stest.Object(withClientCert))
			b.putMTLS(good)
			before := b.compile()
			k8stest.WantReady(t, before, k8swatch.ReasonServing)
			tt.spoil(b)
			c = b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			k8stest.WantNotice(t, c, k8swatch.NoticeReferenceStale, tt.part, "stays in force")
			if c.ClientCert != before.ClientCert || c.CredentialID() != before.CredentialID() {
				t.Error("the last good pair is not kept")
			}
			// It is kept for as long as it is valid.
			b.now = k8stest.Now.Add(23*time.Hour + time.Second)
			c = b.compile()
			if name != "not yet valid" {
				k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound, tt.part)
			}
			wantClientCert(t, c, nil)

			b.now = k8stest.Now
			b.heal(mtlsRead)
			b.putMTLS(good)
			c = b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonServing)
			k8stest.WantNoNotice(t, c, k8swatch.NoticeReferenceStale)
		})
	}
}

func validity(t *testing.T, from, until time.Duration) k8stest.PemPair {
	return k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.From, o.Until = k8stest.Now.Add(from), k8stest.Now.Add(until) })
}

// The clock alone: not yet valid, valid, expiring, expired.
func TestClientCertByTheClock(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(withClientCert))
	b.putMTLS(validity(t, time.Hour, 4*time.Hour))
	at := func(after time.Duration) *k8swatch.Cluster {
		b.now = k8stest.Now.Add(after)
		return b.compile()
	}
	wantNext := func(c *k8swatch.Cluster, after time.Duration) {
		t.Helper()
		if d := c.RecompileAt.Sub(k8stest.Now); d.Truncate(time.Second) != after {
			t.Errorf("looked at again after %v, want %v", d, after)
		}
	}
	c := at(0)
	k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound)
	wantNext(c, time.Hour)
	c = at(time.Hour)
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNoNotice(t, c, k8swatch.NoticeClientCertExpiring)
	wantNext(c, 3*time.Hour+10*time.Minute) // a third of the lifetime, ten minutes later
	c = at(3*time.Hour + 10*time.Minute)
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNotice(t, c, k8swatch.NoticeClientCertExpiring, "the certificate of client_cert expires at 2030-03-01T16:00:00Z")
	wantNext(c, 4*time.Hour)
	c = at(4*time.Hour + time.Second)
	k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound, "expired")
	if !c.RecompileAt.IsZero() {
		t.Errorf("looked at again at %v", c.RecompileAt)
	}
}

// What was held belongs to the reference it was read by, and to nothing that
// the proxy keeps for itself (API-5).
func TestClientCertInheritsNothing(t *testing.T) {
	tests := map[string]struct {
		change func(*bench)
		reason string
	}{
		"another Secret": {func(b *bench) { b.spec().ClientCert.Cert.Secret.Name = "other" }, k8swatch.ReasonReferenceNotFound},
		"another key":    {func(b *bench) { b.spec().ClientCert.Key.Secret.Key = "other" }, k8swatch.ReasonReferenceNotFound},
		"another kind": {func(b *bench) {
			b.spec().ClientCert.Key = v1.CertSource{ConfigMap: refTo("mtls", "tls.key")}
		}, k8swatch.ReasonReferenceNotFound},
		"another namespace": {func(b *bench) { b.spec().ClientCert.Cert.Secret.Namespace = ptr.To("team-b") }, k8swatch.ReasonInvalidSpec},
		"a Secret of the proxy by name": {func(b *bench) {
			b.spec().ClientCert.Cert.Secret.Name = "proxyauth-frontproxy-x"
		}, k8swatch.ReasonInvalidSpec},
		"a Secret of the proxy by label": {func(b *bench) {
			b.putMTLS(k8stest.Certificate(b.t), func(s *corev1.Secret) { s.Labels = map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue} })
		}, k8swatch.ReasonInvalidSpec},
		"away and back while it cannot be read": {func(b *bench) {
			withIt := b.spec().ClientCert
			b.spec().ClientCert = nil
			wantClientCert(b.t.(*testing.T), b.compile(), nil)
			b.spec().ClientCert = withIt
			b.fail(mtlsRead, k8stest.ErrForbidden())
		}, k8swatch.ReasonReferenceNotFound},
		"FrontProxy and back while it cannot be read": {func(b *bench) {
			k8stest.InFrontProxy(b.spec())
			wantClientCert(b.t.(*testing.T), b.compile(), nil)
			b.spec().UpstreamAuth = nil
			b.fail(mtlsRead, k8stest.ErrForbidden())
		}, k8swatch.ReasonReferenceNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(withClientCert))
			b.putMTLS(k8stest.Certificate(t))
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
			tt.change(b)
			c := b.compile()
			k8stest.WantReady(t, c, tt.reason)
			wantClientCert(t, c, nil)
		})
	}
}

func (b *bench) spec() *v1.ProxyKubeApiSpec { return &b.store.Objects[k8stest.Key].ProxyKubeApi.Spec }

// ID-4, REC-7: in preparation there are two certificates, one for the relay and
// one for the probe; FrontProxy refuses client_cert, and nothing but that is
// told of it.
func TestClientCertInPreparation(t *testing.T) {
	b := newBench(t)
	front, passing := k8stest.Certificate(t), k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject.CommonName = "gate" })
	b.putSecret(k8stest.FrontProxySecret(front))
	b.putMTLS(passing)
	b.put(k8stest.Object(withClientCert, k8stest.InPreparation))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	wantClientCert(t, c, &passing)
	if !c.Probe || c.FrontProxy == nil || c.Presented() != c.ClientCert {
		t.Errorf("Probe %t, front proxy %v, presented %v", c.Probe, c.FrontProxy, c.Presented())
	}
	if len(c.Missing) != 1 || !strings.Contains(c.Missing[0].Message, "client_cert cannot be used with FrontProxy") {
		t.Errorf("Missing %v", c.Missing)
	}
	plain := newBench(t)
	plain.put(k8stest.Object())
	if plain.compile().CredentialID() == c.CredentialID() {
		t.Error("connections with the certificate pass for connections without")
	}

	b.removeSecret("team-a", "mtls")
	b.forget()
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound)
	if len(c.Missing) != 1 || c.Missing[0].Reason != k8swatch.ReasonInvalidSpec {
		t.Errorf("Missing %v", c.Missing)
	}

	k8stest.InFrontProxy(b.spec())
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonInvalidSpec, "client_cert cannot be used with FrontProxy")
	if c.Presented() != c.FrontProxy || c.FrontProxy == nil {
		t.Error("another certificate than the front proxy's")
	}
}

// REC-6: what can be asked whether it answers.
func TestTargetKnown(t *testing.T) {
	tests := map[string]struct {
		change func(*v1.ProxyKubeApiSpec)
		want   bool
	}{
		"plain":     {func(*v1.ProxyKubeApiSpec) {}, true},
		"not ready": {func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = ptr.To("") }, true},
		"disabled":  {func(s *v1.ProxyKubeApiSpec) { s.Enabled = ptr.To(false) }, false},
		"bad URL":   {func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = "http://x" }, false},
		"no CA":     {func(s *v1.ProxyKubeApiSpec) { s.Cert = &v1.CertSource{Secret: refTo("none", "ca.crt")} }, false},
		"no Service": {func(s *v1.ProxyKubeApiSpec) {
			s.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "k"}}
		}, false},
		"Agent":          {func(s *v1.ProxyKubeApiSpec) { s.Service = v1.Service{Agent: &v1.Agent{}} }, false},
		"no client_cert": {withClientCert, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(tt.change))
			if c := b.compile(); c.TargetKnown != tt.want {
				t.Errorf("TargetKnown %t", c.TargetKnown)
			}
		})
	}
}
