package migration

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// notice waits until a notice applies with a text, and then until it does not,
// after mend; Ready is True throughout (REC-6).
func (w *world) notice(t *testing.T, key types.NamespacedName, kind, text string, trouble, mend func()) {
	t.Helper()
	from := time.Now()
	trouble()
	w.status(t, key, from, kind+" "+text, func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, kind) == "True/"+kind && contains(hub.Message(s, kind), text)
	})
	w.event(t, key, from, corev1.EventTypeWarning, kind, text)
	mended := time.Now()
	mend()
	w.status(t, key, mended, "no "+kind, func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, kind) == "" })
	w.event(t, key, mended, corev1.EventTypeNormal, kind+"Cleared", kind)
	for _, s := range w.statuses(key, from) {
		if hub.Condition(s, "Ready") != "True/Serving" {
			t.Errorf("with %s Ready was %s", kind, hub.Condition(s, "Ready"))
		}
	}
}

func notices(t *testing.T, w *world) {
	k := key("team-b", "notices")
	put := func(pair *pki.KeyPair) func() {
		return func() { w.hub.Apply(t, w.secret(k, w.hub.APIServer, pair)) }
	}
	bundle := func(text string) func() {
		return func() {
			w.hub.Apply(t, proxy.ConfigMap(k.Namespace, "target-ca", map[string]string{"ca.crt": text}))
		}
	}
	c := w.prepared(k, w.hub.APIServer, v1.ModeFrontProxy)
	c.Spec.Cert = &v1.CertSource{ConfigMap: &v1.KeyReference{Name: "target-ca", Key: "ca.crt"}}
	bundle(string(w.pki.ServerCA.PEM))()
	put(w.good)()
	w.hub.Apply(t, c)
	w.serves(t, k, time.Time{})

	// A third of a day is eight hours.
	expiring := pki.Must(w.pki.FrontProxyCA.Issue(pki.Request{CommonName: kube.FrontProxyName,
		NotBefore: time.Now().Add(-20 * time.Hour), NotAfter: time.Now().Add(4 * time.Hour)}))
	w.notice(t, k, "ClientCertExpiring", "expires at "+expiring.Certificate.NotAfter.UTC().Format(time.RFC3339), put(expiring), put(w.good))
	broken := *w.good
	broken.CertPEM = []byte("no PEM")
	w.notice(t, k, "ClientCertRenewalFailed", "tls.crt holds no PEM certificate; the previous certificate serves until", put(&broken), put(w.good))
	w.notice(t, k, "ReferenceStale", "target-ca", func() { w.hub.Delete(t, k.Namespace, "configmap", "target-ca") }, bundle(string(w.pki.ServerCA.PEM)))
	if name := w.whoami(t, k); name != prefixedName {
		t.Errorf("whoami %q", name)
	}
}

// clientCert: a client_cert that the apiserver takes for an identity carries no
// request (CERT-9).
func clientCert(t *testing.T, w *world) {
	k := key("team-a", "mtls")
	put := func(pair *pki.KeyPair) {
		w.hub.Apply(t, proxy.Secret(k.Namespace, "mtls", map[string]string{"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM)}))
	}
	half := func(name string) v1.CertSource {
		return v1.CertSource{Secret: &v1.KeyReference{Name: "mtls", Key: name}}
	}
	c := w.cluster(k, w.main)
	c.Spec.ClientCert = &v1.ClientCert{Cert: half("tls.crt"), Key: half("tls.key")}
	put(w.pair(w.pki.ClientCA, identityName))
	from := time.Now()
	w.hub.Apply(t, c)
	s := w.ready(t, k, from, "False/ClientCertIsIdentity")
	if m := hub.Message(s, "Ready"); !contains(m, `user "carol"`) {
		t.Errorf("Ready says %q", m)
	}
	w.closed(t, k, 503, "this cluster is not ready: ClientCertIsIdentity")
	w.event(t, k, from, corev1.EventTypeWarning, "ClientCertIsIdentity", `user "carol"`)

	from = time.Now()
	put(w.pair(pki.MustCA("gate"), identityName))
	w.ready(t, k, from, "True/Serving")
	if r := w.ask(t, k); r.Code != 201 || r.User.Username != idpName {
		t.Errorf("it answers %d %q %s", r.Code, r.User.Username, r.Status.Message)
	}
}

// changesAtOnce: service, cert and enabled apply at once (CERT-8), and a
// certificate for one target is never presented to another (CERT-1).
func changesAtOnce(t *testing.T, w *world) {
	moving, repointed := key("team-a", "moving"), key("team-b", "repointed")
	w.hub.Apply(t, w.cluster(moving, w.main), w.prepared(repointed, w.flags, v1.ModeFrontProxy), w.secret(repointed, w.flags, w.good))
	w.ready(t, moving, time.Time{}, "True/Serving")
	users := w.newLoad(t, moving)
	users.more(t, idpName)
	from := time.Now()
	w.patch(t, moving, `{"spec":{"service":{"ExternalService":{"url":"`+w.hub.URL+`"}}}}`)
	w.hub.MustAudit(t, func(e *auditv1.Event) bool { return e.UserAgent == loadAgent })
	t.Logf("requests at the new service %v after the patch began", time.Since(from).Round(time.Millisecond))
	users.more(t, idpName)
	users.stop(t)

	answers := func(code int) func() bool { return func() bool { return w.ask(t, moving).Code == code } }
	other := w.cluster(moving, w.hub.APIServer)
	stranger := proxy.Cluster(moving.Namespace, moving.Name, w.hub.URL, pki.MustCA("stranger"))
	good := other.Spec.Cert
	other.Spec.Cert = stranger.Spec.Cert
	w.hub.Apply(t, other)
	hub.Eventually(t, "another CA applies", soon, answers(http.StatusBadGateway))
	other.Spec.Cert = good
	w.hub.Apply(t, other)
	hub.Eventually(t, "the right CA applies", soon, answers(http.StatusCreated))

	from = time.Now()
	w.patch(t, moving, `{"spec":{"enabled":false}}`)
	s := w.ready(t, moving, from, "False/Disabled")
	if r := w.ask(t, moving); r.Code != 404 || s.Path != nil || s.Exposed {
		t.Errorf("disabled, it answers %d, status %+v", r.Code, s)
	}
	w.event(t, moving, from, corev1.EventTypeNormal, "Disabled", "enabled is false")
	from = time.Now()
	w.patch(t, moving, `{"spec":{"enabled":true}}`)
	w.ready(t, moving, from, "True/Serving")
	hub.Eventually(t, "it is enabled", soon, answers(http.StatusCreated))

	w.repoint(t, repointed)
}

// repoint has the author name another apiserver than the admin did.
func (w *world) repoint(t *testing.T, k types.NamespacedName) {
	t.Helper()
	from := time.Now()
	w.patch(t, k, `{"spec":{"service":{"ExternalService":{"url":"`+w.hub.URL+`"}}}}`)
	w.refused(t, k, from, mismatch, `must be "`+proxy.CanonicalTarget(w.hub.URL)+`"`, "")
	from = time.Now()
	w.hub.Apply(t, w.secret(k, w.hub.APIServer, w.good))
	w.serves(t, k, from)
	if r := w.ask(t, k); r.Code != 201 || r.User.Username != prefixedName {
		t.Errorf("it answers %d %q %s", r.Code, r.User.Username, r.Status.Message)
	}
}
