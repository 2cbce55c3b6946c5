package k8swatch

import (
	"crypto/x509/pkix"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// What can be wrong with the Secret, before and after a good pair was held.
// Withdrawn by the admin (CERT-5), it closes at once; contents that cannot be
// used and reads that fail leave the pair serving (CERT-6).
func TestFrontProxySecret(t *testing.T) {
	good := certificate(t)
	reserved := certificate(t, func(o *certOptions) { o.subject = pkix.Name{CommonName: "a", Organization: []string{"system:masters"}} })
	expired := certificate(t, func(o *certOptions) { o.until = testNow.Add(-time.Minute) })
	future := certificate(t, func(o *certOptions) { o.from = testNow.Add(time.Minute) })
	serverOnly := certificate(t, func(o *certOptions) { o.usages = append(o.usages[:0:0], 1) })
	with := func(pair pemPair, change ...func(*corev1.Secret)) func(*bench) {
		return func(b *bench) { b.putSecret(frontProxySecretOf(pair, change...)) }
	}
	annotate := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Annotations[key] = value }
	}
	const kept = ReasonServing
	tests := map[string]struct {
		spoil        func(*bench)
		never, after string
		part         string
		notice       string
	}{
		"good":                {with(good), kept, kept, "", ""},
		"deleted":             {func(b *bench) { b.removeSecret(proxyNamespace, frontProxyName) }, ReasonClientCertMissing, ReasonClientCertMissing, "does not exist", ""},
		"no label":            {with(good, func(s *corev1.Secret) { s.Labels = nil }), ReasonClientCertMissing, ReasonClientCertMissing, "lacks the label app.kubernetes.io/managed-by: proxyauthk8s", ""},
		"another label":       {with(good, func(s *corev1.Secret) { s.Labels[ManagedByLabel] = "Helm" }), ReasonClientCertMissing, ReasonClientCertMissing, "lacks the label", ""},
		"Opaque":              {with(good, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), ReasonClientCertMissing, ReasonClientCertMissing, "is not of type kubernetes.io/tls", ""},
		"no type":             {with(good, func(s *corev1.Secret) { s.Type = "" }), ReasonClientCertMissing, ReasonClientCertMissing, "is not of type kubernetes.io/tls", ""},
		"no annotation":       {with(good, func(s *corev1.Secret) { s.Annotations = nil }), ReasonClientCertTargetMismatch, ReasonClientCertTargetMismatch, `must be "external:https://10.0.0.10:6443"`, ""},
		"another target":      {with(good, annotate(FrontProxyTargetAnnotation, testTarget+"/")), ReasonClientCertTargetMismatch, ReasonClientCertTargetMismatch, FrontProxyTargetAnnotation, ""},
		"target, a space":     {with(good, annotate(FrontProxyTargetAnnotation, testTarget+" ")), ReasonClientCertTargetMismatch, ReasonClientCertTargetMismatch, "", ""},
		"prefix":              {with(good, annotate(FrontProxyPrefixAnnotation, "t:")), kept, kept, "", ""},
		"another prefix":      {with(good, annotate(FrontProxyPrefixAnnotation, "u:")), ReasonClientCertTargetMismatch, ReasonClientCertTargetMismatch, FrontProxyPrefixAnnotation, ""},
		"empty prefix":        {with(good, annotate(FrontProxyPrefixAnnotation, "")), ReasonClientCertTargetMismatch, ReasonClientCertTargetMismatch, FrontProxyPrefixAnnotation, ""},
		"reserved subject":    {with(reserved), ReasonClientCertSubjectReserved, ReasonClientCertSubjectReserved, `"system:masters"`, ""},
		"reserved, no key":    {with(pemPair{crt: reserved.crt}), ReasonClientCertMissing, ReasonClientCertMissing, "", ""},
		"empty":               {with(pemPair{}), ReasonClientCertMissing, kept, "tls.crt holds no PEM certificate", NoticeClientCertRenewalFailed},
		"no key":              {with(pemPair{crt: good.crt}), ReasonClientCertMissing, kept, "tls.key holds no PEM private key", NoticeClientCertRenewalFailed},
		"expired":             {with(expired), ReasonClientCertMissing, kept, "expired at 2030-03-01T11:59:00Z", NoticeClientCertRenewalFailed},
		"not yet valid":       {with(future), ReasonClientCertMissing, kept, "is not valid before 2030-03-01T12:01:00Z", NoticeClientCertRenewalFailed},
		"serverAuth only":     {with(serverOnly), ReasonClientCertMissing, kept, "without clientAuth", NoticeClientCertRenewalFailed},
		"forbidden":           {func(b *bench) { b.fail(frontProxyRead, errForbidden()) }, ReasonClientCertMissing, kept, "get Secret proxyauth/" + frontProxyName + ": forbidden", NoticeClientCertRenewalFailed},
		"hub away":            {func(b *bench) { b.fail(frontProxyRead, errText("dial")) }, ReasonClientCertMissing, kept, "the read failed", NoticeClientCertRenewalFailed},
		"no label, and bad":   {with(pemPair{}, func(s *corev1.Secret) { s.Labels = nil }), ReasonClientCertMissing, ReasonClientCertMissing, "lacks the label", ""},
		"annotation, and bad": {with(pemPair{}, annotate(FrontProxyTargetAnnotation, "x")), ReasonClientCertMissing, ReasonClientCertMissing, "holds no PEM certificate", ""},
	}
	check := func(t *testing.T, c *Cluster, reason, part, notice string) {
		t.Helper()
		wantReady(t, c, reason)
		text := c.Ready.Message
		for _, n := range c.Notices {
			text += n.Message
		}
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
		if notice != "" {
			wantNotice(t, c, notice)
		} else {
			wantNoNotice(t, c, NoticeClientCertRenewalFailed)
		}
		if (c.FrontProxy != nil) != (reason == ReasonServing) {
			t.Errorf("certificate %v with %s", c.FrontProxy != nil, reason)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(object(inFrontProxy))
			test.spoil(b)
			check(t, b.compile(), test.never, test.part, "")

			b = newBench(t)
			b.put(object(inFrontProxy))
			b.putSecret(frontProxySecretOf(good))
			before := b.compile()
			wantReady(t, before, ReasonServing)
			test.spoil(b)
			after := b.compile()
			check(t, after, test.after, test.part, test.notice)
			if after.FrontProxy != nil && after.FrontProxy.Fingerprint != before.FrontProxy.Fingerprint {
				t.Error("another certificate serves")
			}

			b.heal(frontProxyRead)
			b.putSecret(frontProxySecretOf(good))
			check(t, b.compile(), ReasonServing, "", "")
		})
	}
}

