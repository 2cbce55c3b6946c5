package migration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// fault is something an admin or an operator can get wrong about a cluster.
type fault struct {
	name string
	// absent leaves the Secret out; withdrawn does so first, since contents
	// that cannot be used do not replace a pair that is held (CERT-6).
	absent, withdrawn bool
	// pair replaces the good certificate, change what is said about it.
	pair   func(*world) *pki.KeyPair
	change func(*corev1.Secret)
	// noCA takes the front-proxy CA from the apiserver's file.
	noCA bool

	// reason and text are what the status says, trust the verdict.
	reason, text string
	trust        v1.Trust
}

func client(ca func(*kube.PKI) *pki.CA, commonName string, organization ...string) func(*world) *pki.KeyPair {
	return func(w *world) *pki.KeyPair { return w.pair(ca(w.pki), commonName, organization...) }
}

func frontProxyCA(p *kube.PKI) *pki.CA { return p.FrontProxyCA }
func clientCA(p *kube.PKI) *pki.CA     { return p.ClientCA }

func expired(w *world) *pki.KeyPair {
	return pki.Must(w.pki.FrontProxyCA.Issue(pki.Request{CommonName: kube.FrontProxyName,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}))
}

const (
	missing     = "ClientCertMissing"
	mismatch    = "ClientCertTargetMismatch"
	reserved    = "ClientCertSubjectReserved"
	notTrusted  = "FrontProxyNotTrusted"
	notHonoured = "UpstreamIdentityNotHonoured"
)

// faults are those that one apiserver and a Secret can have.
var faults = []fault{
	{name: "no Secret", absent: true, reason: missing, text: "does not exist"},
	{name: "no label", change: func(s *corev1.Secret) { s.Labels = nil }, reason: missing, text: "lacks the label app.kubernetes.io/managed-by: proxyauthk8s"},
	{name: "wrong type", withdrawn: true, change: func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, reason: missing, text: "is not of type kubernetes.io/tls"},
	{name: "expired", withdrawn: true, pair: expired, reason: missing, text: "cannot be used: the certificate expired at "},
	{name: "unparsable", withdrawn: true, change: func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("no PEM") }, reason: missing, text: "cannot be used: tls.crt holds no PEM certificate"},
	{name: "another's key", withdrawn: true, change: func(s *corev1.Secret) { s.Data["tls.key"] = pki.Must(pki.MustCA("x").Client("x")).KeyPEM },
		reason: missing, text: "cannot be used: tls.key is not the key of the first certificate in tls.crt"},
	{name: "target annotation", change: func(s *corev1.Secret) { s.Annotations[proxy.TargetAnnotation] = "external:https://10.0.0.1" },
		reason: mismatch, text: "annotation proxyauth.weebo.si.rs/front-proxy-target of Secret proxyauth/proxyauth-frontproxy-"},
	{name: "prefix annotation", change: func(s *corev1.Secret) { s.Annotations[proxy.PrefixAnnotation] = "other:" },
		reason: mismatch, text: "user_prefix and group_prefix must both be what annotation proxyauth.weebo.si.rs/front-proxy-prefix"},
	{name: "reserved CN", pair: client(frontProxyCA, "system:admin"), reason: reserved, text: `holds "system:admin"`},
	{name: "reserved O", pair: client(frontProxyCA, kube.FrontProxyName, "system:masters"), reason: reserved, text: `holds "system:masters"`},
	{name: "CN not allowed", pair: client(frontProxyCA, otherName), reason: notTrusted, text: "401", trust: v1.TrustRejected},
	{name: "client CA", pair: client(clientCA, identityName, "staff"), reason: notHonoured, text: `user "carol", groups ["staff"`, trust: v1.TrustNotHonoured},
	{name: "CA not in the apiserver's file", noCA: true, reason: notTrusted, text: "401", trust: v1.TrustRejected},
}

