package compile

import (
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// What can be wrong with the Secret, before and after a good pair was held.
// Withdrawn by the admin (CERT-5), it closes at once; contents that cannot be
// used and reads that fail leave the pair serving (CERT-6).
func TestFrontProxySecret(t *testing.T) {
	good := k8stest.Certificate(t)
	reserved := k8stest.Certificate(t, func(o *k8stest.CertOptions) {
		o.Subject = pkix.Name{CommonName: "a", Organization: []string{"system:masters"}}
	})
	expired := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Until = k8stest.Now.Add(-time.Minute) })
	future := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.From = k8stest.Now.Add(time.Minute) })
	serverOnly := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Usages = append(o.Usages[:0:0], 1) })
	with := func(pair k8stest.PemPair, change ...func(*corev1.Secret)) func(*bench) {
		return func(b *bench) { b.putSecret(k8stest.FrontProxySecret(pair, change...)) }
	}
	annotate := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Annotations[key] = value }
	}
	const kept = k8swatch.ReasonServing
	tests := map[string]struct {
		spoil        func(*bench)
		never, after string
		part         string
		notice       string
	}{
		"good":                {with(good), kept, kept, "", ""},
		"deleted":             {func(b *bench) { b.removeSecret(k8stest.ProxyNamespace, k8stest.FrontProxyName) }, k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "does not exist", ""},
		"no label":            {with(good, func(s *corev1.Secret) { s.Labels = nil }), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "lacks the label app.kubernetes.io/managed-by: proxyauthk8s", ""},
		"another label":       {with(good, func(s *corev1.Secret) { s.Labels[k8swatch.ManagedByLabel] = "Helm" }), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "lacks the label", ""},
		"Opaque":              {with(good, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "is not of type kubernetes.io/tls", ""},
		"no type":             {with(good, func(s *corev1.Secret) { s.Type = "" }), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "is not of type kubernetes.io/tls", ""},
		"no annotation":       {with(good, func(s *corev1.Secret) { s.Annotations = nil }), k8swatch.ReasonClientCertTargetMismatch, k8swatch.ReasonClientCertTargetMismatch, `must be "external:https://10.0.0.10:6443"`, ""},
		"another target":      {with(good, annotate(k8swatch.FrontProxyTargetAnnotation, k8stest.Target+"/")), k8swatch.ReasonClientCertTargetMismatch, k8swatch.ReasonClientCertTargetMismatch, k8swatch.FrontProxyTargetAnnotation, ""},
		"target, a space":     {with(good, annotate(k8swatch.FrontProxyTargetAnnotation, k8stest.Target+" ")), k8swatch.ReasonClientCertTargetMismatch, k8swatch.ReasonClientCertTargetMismatch, "", ""},
		"prefix":              {with(good, annotate(k8swatch.FrontProxyPrefixAnnotation, "t:")), kept, kept, "", ""},
		"another prefix":      {with(good, annotate(k8swatch.FrontProxyPrefixAnnotation, "u:")), k8swatch.ReasonClientCertTargetMismatch, k8swatch.ReasonClientCertTargetMismatch, k8swatch.FrontProxyPrefixAnnotation, ""},
		"empty prefix":        {with(good, annotate(k8swatch.FrontProxyPrefixAnnotation, "")), k8swatch.ReasonClientCertTargetMismatch, k8swatch.ReasonClientCertTargetMismatch, k8swatch.FrontProxyPrefixAnnotation, ""},
		"reserved subject":    {with(reserved), k8swatch.ReasonClientCertSubjectReserved, k8swatch.ReasonClientCertSubjectReserved, `"system:masters"`, ""},
		"reserved, no key":    {with(k8stest.PemPair{Crt: reserved.Crt}), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "", ""},
		"empty":               {with(k8stest.PemPair{}), k8swatch.ReasonClientCertMissing, kept, "tls.crt holds no PEM certificate", k8swatch.NoticeClientCertRenewalFailed},
		"no key":              {with(k8stest.PemPair{Crt: good.Crt}), k8swatch.ReasonClientCertMissing, kept, "tls.key holds no PEM private key", k8swatch.NoticeClientCertRenewalFailed},
		"expired":             {with(expired), k8swatch.ReasonClientCertMissing, kept, "expired at 2030-03-01T11:59:00Z", k8swatch.NoticeClientCertRenewalFailed},
		"not yet valid":       {with(future), k8swatch.ReasonClientCertMissing, kept, "is not valid before 2030-03-01T12:01:00Z", k8swatch.NoticeClientCertRenewalFailed},
		"serverAuth only":     {with(serverOnly), k8swatch.ReasonClientCertMissing, kept, "without clientAuth", k8swatch.NoticeClientCertRenewalFailed},
		"forbidden":           {func(b *bench) { b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden()) }, k8swatch.ReasonClientCertMissing, kept, "get Secret proxyauth/" + k8stest.FrontProxyName + ": forbidden", k8swatch.NoticeClientCertRenewalFailed},
		"hub away":            {func(b *bench) { b.fail(k8stest.FrontProxyRead, k8stest.ErrText("dial")) }, k8swatch.ReasonClientCertMissing, kept, "the read failed", k8swatch.NoticeClientCertRenewalFailed},
		"no label, and bad":   {with(k8stest.PemPair{}, func(s *corev1.Secret) { s.Labels = nil }), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "lacks the label", ""},
		"annotation, and bad": {with(k8stest.PemPair{}, annotate(k8swatch.FrontProxyTargetAnnotation, "x")), k8swatch.ReasonClientCertMissing, k8swatch.ReasonClientCertMissing, "holds no PEM certificate", ""},
	}
	check := func(t *testing.T, c *k8swatch.Cluster, reason, part, notice string) {
		t.Helper()
		k8stest.WantReady(t, c, reason)
		text := c.Ready.Message
		for _, n := range c.Notices {
			text += n.Message
		}
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
		if notice != "" {
			k8stest.WantNotice(t, c, notice)
		} else {
			k8stest.WantNoNotice(t, c, k8swatch.NoticeClientCertRenewalFailed)
		}
		if (c.FrontProxy != nil) != (reason == k8swatch.ReasonServing) {
			t.Errorf("certificate %v with %s", c.FrontProxy != nil, reason)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(k8stest.InFrontProxy))
			test.spoil(b)
			check(t, b.compile(), test.never, test.part, "")

			b = newBench(t)
			b.put(k8stest.Object(k8stest.InFrontProxy))
			b.putSecret(k8stest.FrontProxySecret(good))
			before := b.compile()
			k8stest.WantReady(t, before, k8swatch.ReasonServing)
			test.spoil(b)
			after := b.compile()
			check(t, after, test.after, test.part, test.notice)
			if after.FrontProxy != nil && after.FrontProxy.Fingerprint != before.FrontProxy.Fingerprint {
				t.Error("another certificate serves")
			}

			b.heal(k8stest.FrontProxyRead)
			b.putSecret(k8stest.FrontProxySecret(good))
			check(t, b.compile(), k8swatch.ReasonServing, "", "")
		})
	}
}