// What the admin withdrew does not come back with contents that cannot be used.
func TestAWithdrawnPairStaysAway(t *testing.T) { // CERT-5
	good := certificate(t)
	withdrawals := map[string]func(*bench){
		"deleted":    func(b *bench) { b.removeSecret(proxyNamespace, frontProxyName) },
		"label":      func(b *bench) { b.putSecret(frontProxySecretOf(good, func(s *corev1.Secret) { s.Labels = nil })) },
		"type":       func(b *bench) { b.putSecret(frontProxySecretOf(good, func(s *corev1.Secret) { s.Type = "Opaque" })) },
		"annotation": func(b *bench) { b.putSecret(frontProxySecretOf(good, func(s *corev1.Secret) { s.Annotations = nil })) },
		"while nobody looked": func(b *bench) {
			b.put(object())
			b.compile()
			b.removeSecret(proxyNamespace, frontProxyName)
			b.put(object(inFrontProxy))
		},
		"another in its place": func(b *bench) {
			b.putSecret(frontProxySecretOf(pemPair{}, func(s *corev1.Secret) { s.UID = "another" }))
		},
		"subject": func(b *bench) {
			b.putSecret(frontProxySecretOf(certificate(t, func(o *certOptions) { o.subject.CommonName = "system:x" })))
		},
	}
	for name, withdraw := range withdrawals {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(object(inFrontProxy))
			b.putSecret(frontProxySecretOf(good))
			wantReady(t, b.compile(), ReasonServing)
			withdraw(b)
			b.compile()
			b.putSecret(frontProxySecretOf(pemPair{}))
			wantReady(t, b.compile(), ReasonClientCertMissing)

			// Nor does a read that fails bring it back (CERT-6).
			b.putSecret(frontProxySecretOf(good))
			wantReady(t, b.compile(), ReasonServing)
			withdraw(b)
			closed := b.compile()
			b.fail(frontProxyRead, errForbidden())
			c := b.compile()
			if c.Ready != closed.Ready || c.FrontProxy != nil {
				t.Errorf("a failed read made %+v of %+v", c.Ready, closed.Ready)
			}
			wantNotice(t, c, NoticeClientCertRenewalFailed)
		})
	}
}

