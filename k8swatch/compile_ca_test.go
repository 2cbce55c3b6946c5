package k8swatch

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func base64PEM(data []byte) *string { return ptr(base64.StdEncoding.EncodeToString(data)) }

// verifiesNothing says whether a pool is neither the system roots nor holds a CA.
func verifiesNothing(pool *x509.CertPool) bool {
	return pool != nil && pool.Equal(x509.NewCertPool())
}

func TestCertSources(t *testing.T) { // API-6
	good := certificate(t).crt
	tests := map[string]struct {
		cert   *v1.CertSource
		reason string
		part   string
		system bool
	}{
		"absent":             {nil, ReasonServing, "", true},
		"SystemRoots":        {&v1.CertSource{SystemRoots: ptr(true)}, ReasonServing, "", true},
		"SystemRoots, false": {&v1.CertSource{SystemRoots: ptr(false)}, ReasonServing, "", true},
		"Insecure (legacy)":  {&v1.CertSource{Insecure: ptr(true)}, ReasonServing, "", true},
		"inline":             {&v1.CertSource{Cert: base64PEM(good)}, ReasonServing, "", false},
		"inline, in lines":   {&v1.CertSource{Cert: ptr("\n" + (*base64PEM(good))[:20] + "\n" + (*base64PEM(good))[20:] + "\n")}, ReasonServing, "", false},
		"inline, empty":      {&v1.CertSource{Cert: ptr("")}, ReasonInvalidSpec, "spec.cert.Cert: holds no PEM certificate", false},
		"inline, blank":      {&v1.CertSource{Cert: ptr(" \n")}, ReasonInvalidSpec, "spec.cert.Cert: holds no PEM certificate", false},
		"inline, PEM":        {&v1.CertSource{Cert: ptr(string(good))}, ReasonInvalidSpec, "spec.cert.Cert: must be PEM in base64", false},
		"inline, no PEM":     {&v1.CertSource{Cert: base64PEM([]byte("hello"))}, ReasonInvalidSpec, "holds no PEM certificate", false},
		"inline, a key":      {&v1.CertSource{Cert: base64PEM(certificate(t).key)}, ReasonInvalidSpec, "holds no PEM certificate", false},
		"inline, bad DER":    {&v1.CertSource{Cert: base64PEM([]byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"))}, ReasonInvalidSpec, "cannot be parsed (number 1)", false},
		"inline, cut short":  {&v1.CertSource{Cert: base64PEM(append(bytes.Clone(good), good[:100]...))}, ReasonInvalidSpec, "PEM block is broken", false},
		"inline, one is bad": {&v1.CertSource{Cert: base64PEM(append(bytes.Clone(good), "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"...))}, ReasonInvalidSpec, "cannot be parsed (number 2)", false},
		"none of the five":   {&v1.CertSource{}, ReasonInvalidSpec, "spec.cert: exactly one of", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(object(func(s *v1.ProxyKubeApiSpec) { s.Cert = test.cert }))
			c := b.compile()
			wantReady(t, c, test.reason, test.part)
			if (c.CA == nil) != test.system || (c.CAHash == "") != test.system {
				t.Errorf("CA %v, CAHash %q; want system roots: %v", c.CA, c.CAHash, test.system)
			}
			if test.reason != ReasonServing && !verifiesNothing(c.CA) {
				t.Error("a CA that is refused verifies something")
			}
		})
	}
}

func TestCAHash(t *testing.T) {
	one, two := certificate(t).crt, certificate(t).crt
	hash := func(pems ...[]byte) string {
		b := newBench(t)
		b.put(object(func(s *v1.ProxyKubeApiSpec) {
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
	b.put(object(func(s *v1.ProxyKubeApiSpec) {
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
	good := map[string][]byte{"ca.crt": certificate(t).crt}
	tests := map[string]struct {
		spoil func(*bench)
		part  string
	}{
		"deleted":    {func(b *bench) { b.removeSecret("team-a", "ca") }, "get Secret team-a/ca: it does not exist"},
		"forbidden":  {func(b *bench) { b.fail(caRead, errForbidden()) }, "get Secret team-a/ca: forbidden"},
		"hub away":   {func(b *bench) { b.fail(caRead, errText("dial tcp 10.9.9.9:443: hidden")) }, "get Secret team-a/ca: the read failed"},
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
			wantReady(t, never, ReasonReferenceNotFound, "spec.cert.Secret: "+test.part)
			if !verifiesNothing(never.CA) {
				t.Error("a CA that was never read verifies something")
			}
			wantNoNotice(t, never, NoticeReferenceStale)

			b = caBench(t, good)
			before := b.compile()
			wantReady(t, before, ReasonServing)
			test.spoil(b)
			after := b.compile()
			wantReady(t, after, ReasonServing)
			wantNotice(t, after, NoticeReferenceStale, test.part)
			if after.CA != before.CA || after.SetID() != before.SetID() {
				t.Error("the last good value is not kept")
			}
			for _, c := range []*Cluster{never, after} {
				for _, n := range append(c.Notices, c.Ready) {
					if strings.Contains(n.Message, "hidden") {
						t.Errorf("the message repeats an error or a content: %s", n.Message)
					}
				}
			}

			b.heal(caRead)
			b.putCA(good)
			wantNoNotice(t, b.compile(), NoticeReferenceStale)
		})
	}
}

// A held CA belongs to the reference it was read by: changes of cert apply at
// once (CERT-8).
func TestAChangedReferenceInheritsNothing(t *testing.T) {
	good := map[string][]byte{"ca.crt": certificate(t).crt, "other.crt": nil}
	changes := map[string]*v1.CertSource{
		"name": {Secret: &v1.KeyReference{Name: "other", Key: "ca.crt"}},
		"key":  {Secret: &v1.KeyReference{Name: "ca", Key: "other.crt"}},
		"kind": {ConfigMap: &v1.KeyReference{Name: "ca", Key: "ca.crt"}},
	}
	for name, cert := range changes {
		t.Run(name, func(t *testing.T) {
			b := caBench(t, good)
			wantReady(t, b.compile(), ReasonServing)
			b.store.objects[testKey].ProxyKubeApi.Spec.Cert = cert
			c := b.compile()
			wantReady(t, c, ReasonReferenceNotFound)
			if !verifiesNothing(c.CA) {
				t.Error("the CA of another reference is kept")
			}
		})
	}
}

func TestConfigMapReference(t *testing.T) {
	for _, binary := range []bool{false, true} {
		b := newBench(t)
		b.put(object(func(s *v1.ProxyKubeApiSpec) {
			s.Cert = &v1.CertSource{ConfigMap: &v1.KeyReference{Name: "proxyauth-agent-x", Key: "ca.crt"}}
		}))
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ManagedByLabel: ManagedByValue}}}
		if binary {
			m.BinaryData = map[string][]byte{"ca.crt": certificate(t).crt}
		} else {
			m.Data = map[string]string{"ca.crt": string(certificate(t).crt)}
		}
		b.store.configMaps[Key{Namespace: "team-a", Name: "proxyauth-agent-x"}] = m
		// Only Secrets are protected (API-5).
		c := b.compile()
		wantReady(t, c, ReasonServing)
		if c.CA == nil {
			t.Error("no CA")
		}
	}
}