// What the admin withdrew does not come back with contents that cannot be used.
func TestAWithdrawnPairStaysAway(t *testing.T) { // CERT-5
	good := k8stest.Certificate(t)
	withdrawals := map[string]func(*bench){
		"deleted": func(b *bench) { b.removeSecret(k8stest.ProxyNamespace, k8stest.FrontProxyName) },
		"label":   func(b *bench) { b.putSecret(k8stest.FrontProxySecret(good, func(s *corev1.Secret) { s.Labels = nil })) },
		"type": func(b *bench) {
			b.putSecret(k8stest.FrontProxySecret(good, func(s *corev1.Secret) { s.Type = "Opaque" }))
		},
		"annotation": func(b *bench) {
			b.putSecret(k8stest.FrontProxySecret(good, func(s *corev1.Secret) { s.Annotations = nil }))
		},
		"between two compilations": func(b *bench) {
			b.put(k8stest.Object())
			b.compile()
			b.removeSecret(k8stest.ProxyNamespace, k8stest.FrontProxyName)
			b.put(k8stest.Object(k8stest.InFrontProxy))
		},
		"another in its place": func(b *bench) {
			b.putSecret(k8stest.FrontProxySecret(k8stest.PemPair{}, func(s *corev1.Secret) { s.UID = "another" }))
		},
		"subject": func(b *bench) {
			b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject.CommonName = "system:x" })))
		},
	}
	for name, withdraw := range withdrawals {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(k8stest.Object(k8stest.InFrontProxy))
			b.putSecret(k8stest.FrontProxySecret(good))
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
			withdraw(b)
			b.compile()
			b.putSecret(k8stest.FrontProxySecret(k8stest.PemPair{}))
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonClientCertMissing)

			// Nor does a read that fails bring it back (CERT-6).
			b.putSecret(k8stest.FrontProxySecret(good))
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
			withdraw(b)
			closed := b.compile()
			b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden())
			c := b.compile()
			if c.Ready != closed.Ready || c.FrontProxy != nil {
				t.Errorf("a failed read made %+v of %+v", c.Ready, closed.Ready)
			}
			k8stest.WantNotice(t, c, k8swatch.NoticeClientCertRenewalFailed)
		})
	}
}

