package compile

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

func base64PEM(data []byte) *string { return ptr.To(base64.StdEncoding.EncodeToString(data)) }

// verifiesNothing says whether a pool is neither the system roots nor holds a CA.
func verifiesNothing(pool *x509.CertPool) bool {
	return pool != nil && pool.Equal(x509.NewCertPool())
}

func TestCertSources(t *testing.T) { // API-6
	good := k8stest.Certificate(t).Crt
	tests := map[string]struct {
		cert   *v1.CertSource
		reason string
		part   string
		system bool
	}{
		"absent":             {nil, k8swatch.ReasonServing, "", true},
		"SystemRoots":        {&v1.CertSource{SystemRoots: ptr.To(true)}, k8swatch.ReasonServing, "", true},
		"SystemRoots, false": {&v1.CertSource{SystemRoots: ptr.To(false)}, k8swatch.ReasonServing, "", true},
		"Insecure (legacy)":  {&v1.CertSource{Insecure: ptr.To(true)}, k8swatch.ReasonServing, "", true},
		"inline":             {&v1.CertSource{Cert: base64PEM(good)}, k8swatch.ReasonServing, "", false},
		"inline, in lines":   {&v1.CertSource{Cert: ptr.To("\n" + (*base64PEM(good))[:20] + "\n" + (*base64PEM(good))[20:] + "\n")}, k8swatch.ReasonServing, "", false},
		"inline, empty":      {&v1.CertSource{Cert: ptr.To("")}, k8swatch.ReasonInvalidSpec, "spec.cert.Cert: holds no PEM certificate", false},
		"inline, blank":      {&v1.CertSource{Cert: ptr.To(" \n")}, k8swatch.ReasonInvalidSpec, "spec.cert.Cert: holds no PEM certificate", false},
		"inline, PEM":        {&v1.CertSource{Cert: ptr.To(string(good))}, k8swatch.ReasonInvalidSpec, "spec.cert.Cert: must be PEM in base64", false},
		"inline, no PEM":     {&v1.CertSource{Cert: base64PEM([]byte("hello"))}, k8swatch.ReasonInvalidSpec, "holds no PEM certificate", false},
		"inline, a key":      {&v1.CertSource{Cert: base64PEM(k8stest.Certificate(t).Key)}, k8swatch.ReasonInvalidSpec, "holds no PEM certificate", false},
		"inline, bad DER":    {&v1.CertSource{Cert: base64PEM([]byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"))}, k8swatch.ReasonInvalidSpec, "cannot be parsed (number 1)", false},
		"inline, cut short":  {&v1.CertSource{Cert: base64PEM(append(bytes.Clone(good), good[:100]...))}, k8swatch.ReasonInvalidSpec, "PEM block is broken", false},
		"inline, one is bad": {&v1.CertSource{Cert: base64PEM(append(bytes.Clone(good), "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"...))}, k8swatch.ReasonInvalidSpec, "cannot be parsed (number 2)", false},
		"none of the five":   {&v1.CertSource{}, k8swatch.ReasonInvalidSpec, "spec.cert: exactly one of", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) { s.Cert = test.cert }))
			c := b.compile()
			k8stest.WantReady(t, c, test.reason, test.part)
			if (c.CA == nil) != test.system || (c.CAHash == "") != test.system {
				t.Errorf("CA %v, CAHash %q; want system roots: %v", c.CA, c.CAHash, test.system)
			}
			if test.reason != k8swatch.ReasonServing && !verifiesNothing(c.CA) {
				t.Error("a CA that is refused verifies something")
			}
		})
	}
}

func TestCAHash(t *testing.T) {
	one, two := k8stest.Certificate(t).Crt, k8stest.Certificate(t).Crt
	hash := func(pems ...[]byte) string {
		b := newBench(t)
		b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
			s.Cert = &v1.CertSource{Cert: base64PEM(bytes.Join(pems, []byte("# comment\n")))}
		}))
		return b.compile().CAHash
	}
	if hash(one, two) != hash(two, one) || hash(one, one) != hash(one) {
		t.Error("the hash depends on order or repetition")
	}
	if hash(one) == hash(two) || hash(one) == hash(one, two) || hash(one) == unknownCAHash {
		t.Error("different CAs have one hash")
	}
}

const caRead = "Secret team-a/ca"

// caBench has an object whose CA is in Secret team-a/ca, key ca.crt.
func caBench(t *testing.T, data map[string][]byte) *bench {
	b := newBench(t)
	b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
		s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: "ca", Key: "ca.crt"}}
	}))
	if data != nil {
		b.putCA(data)
	}
	return b
}

func (b *bench) putCA(data map[string][]byte, change ...func(*corev1.Secret)) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "ca"}, Data: data}
	for _, c := range change {
		c(s)
	}
	b.putSecret(s)
}

