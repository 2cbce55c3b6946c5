package tenant

import (
	"net/http"
	"strings"
	"syscall"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// ours is the prefix of the attacker's own clusters: what arrives under it came
// through one of them.
const ours = "mallory:"

// targeted makes a cluster in front of the apiserver, with that prefix.
type targeted func(namespace, name, p string) *v1.ProxyKubeApi

// realTarget repeats what a tenant must not achieve with a real apiserver as the
// target, whose audit log says who arrived: theirs/real is another tenant's, and
// every cluster of the attacker names the same apiserver.
func realTarget(w *world) {
	api := kube.Start(w, kube.Options{Etcd: w.etcd})
	cluster := func(namespace, name, p string) *v1.ProxyKubeApi {
		return proxy.FrontProxyCluster(namespace, name, api.URL, api.PKI.ServerCA, p, proxy.Authenticator(w.idp))
	}
	pair := pki.Must(api.FrontProxy())
	w.apply(proxy.FrontProxySecret(theirs, "real", api.URL, pair), cluster(theirs, "real", prefix))
	w.answers(theirs, "real", http.StatusCreated, "")

	w.realNames(cluster, pair)
	w.realRepointing(cluster)
	w.realReferences(cluster)
	for _, e := range w.arrivedAt(api) {
		w.Errorf("%s %s as %q of %q", e.Verb, e.RequestURI, e.User.Username, e.User.Groups)
	}
	w.realDeletion(cluster, proxy.FrontProxySecret(mine, "real-gone", api.URL, pair))
	w.realStalling(api, cluster)
	// The other tenant noticed none of it, but for the time when the apiserver
	// was away.
	w.answers(theirs, "real", http.StatusCreated, "")
}

// arrivedAt are the requests that an apiserver took for one of the attacker's
// clusters, or for the name in a certificate.
func (w *world) arrivedAt(api *kube.APIServer) (found []auditv1.Event) {
	w.Helper()
	events, err := api.AuditEvents()
	if err != nil {
		w.Fatal(err)
	}
	known := false
	for _, e := range events {
		known = known || e.User.Username == prefix+"alice"
		if strings.HasPrefix(e.User.Username, ours) || e.User.Username == kube.FrontProxyName {
			found = append(found, e)
		}
	}
	if !known {
		w.Error("the audit log does not even know the other tenant")
	}
	return found
}

// realNames: no other object gets the certificate of theirs/real, whatever its name
// (CERT-1). A Secret that the attacker makes under that name is no certificate.
func (w *world) realNames(cluster targeted, pair *pki.KeyPair) {
	w.Helper()
	own := proxy.FrontProxySecret(mine, "real", "https://127.0.0.1", pair)
	own.Namespace = mine
	w.apply(own)
	for _, name := range []string{"real", theirs + ".real"} {
		w.apply(cluster(mine, name, ours))
		w.ready(name, "False/ClientCertMissing")
		w.answers(mine, name, http.StatusServiceUnavailable, notReady+"ClientCertMissing")
	}
}

// realRepointing: an approval is for one target (CERT-1, CERT-2), so moving a
// cluster of another apiserver to this one closes it.
func (w *world) realRepointing(cluster targeted) {
	w.Helper()
	up := rawserver.Start(w, rawserver.Options{Handler: ticking})
	w.approve(mine, "real-moved", up, 0)
	w.apply(w.cluster(mine, "real-moved", up))
	w.answers(mine, "real-moved", http.StatusCreated, "")
	ended := w.watching(mine, "real-moved")
	w.apply(cluster(mine, "real-moved", ours))
	if took := ended(); took > 5*time.Second+slack {
		w.Errorf("the watch ended after %v", took)
	}
	w.answers(mine, "real-moved", http.StatusServiceUnavailable, notReady+"ClientCertTargetMismatch")
	w.ready("real-moved", "False/ClientCertTargetMismatch")
	w.stays(mine, "real-moved", http.StatusServiceUnavailable, notReady+"ClientCertTargetMismatch", time.Second)
}

// realReferences: the key of theirs/real, for mTLS in Passthrough, and whatever
// else is in the proxy's namespace (API-4, API-5).
func (w *world) realReferences(cluster targeted) {
	w.Helper()
	key := "proxyauth-frontproxy-" + theirs + ".real"
	half := func(name string) v1.CertSource {
		return v1.CertSource{Secret: keyRef(hubNamespace, key, name)}
	}
	stolen := cluster(mine, "real-stolen", ours)
	stolen.Spec.UpstreamAuth = nil
	stolen.Spec.ClientCert = &v1.ClientCert{Cert: half("tls.crt"), Key: half("tls.key")}
	read := cluster(mine, "real-read", ours)
	read.Spec.UpstreamAuth = nil
	read.Spec.Cert = &v1.CertSource{Secret: keyRef(hubNamespace, key, "tls.key")}
	w.apply(stolen, read)
	for _, name := range []string{"real-stolen", "real-read"} {
		w.ready(name, "False/InvalidSpec")
		w.answers(mine, name, http.StatusServiceUnavailable, passing+"InvalidSpec")
	}
}

// realDeletion: a deleted cluster has no URL (STREAM-1), though it was approved.
func (w *world) realDeletion(cluster targeted, approval any) {
	w.Helper()
	w.apply(approval, cluster(mine, "real-gone", prefix))
	w.answers(mine, "real-gone", http.StatusCreated, "")
	w.tenant.MustRun(w, "delete", "-n", mine, v1.Resource, "real-gone", "--wait=false")
	w.within(aSecond+slack, "404", func() bool { return w.get(mine, "real-gone") == http.StatusNotFound })
	w.stays(mine, "real-gone", http.StatusNotFound, w.ask(mine, "real-gone").Status.Message, time.Second)
}

// realStalling: an apiserver that refused the proxy stands still, and goes on
// (TRUST-4): the cluster that it closed stays closed throughout.
func (w *world) realStalling(api *kube.APIServer, cluster targeted) {
	w.Helper()
	strange := pki.Must(pki.MustCA("strange").Client(kube.FrontProxyName))
	w.apply(proxy.FrontProxySecret(mine, "real-stalled", api.URL, strange), cluster(mine, "real-stalled", ours))
	const reason = notReady + "FrontProxyNotTrusted"
	w.answers(mine, "real-stalled", http.StatusServiceUnavailable, reason)
	w.ready("real-stalled", "False/FrontProxyNotTrusted")
	still := func(signal syscall.Signal, reachable string) {
		w.Helper()
		if err := syscall.Kill(api.PID(), signal); err != nil {
			w.Fatal(err)
		}
		w.hub.WaitStatus(w, mine, "real-stalled", "Reachable "+reachable, func(s *v1.ProxyKubeApiStatus) bool {
			return strings.HasPrefix(hub.Condition(s, "Reachable"), reachable)
		})
		w.stays(mine, "real-stalled", http.StatusServiceUnavailable, reason, 2*time.Second)
	}
	defer syscall.Kill(api.PID(), syscall.SIGCONT)
	still(syscall.SIGSTOP, "False/")
	still(syscall.SIGCONT, "True/Answered")
	for _, e := range w.arrivedAt(api) {
		w.Errorf("%s %s as %q", e.Verb, e.RequestURI, e.User.Username)
	}
}