// An author who moves their object takes no certificate along, not even while
// the hub cannot be asked (CERT-1), and finds it again when they move back.
func TestAMovedObjectTakesNoCertificateAlong(t *testing.T) {
	for name, failing := range map[string]bool{"hub there": false, "hub away": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
			b.put(k8stest.Object(k8stest.InFrontProxy))
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
			if failing {
				b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden())
			}
			b.put(k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = "https://thief.example.test" }))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonClientCertTargetMismatch, `"external:https://thief.example.test"`)
			if c.FrontProxy != nil || c.Probe {
				t.Error("the certificate goes to another target")
			}
			if strings.Contains(c.Ready.Message, "10.0.0.10") {
				t.Error("the message tells what the admin wrote")
			}
			b.put(k8stest.Object(k8stest.InFrontProxy))
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
		})
	}
}

// A rewritten prefix never goes with a certificate that is bound to one.
func TestBoundPrefix(t *testing.T) { // CERT-3
	for name, set := range map[string]func(*v1.UpstreamAuth){
		"user":  func(u *v1.UpstreamAuth) { u.UserPrefix = ptr.To("kubeadm:") },
		"group": func(u *v1.UpstreamAuth) { u.GroupPrefix = ptr.To("kubeadm:") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t), func(s *corev1.Secret) { s.Annotations[k8swatch.FrontProxyPrefixAnnotation] = "t:" }))
			b.put(k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { set(s.UpstreamAuth) }))
			c := b.compile()
			k8stest.WantReady(t, c, k8swatch.ReasonClientCertTargetMismatch)
			if c.FrontProxy != nil {
				t.Error("the certificate is presented")
			}
		})
	}
}

func TestSecretNameTooLong(t *testing.T) {
	namespace := strings.Repeat("n", 63)
	for length, reason := range map[int]string{
		k8swatch.MaxSecretName - len(k8swatch.FrontProxySecretPrefix) - 64:     k8swatch.ReasonClientCertMissing,
		k8swatch.MaxSecretName - len(k8swatch.FrontProxySecretPrefix) - 64 + 1: k8swatch.ReasonClientCertNameTooLong,
	} {
		key := k8swatch.Key{Namespace: namespace, Name: strings.Repeat("x", length)}
		b := newBench(t)
		o := k8stest.Object(k8stest.InFrontProxy)
		o.Namespace, o.Name = key.Namespace, key.Name
		b.store.Objects[key] = &k8swatch.Object{ProxyKubeApi: o}
		k8stest.WantReady(t, b.at(key), reason)
	}
}

func TestRenewal(t *testing.T) { // CERT-8, TLS-01
	b := newBench(t)
	b.put(k8stest.Object(k8stest.InFrontProxy))
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	before := b.compile()
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	after := b.compile()
	if before.FrontProxy.Fingerprint == after.FrontProxy.Fingerprint || before.CredentialID() == after.CredentialID() || before.TrustKey() == after.TrustKey() {
		t.Error("the renewed certificate is not used")
	}
}

// The notice of expiry, and the value to be compiled again when it is due.
func TestExpiryOverTime(t *testing.T) { // REC-6, CERT-6
	b := newBench(t)
	pair := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.From, o.Until = k8stest.Now, k8stest.Now.Add(24*time.Hour) })
	b.putSecret(k8stest.FrontProxySecret(pair))
	b.put(k8stest.Object(k8stest.InFrontProxy))

	c := b.compile()
	told := k8stest.Now.Add(16*time.Hour + 10*time.Minute)
	if !c.RecompileAt.Equal(told) {
		t.Fatalf("RecompileAt %v, want %v", c.RecompileAt, told)
	}
	k8stest.WantNoNotice(t, c, k8swatch.NoticeClientCertExpiring)
	b.now = told.Add(-1)
	if b.compile() != c {
		t.Error("changed before its time")
	}

	b.now = told
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	k8stest.WantNotice(t, c, k8swatch.NoticeClientCertExpiring, "expires at 2030-03-02T12:00:00Z")
	if want := k8stest.Now.Add(24*time.Hour + 1); !c.RecompileAt.Equal(want) {
		t.Errorf("RecompileAt %v, want %v", c.RecompileAt, want)
	}
	// A certificate is good at its NotAfter, and not after.
	b.now = k8stest.Now.Add(24 * time.Hour)
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)

	b.now = c.RecompileAt
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonClientCertMissing, "expired at 2030-03-02T12:00:00Z")
	k8stest.WantNoNotice(t, c, k8swatch.NoticeClientCertExpiring)
	if c.FrontProxy != nil || !c.RecompileAt.IsZero() {
		t.Errorf("certificate %v, RecompileAt %v", c.FrontProxy, c.RecompileAt)
	}
}