// What is wrong with a reference, before and after it was once read well
// (CERT-7, API-6, CRD-02).
func TestReferencesHoldTheirLastGoodValue(t *testing.T) {
	good := map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt}
	tests := map[string]struct {
		spoil func(*bench)
		part  string
	}{
		"deleted":    {func(b *bench) { b.removeSecret("team-a", "ca") }, "get Secret team-a/ca: it does not exist"},
		"forbidden":  {func(b *bench) { b.fail(caRead, k8stest.ErrForbidden()) }, "get Secret team-a/ca: forbidden"},
		"hub away":   {func(b *bench) { b.fail(caRead, k8stest.ErrText("dial tcp 10.9.9.9:443: hidden")) }, "get Secret team-a/ca: the read failed"},
		"timeout":    {func(b *bench) { b.fail(caRead, apierrors.NewTimeoutError("hidden", 1)) }, "get Secret team-a/ca: timed out"},
		"no rights":  {func(b *bench) { b.fail(caRead, apierrors.NewUnauthorized("hidden")) }, "get Secret team-a/ca: unauthorized"},
		"no key":     {func(b *bench) { b.putCA(map[string][]byte{"tls.crt": good["ca.crt"]}) }, `get Secret team-a/ca: has no key "ca.crt"`},
		"empty":      {func(b *bench) { b.putCA(map[string][]byte{"ca.crt": nil}) }, `get Secret team-a/ca: key "ca.crt" holds no PEM certificate`},
		"unparsable": {func(b *bench) { b.putCA(map[string][]byte{"ca.crt": []byte("hidden")}) }, `get Secret team-a/ca: key "ca.crt" holds no PEM certificate`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := caBench(t, good)
			test.spoil(b)
			never := b.compile()
			k8stest.WantReady(t, never, k8swatch.ReasonReferenceNotFound, "spec.cert.Secret: "+test.part)
			if !verifiesNothing(never.CA) {
				t.Error("a CA that was never read verifies something")
			}
			k8stest.WantNoNotice(t, never, k8swatch.NoticeReferenceStale)

			b = caBench(t, good)
			before := b.compile()
			k8stest.WantReady(t, before, k8swatch.ReasonServing)
			test.spoil(b)
			after := b.compile()
			k8stest.WantReady(t, after, k8swatch.ReasonServing)
			k8stest.WantNotice(t, after, k8swatch.NoticeReferenceStale, test.part)
			if after.CA != before.CA || after.TrustKey() != before.TrustKey() {
				t.Error("the last good value is not kept")
			}
			for _, c := range []*k8swatch.Cluster{never, after} {
				for _, n := range append(c.Notices, c.Ready) {
					if strings.Contains(n.Message, "hidden") {
						t.Errorf("the message repeats an error or a content: %s", n.Message)
					}
				}
			}

			b.heal(caRead)
			b.putCA(good)
			k8stest.WantNoNotice(t, b.compile(), k8swatch.NoticeReferenceStale)
		})
	}
}

// A held CA belongs to the reference it was read by: changes of cert apply at
// once (CERT-8).
func TestAChangedReferenceInheritsNothing(t *testing.T) {
	good := map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt, "other.crt": nil}
	changes := map[string]*v1.CertSource{
		"name": {Secret: &v1.KeyReference{Name: "other", Key: "ca.crt"}},
		"key":  {Secret: &v1.KeyReference{Name: "ca", Key: "other.crt"}},
		"kind": {ConfigMap: &v1.KeyReference{Name: "ca", Key: "ca.crt"}},
	}
	for name, cert := range changes {
		t.Run(name, func(t *testing.T) {
			b := caBench(t, good)
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
			b.store.Objects[k8stest.Key].ProxyKubeApi.Spec.Cert = cert
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonReferenceNotFound)
			if !verifiesNothing(c.CA) {
				t.Error("the CA of another reference is kept")
			}
		})
	}
}

func TestConfigMapReference(t *testing.T) {
	for _, binary := range []bool{false, true} {
		b := newBench(t)
		b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
			s.Cert = &v1.CertSource{ConfigMap: &v1.KeyReference{Name: "proxyauth-agent-x", Key: "ca.crt"}}
		}))
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{k8swatch.ManagedByLabel: k8swatch.ManagedByValue}}}
		if binary {
			m.BinaryData = map[string][]byte{"ca.crt": k8stest.Certificate(t).Crt}
		} else {
			m.Data = map[string]string{"ca.crt": string(k8stest.Certificate(t).Crt)}
		}
		b.store.ConfigMaps[k8swatch.Key{Namespace: "team-a", Name: "proxyauth-agent-x"}] = m
		// Only Secrets are protected (API-5).
		c := b.compile()
		k8stest.WantReady(t, c, k8swatch.ReasonServing)
		if c.CA == nil {
			t.Error("no CA")
		}
	}
}

// API-4: each place where a CA can be written refuses what costs too much.
func TestEveryPlaceOfACA(t *testing.T) {
	large := string(k8stest.RootOfBits(t, keypair.MaxRSABits+1))
	for path, change := range map[string]func(*v1.ProxyKubeApiSpec){
		"spec.cert.Cert": func(s *v1.ProxyKubeApiSpec) { s.Cert = &v1.CertSource{Cert: base64PEM([]byte(large))} },
		"spec.auth_config.jwt[0].issuer.certificate_authority": func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.JWT[0].Issuer.CertificateAuthority = &large
		},
	} {
		b := newBench(t)
		b.put(k8stest.Object(change))
		c := b.compile()
		if c.Ready.Reason != k8swatch.ReasonInvalidSpec || !bytes.Contains([]byte(c.Ready.Message), []byte(path)) || !bytes.Contains([]byte(c.Ready.Message), []byte(keypair.ErrLargeKey.Error())) {
			t.Errorf("%s: %+v", path, c.Ready)
		}
	}
}

// A thousand objects may name one bundle.
func TestBundlesAreShared(t *testing.T) {
	b := newBench(t)
	ca := k8stest.Certificate(t).Crt
	all := b.Compiler.bundles
	first, err := all.get(ca)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := all.get(bytes.Clone(ca)); err != nil || second != first {
		t.Errorf("got %p and %p, %v", first, second, err)
	}
	if other, err := all.get(k8stest.Certificate(t).Crt); err != nil || other == first {
		t.Errorf("another is the same, %v", err)
	}
}