// An author who moves their object takes no certificate along, not even while
// the hub cannot be asked (CERT-1), and finds it again when they move back.
func TestAMovedObjectTakesNoCertificateAlong(t *testing.T) {
	for name, failing := range map[string]bool{"hub there": false, "hub away": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putSecret(frontProxySecretOf(certificate(t)))
			b.put(object(inFrontProxy))
			wantReady(t, b.compile(), ReasonServing)
			if failing {
				b.fail(frontProxyRead, errForbidden())
			}
			b.put(object(inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = "https://thief.example.test" }))
			c := b.compile()
			wantReady(t, c, ReasonClientCertTargetMismatch, `"external:https://thief.example.test"`)
			if c.FrontProxy != nil || c.Probe {
				t.Error("the certificate goes to another target")
			}
			if strings.Contains(c.Ready.Message, "10.0.0.10") {
				t.Error("the message tells what the admin wrote")
			}
			b.put(object(inFrontProxy))
			wantReady(t, b.compile(), ReasonServing)
		})
	}
}

// A rewritten prefix never goes with a certificate that is bound to one.
func TestBoundPrefix(t *testing.T) { // CERT-3
	for name, set := range map[string]func(*v1.UpstreamAuth){
		"user":  func(u *v1.UpstreamAuth) { u.UserPrefix = ptr("kubeadm:") },
		"group": func(u *v1.UpstreamAuth) { u.GroupPrefix = ptr("kubeadm:") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.putSecret(frontProxySecretOf(certificate(t), func(s *corev1.Secret) { s.Annotations[FrontProxyPrefixAnnotation] = "t:" }))
			b.put(object(inFrontProxy, func(s *v1.ProxyKubeApiSpec) { set(s.UpstreamAuth) }))
			c := b.compile()
			wantReady(t, c, ReasonClientCertTargetMismatch)
			if c.FrontProxy != nil {
				t.Error("the certificate is presented")
			}
		})
	}
}

func TestSecretNameTooLong(t *testing.T) {
	namespace := strings.Repeat("n", 63)
	for length, reason := range map[int]string{
		maxSecretName - len(FrontProxySecretPrefix) - 64:     ReasonClientCertMissing,
		maxSecretName - len(FrontProxySecretPrefix) - 64 + 1: ReasonClientCertNameTooLong,
	} {
		key := Key{Namespace: namespace, Name: strings.Repeat("x", length)}
		b := newBench(t)
		o := object(inFrontProxy)
		o.Namespace, o.Name = key.Namespace, key.Name
		b.store.objects[key] = &Object{ProxyKubeApi: o}
		wantReady(t, b.Compile(key), reason)
	}
}

func TestRenewal(t *testing.T) { // CERT-8, TLS-01
	b := newBench(t)
	b.put(object(inFrontProxy))
	b.putSecret(frontProxySecretOf(certificate(t)))
	before := b.compile()
	b.putSecret(frontProxySecretOf(certificate(t)))
	after := b.compile()
	if before.FrontProxy.Fingerprint == after.FrontProxy.Fingerprint || before.CredentialID() == after.CredentialID() || before.SetID() == after.SetID() {
		t.Error("the renewed certificate is not used")
	}
}

// The notice of expiry, and the value to be compiled again when it is due.
func TestExpiryOverTime(t *testing.T) { // REC-6, CERT-6
	b := newBench(t)
	pair := certificate(t, func(o *certOptions) { o.from, o.until = testNow, testNow.Add(24*time.Hour) })
	b.putSecret(frontProxySecretOf(pair))
	b.put(object(inFrontProxy))

	c := b.compile()
	told := testNow.Add(16*time.Hour + 10*time.Minute)
	if !c.RecheckAt.Equal(told) {
		t.Fatalf("RecheckAt %v, want %v", c.RecheckAt, told)
	}
	wantNoNotice(t, c, NoticeClientCertExpiring)
	b.now = told.Add(-1)
	if b.compile() != c {
		t.Error("changed before its time")
	}

	b.now = told
	c = b.compile()
	wantReady(t, c, ReasonServing)
	wantNotice(t, c, NoticeClientCertExpiring, "expires at 2030-03-02T12:00:00Z")
	if want := testNow.Add(24*time.Hour + 1); !c.RecheckAt.Equal(want) {
		t.Errorf("RecheckAt %v, want %v", c.RecheckAt, want)
	}
	// A certificate is good at its NotAfter, and not after.
	b.now = testNow.Add(24 * time.Hour)
	wantReady(t, b.compile(), ReasonServing)

	b.now = c.RecheckAt
	c = b.compile()
	wantReady(t, c, ReasonClientCertMissing, "expired at 2030-03-02T12:00:00Z")
	wantNoNotice(t, c, NoticeClientCertExpiring)
	if c.FrontProxy != nil || !c.RecheckAt.IsZero() {
		t.Errorf("certificate %v, RecheckAt %v", c.FrontProxy, c.RecheckAt)
	}
}