// A new pair takes over when it becomes valid, the old one serves until then or
// until it expires, also while the hub cannot be asked.
func TestAPairThatIsNotYetValid(t *testing.T) { // CERT-6
	b := newBench(t)
	b.put(k8stest.Object(k8stest.InFrontProxy))
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Until = k8stest.Now.Add(time.Hour) })))
	old := b.compile().FrontProxy
	from := k8stest.Now.Add(30 * time.Minute)
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.From = from })))
	c := b.compile()
	k8stest.WantNotice(t, c, k8swatch.NoticeClientCertRenewalFailed, "the previous certificate serves until 2030-03-01T13:00:00Z")
	if c.FrontProxy != old {
		t.Error("the old pair does not serve")
	}
	for !c.RecompileAt.Equal(from) {
		if c.RecompileAt.After(from) || !c.RecompileAt.After(b.now) {
			t.Fatalf("RecompileAt %v", c.RecompileAt)
		}
		b.now = c.RecompileAt
		c = b.compile()
	}
	b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden())
	b.now = from
	c = b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	if c.FrontProxy == old {
		t.Error("the new pair does not serve")
	}
}

// In preparation the certificate is looked at in the same way, and touches
// neither Ready nor the relay (REC-7).
func TestCertificateInPreparation(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object(k8stest.InPreparation))
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject.CommonName = "system:x" })))
	c := b.compile()
	k8stest.WantReady(t, c, k8swatch.ReasonServing)
	if len(c.Missing) != 1 || c.Missing[0].Reason != k8swatch.ReasonClientCertSubjectReserved || c.Probe {
		t.Errorf("Missing %+v, Probe %v", c.Missing, c.Probe)
	}
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	if c = b.compile(); len(c.Missing) != 0 || !c.Probe || c.FrontProxy == nil {
		t.Errorf("Missing %+v, Probe %v", c.Missing, c.Probe)
	}
	b.putSecret(k8stest.FrontProxySecret(k8stest.PemPair{}))
	c = b.compile()
	k8stest.WantNotice(t, c, k8swatch.NoticeClientCertRenewalFailed)
	if len(c.Missing) != 0 {
		t.Errorf("Missing %+v", c.Missing)
	}
}

// Outside FrontProxy and preparation the Secret is not even read.
func TestPlainPassthroughLooksForNoCertificate(t *testing.T) {
	b := newBench(t)
	b.put(k8stest.Object())
	b.putSecret(k8stest.FrontProxySecret(k8stest.Certificate(t)))
	c := b.compile()
	if c.FrontProxy != nil || c.ClientCertSecret != "" || c.ClientCertTarget != "" || slices.Contains(b.store.Reads, k8stest.FrontProxyRead) {
		t.Errorf("looks for a certificate: %+v", c)
	}
}

func TestRenews(t *testing.T) { // TRUST-2
	compile := func(pair k8stest.PemPair, change ...func(*v1.ProxyKubeApiSpec)) *k8swatch.Cluster {
		b := newBench(t)
		b.put(k8stest.Object(append([]func(*v1.ProxyKubeApiSpec){k8stest.InFrontProxy}, change...)...))
		b.putSecret(k8stest.FrontProxySecret(pair))
		return b.compile()
	}
	first, second := k8stest.Certificate(t), k8stest.Certificate(t)
	old := compile(first)
	if !compile(second).Renews(old) {
		t.Error("a renewal is not seen as one")
	}
	others := map[string]*k8swatch.Cluster{
		"nothing new":     compile(first),
		"another subject": compile(k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject.CommonName = "b" })),
		"another prefix":  compile(second, func(s *v1.ProxyKubeApiSpec) { s.UpstreamAuth.UserPrefix = ptr.To("u:") }),
		"another name":    compile(second, func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = "other" }),
		"no certificate":  compile(k8stest.PemPair{}),
	}
	for name, c := range others {
		if c.Renews(old) || name != "nothing new" && old.Renews(c) {
			t.Errorf("%s passes for a renewal", name)
		}
	}
}