// setCAs replaces the apiserver's request-header CAs, which it re-reads.
func setCAs(t *testing.T, a *kube.APIServer, cas ...*pki.CA) {
	t.Helper()
	file := filepath.Join(a.Dir(), "front-proxy.ca")
	if err := os.WriteFile(file+".new", pki.Bundle(cas...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// deleteSecrets removes the Secrets of clusters.
func (w *world) deleteSecrets(t *testing.T, keys ...types.NamespacedName) {
	t.Helper()
	args := []string{"delete", "secret", "-n", hub.Namespace}
	for _, k := range keys {
		args = append(args, "proxyauth-frontproxy-"+k.Namespace+"."+k.Name)
	}
	w.hub.Admin.MustRun(t, args...)
}

// inject brings a fault upon the Secrets of the two clusters: after from, which
// is later than began when something else had to come first, and it has by done.
func (f *fault) inject(t *testing.T, w *world, preparing, live types.NamespacedName) (began, from, done time.Time) {
	t.Helper()
	began = time.Now()
	from = began
	if f.withdrawn {
		w.deleteSecrets(t, preparing, live)
		w.stopped(t, preparing, from, missing, "does not exist", "")
		w.refused(t, live, from, missing, "does not exist", "")
		from = time.Now()
	}
	switch {
	case f.absent:
		w.deleteSecrets(t, preparing, live)
	case f.noCA:
		setCAs(t, w.main, w.pki.AggregationCA)
	default:
		pair := w.good
		if f.pair != nil {
			pair = f.pair(w)
		}
		var secrets []any
		for _, k := range []types.NamespacedName{preparing, live} {
			s := w.secret(k, w.main, pair)
			if f.change != nil {
				f.change(s)
			}
			secrets = append(secrets, s)
		}
		w.hub.Apply(t, secrets...)
	}
	return began, from, time.Now()
}

// mend puts everything right again.
func (f *fault) mend(t *testing.T, w *world, preparing, live types.NamespacedName) (from time.Time) {
	t.Helper()
	from = time.Now()
	switch {
	case f.noCA:
		setCAs(t, w.main, w.pki.AggregationCA, w.pki.FrontProxyCA)
		return from
	case !f.absent:
		// The type of a Secret cannot be changed; for the others it is
		// what an admin does as well as any.
		w.deleteSecrets(t, preparing, live)
	}
	w.hub.Apply(t, w.secret(preparing, w.main, w.good), w.secret(live, w.main, w.good))
	return from
}

// stopped waits until a cluster in preparation says what would stop it, Ready
// all the while, and returns when it did.
func (w *world) stopped(t *testing.T, key types.NamespacedName, from time.Time, reason, text string, want v1.Trust) time.Time {
	t.Helper()
	s, told := w.status(t, key, from, "FrontProxyNotReady "+reason+" "+text, func(s *v1.ProxyKubeApiStatus) bool {
		m := hub.Message(s, "FrontProxyNotReady")
		return hub.Condition(s, "FrontProxyNotReady") == "True/FrontProxyNotReady" && contains(m, reason+": ") && contains(m, text) && trust(s) == want
	})
	if hub.Condition(s, "Ready") != "True/Serving" || s.Error != nil {
		t.Errorf("%s is no longer served: %+v", key, s)
	}
	return told
}

// refused waits until a cluster in FrontProxy is closed, tries it, and returns
// when the status said so.
func (w *world) refused(t *testing.T, key types.NamespacedName, from time.Time, reason, text string, want v1.Trust) time.Time {
	t.Helper()
	s, told := w.status(t, key, from, "Ready False/"+reason+" "+text, func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "Ready") == "False/"+reason && contains(hub.Message(s, "Ready"), text) && trust(s) == want
	})
	if s.Error == nil || *s.Error != hub.Message(s, "Ready") || s.UpstreamAuth.Mode != string(v1.ModeFrontProxy) ||
		s.UpstreamAuth.ClientCertSecret != "proxyauth-frontproxy-"+key.Namespace+"."+key.Name || s.UpstreamAuth.ClientCertTarget == "" {
		t.Errorf("status of %s: %+v", key, s)
	}
	w.closed(t, key, 503, notReady+reason)
	return told
}

// prepares waits until nothing stops a cluster in preparation.
func (w *world) prepares(t *testing.T, key types.NamespacedName, from time.Time) {
	t.Helper()
	w.status(t, key, from, "FrontProxyNotReady False/Prepared", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "FrontProxyNotReady") == "False/Prepared" && trust(s) == v1.TrustTrusted && hub.Condition(s, "Ready") == "True/Serving"
	})
}

// serves waits until a cluster in FrontProxy serves.
func (w *world) serves(t *testing.T, key types.NamespacedName, from time.Time) {
	t.Helper()
	w.status(t, key, from, "Ready True/Serving and Trusted", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "Ready") == "True/Serving" && trust(s) == v1.TrustTrusted
	})
}