// A new pair takes over when it becomes valid, the old one serves until then or
// until it expires, also while the hub cannot be asked.
func TestAPairThatIsNotYetValid(t *testing.T) { // CERT-6
	b := newBench(t)
	b.put(object(inFrontProxy))
	b.putSecret(frontProxySecretOf(certificate(t, func(o *certOptions) { o.until = testNow.Add(time.Hour) })))
	old := b.compile().FrontProxy
	from := testNow.Add(30 * time.Minute)
	b.putSecret(frontProxySecretOf(certificate(t, func(o *certOptions) { o.from = from })))
	c := b.compile()
	wantNotice(t, c, NoticeClientCertRenewalFailed, "the previous certificate serves until 2030-03-01T13:00:00Z")
	if c.FrontProxy != old {
		t.Error("the old pair does not serve")
	}
	for !c.RecheckAt.Equal(from) {
		if c.RecheckAt.After(from) || !c.RecheckAt.After(b.now) {
			t.Fatalf("RecheckAt %v", c.RecheckAt)
		}
		b.now = c.RecheckAt
		c = b.compile()
	}
	b.fail(frontProxyRead, errForbidden())
	b.now = from
	c = b.compile()
	wantReady(t, c, ReasonServing)
	if c.FrontProxy == old {
		t.Error("the new pair does not serve")
	}
}

// In preparation the certificate is looked at in the same way, and touches
// neither Ready nor the relay (REC-7).
func TestCertificateInPreparation(t *testing.T) {
	b := newBench(t)
	b.put(object(inPreparation))
	b.putSecret(frontProxySecretOf(certificate(t, func(o *certOptions) { o.subject.CommonName = "system:x" })))
	c := b.compile()
	wantReady(t, c, ReasonServing)
	if len(c.Missing) != 1 || c.Missing[0].Reason != ReasonClientCertSubjectReserved || c.Probe {
		t.Errorf("Missing %+v, Probe %v", c.Missing, c.Probe)
	}
	b.putSecret(frontProxySecretOf(certificate(t)))
	if c = b.compile(); len(c.Missing) != 0 || !c.Probe || c.FrontProxy == nil {
		t.Errorf("Missing %+v, Probe %v", c.Missing, c.Probe)
	}
	b.putSecret(frontProxySecretOf(pemPair{}))
	c = b.compile()
	wantNotice(t, c, NoticeClientCertRenewalFailed)
	if len(c.Missing) != 0 {
		t.Errorf("Missing %+v", c.Missing)
	}
}

// Outside FrontProxy and preparation the Secret is not even read.
func TestPlainPassthroughLooksForNoCertificate(t *testing.T) {
	b := newBench(t)
	b.put(object())
	b.putSecret(frontProxySecretOf(certificate(t)))
	c := b.compile()
	if c.FrontProxy != nil || c.ClientCertSecret != "" || c.ClientCertTarget != "" || slices.Contains(b.store.reads, frontProxyRead) {
		t.Errorf("looks for a certificate: %+v", c)
	}
}

