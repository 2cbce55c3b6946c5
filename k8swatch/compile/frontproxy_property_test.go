package compile

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/keypair"
)

// Whatever happens to the Secret, the object and the hub, in whatever order:
// no certificate goes where its annotation does not say, none that the admin
// withdrew comes back, a failed read changes nothing, and nothing changes by
// time alone before RecompileAt.
func TestFrontProxyProperties(t *testing.T) {
	var pairs []k8stest.PemPair
	for i := range 3 {
		pairs = append(pairs, k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Until = k8stest.Now.Add(time.Duration(i+1) * time.Hour) }))
	}
	reserved := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject.CommonName = "system:x" })
	future := k8stest.Certificate(t, func(o *k8stest.CertOptions) {
		o.From = k8stest.Now.Add(90 * time.Minute)
		o.Until = k8stest.Now.Add(3 * time.Hour)
	})
	contents := append(slices.Clone(pairs), reserved, future, k8stest.PemPair{}, k8stest.PemPair{Crt: pairs[0].Crt})
	urls := []string{k8stest.URL, "https://b.example.test"}

	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		b.put(k8stest.Object(k8stest.InFrontProxy))
		// allowed are the certificates that stood under the annotations of
		// now since the last withdrawal.
		allowed := map[string]bool{}
		var seen *corev1.Secret
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1:
				pair := contents[rapid.IntRange(0, len(contents)-1).Draw(rt, "content")]
				b.putSecret(k8stest.FrontProxySecret(pair, func(s *corev1.Secret) {
					if u := rapid.SampledFrom([]string{urls[0], urls[0], urls[1], ""}).Draw(rt, "annotation"); u != "" {
						s.Annotations[k8swatch.FrontProxyTargetAnnotation] = "external:" + u
					} else {
						s.Annotations = nil
					}
					if rapid.IntRange(0, 4).Draw(rt, "label") == 0 {
						s.Labels = nil
					}
				}))
			case 2:
				b.removeSecret(k8stest.ProxyNamespace, k8stest.FrontProxyName)
			case 3:
				b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden())
			case 4:
				b.heal(k8stest.FrontProxyRead)
			case 5:
				b.now = b.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(rt, "minutes")) * time.Minute)
			case 6:
				url := rapid.SampledFrom(urls).Draw(rt, "url")
				b.put(k8stest.Object(k8stest.InFrontProxy, func(s *v1.ProxyKubeApiSpec) { s.Service.ExternalService.URL = url }))
			}
			if b.store.Failing[k8stest.FrontProxyRead] == nil {
				next := b.store.Secrets[k8swatch.Key{Namespace: k8stest.ProxyNamespace, Name: k8stest.FrontProxyName}]
				if next == nil || next.Labels == nil || sameContent(next, reserved) || seen == nil || !reflect.DeepEqual(seen.Annotations, next.Annotations) {
					clear(allowed)
				}
				if seen = next; seen != nil && seen.Labels != nil {
					if p := keypair.Parse(seen.Data["tls.crt"], seen.Data["tls.key"], keypair.SecretNames()); p.Certificate != nil && !sameContent(seen, reserved) {
						allowed[p.Certificate.Fingerprint] = true
					}
				}
			}
			c := b.compile()
			checkFrontProxy(rt, b, c, seen, allowed)
		}
	})
}

func sameContent(s *corev1.Secret, pair k8stest.PemPair) bool {
	return string(s.Data["tls.crt"]) == string(pair.Crt)
}

func checkFrontProxy(rt *rapid.T, b *bench, c *k8swatch.Cluster, seen *corev1.Secret, allowed map[string]bool) {
	if f := c.FrontProxy; f != nil {
		switch {
		case seen == nil || seen.Labels == nil:
			rt.Fatal("a certificate without a Secret that allows it")
		case seen.Annotations[k8swatch.FrontProxyTargetAnnotation] != c.Target.Canonical:
			rt.Fatal("a certificate for a target that its annotation does not say")
		case !allowed[f.Fingerprint]:
			rt.Fatal("a certificate that was withdrawn")
		case keypair.ValidityFault(f.Leaf, b.now) != "":
			rt.Fatal("a certificate out of its validity")
		}
	}
	if (c.FrontProxy != nil) != (c.Ready.Status == k8swatch.StatusTrue) || c.Probe != (c.FrontProxy != nil) {
		rt.Fatalf("Ready %+v, certificate %v, Probe %v", c.Ready, c.FrontProxy != nil, c.Probe)
	}
	if seen != nil && seen.Labels != nil && seen.Annotations[k8swatch.FrontProxyTargetAnnotation] == c.Target.Canonical {
		p := keypair.Parse(seen.Data["tls.crt"], seen.Data["tls.key"], keypair.SecretNames())
		if _, isReserved := (&frontProxySecret{pair: p}).reserved(); p.Certificate != nil && !isReserved && keypair.ValidityFault(p.Leaf, b.now) == "" &&
			(c.FrontProxy == nil || c.FrontProxy.Fingerprint != p.Certificate.Fingerprint) {
			rt.Fatal("the good certificate of the Secret is not used")
		}
	}
	if b.store.Failing[k8stest.FrontProxyRead] == nil {
		b.fail(k8stest.FrontProxyRead, k8stest.ErrForbidden())
		if failed := b.compile(); failed.Ready != c.Ready || failed.FrontProxy != c.FrontProxy || !failed.RecompileAt.Equal(c.RecompileAt) {
			rt.Fatalf("a failed read made %+v of %+v", failed.Ready, c.Ready)
		}
		b.heal(k8stest.FrontProxyRead)
	}
	now := b.now
	if !c.RecompileAt.IsZero() {
		if !c.RecompileAt.After(now) {
			rt.Fatal("RecompileAt is in the past")
		}
		b.now = c.RecompileAt.Add(-1)
	} else {
		b.now = now.Add(100 * 365 * 24 * time.Hour)
	}
	later := b.compile()
	if later.Ready != c.Ready || later.FrontProxy != c.FrontProxy || !reflect.DeepEqual(later.Notices, c.Notices) {
		rt.Fatalf("time alone made %+v %v of %+v %v before RecompileAt", later.Ready, later.Notices, c.Ready, c.Notices)
	}
	b.now = now
}