// Whatever happens to the Secret, the object and the hub, in whatever order:
// no certificate goes where its annotation does not say, none that the admin
// withdrew comes back, a failed read changes nothing, and nothing changes by
// time alone before RecheckAt.
func TestFrontProxyProperties(t *testing.T) {
	var pairs []pemPair
	for i := range 3 {
		pairs = append(pairs, certificate(t, func(o *certOptions) { o.until = testNow.Add(time.Duration(i+1) * time.Hour) }))
	}
	reserved := certificate(t, func(o *certOptions) { o.subject.CommonName = "system:x" })
	future := certificate(t, func(o *certOptions) { o.from = testNow.Add(90 * time.Minute); o.until = testNow.Add(3 * time.Hour) })
	contents := append(slices.Clone(pairs), reserved, future, pemPair{}, pemPair{crt: pairs[0].crt})
	urls := []string{testURL, "https://b.example.test"}

	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		b.put(object(inFrontProxy))
		// allowed are the certificates that stood under the annotations of
		// now since the last withdrawal.
		allowed := map[string]bool{}
		var seen *corev1.Secret
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1:
				pair := contents[rapid.IntRange(0, len(contents)-1).Draw(rt, "content")]
				b.putSecret(frontProxySecretOf(pair, func(s *corev1.Secret) {
					if u := rapid.SampledFrom([]string{urls[0], urls[0], urls[1], ""}).Draw(rt, "annotation"); u != "" {
						s.Annotations[FrontProxyTargetAnnotation] = "external:" + u
					} else {
						s.Annotations = nil
					}
					if rapid.IntRange(0, 4).Draw(rt, "label") == 0 {
						s.Labels = nil
					}
				}))
			case 2:
				b.removeSecret(proxyNamespace, frontProxyName)
			case 3:
				b.fail(frontProxyRead, errForbidden())
			case 4:
				b.heal(frontProxyRead)
			case 5:
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(rt, "minutes")) * time.Minute)
			case 6:
				url := rapid.SampledFrom(urls).Draw(rt, "url")
				b.put(object(inFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = url }))
			}
			if b.store.failing[frontProxyRead] == nil {
				next := b.store.secrets[Key{Namespace: proxyNamespace, Name: frontProxyName}]
				if next == nil || next.Labels == nil || sameContent(next, reserved) || seen == nil || !reflect.DeepEqual(seen.Annotations, next.Annotations) {
					clear(allowed)
				}
				if seen = next; seen != nil && seen.Labels != nil {
					if p := parseKeyPair(seen.Data["tls.crt"], seen.Data["tls.key"], secretPair); p.certificate != nil && !sameContent(seen, reserved) {
						allowed[p.certificate.Fingerprint] = true
					}
				}
			}
			c := b.compile()
			checkFrontProxy(rt, b, c, seen, allowed)
		}
	})
}

func sameContent(s *corev1.Secret, pair pemPair) bool {
	return string(s.Data["tls.crt"]) == string(pair.crt)
}

func checkFrontProxy(rt *rapid.T, b *bench, c *Cluster, seen *corev1.Secret, allowed map[string]bool) {
	if f := c.FrontProxy; f != nil {
		switch {
		case seen == nil || seen.Labels == nil:
			rt.Fatal("a certificate without a Secret that allows it")
		case seen.Annotations[FrontProxyTargetAnnotation] != c.Target.Canonical:
			rt.Fatal("a certificate for a target that its annotation does not say")
		case !allowed[f.Fingerprint]:
			rt.Fatal("a certificate that was withdrawn")
		case validityFault(f.Leaf, b.now) != "":
			rt.Fatal("a certificate out of its validity")
		}
	}
	if (c.FrontProxy != nil) != (c.Ready.Status == StatusTrue) || c.Probe != (c.FrontProxy != nil) {
		rt.Fatalf("Ready %+v, certificate %v, Probe %v", c.Ready, c.FrontProxy != nil, c.Probe)
	}
	if seen != nil && seen.Labels != nil && seen.Annotations[FrontProxyTargetAnnotation] == c.Target.Canonical {
		p := parseKeyPair(seen.Data["tls.crt"], seen.Data["tls.key"], secretPair)
		if _, isReserved := (&frontProxySecret{pair: p}).reserved(); p.certificate != nil && !isReserved && validityFault(p.leaf, b.now) == "" &&
			(c.FrontProxy == nil || c.FrontProxy.Fingerprint != p.certificate.Fingerprint) {
			rt.Fatal("the good certificate of the Secret is not used")
		}
	}
	if b.store.failing[frontProxyRead] == nil {
		b.fail(frontProxyRead, errForbidden())
		if failed := b.compile(); failed.Ready != c.Ready || failed.FrontProxy != c.FrontProxy || !failed.RecheckAt.Equal(c.RecheckAt) {
			rt.Fatalf("a failed read made %+v of %+v", failed.Ready, c.Ready)
		}
		b.heal(frontProxyRead)
	}
	now := b.now
	if !c.RecheckAt.IsZero() {
		if !c.RecheckAt.After(now) {
			rt.Fatal("RecheckAt is in the past")
		}
		b.now = c.RecheckAt.Add(-1)
	} else {
		b.now = now.Add(100 * 365 * 24 * time.Hour)
	}
	later := b.compile()
	if later.Ready != c.Ready || later.FrontProxy != c.FrontProxy || !reflect.DeepEqual(later.Notices, c.Notices) {
		rt.Fatalf("time alone made %+v %v of %+v %v before RecheckAt", later.Ready, later.Notices, c.Ready, c.Notices)
	}
	b.now = now
}
