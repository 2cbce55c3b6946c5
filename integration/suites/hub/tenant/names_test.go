package tenant

import (
	"net/http"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const hubNamespace = hub.Namespace

// CERT-1: the certificate of a cluster is one Secret of the proxy's namespace,
// and its name belongs to one object only. The same target, a Secret of that name
// elsewhere, or a name with dots gives no object the certificate of another.
func names(w *world) {
	up := rawserver.Start(w, rawserver.Options{})
	w.approve(theirs, "b.prod", up, 7)
	w.apply(w.cluster(theirs, "b.prod", up))
	w.answers(theirs, "b.prod", http.StatusCreated, "")

	// A namespace with a dot would share Secrets with an object with one.
	for _, name := range []string{mine + ".b", theirs + ".b"} {
		if r := w.hub.Admin.MustEnd(w, "create", "namespace", name); r.ExitCode == 0 || !strings.Contains(r.Stderr, "metadata.name") {
			w.Errorf("namespace %s: %+v", name, r)
		}
	}
	own := proxy.FrontProxySecret(mine, "own", up.URL, up.FrontProxy(8))
	own.Namespace = mine
	w.apply(own)
	thieves := []string{"prod", "b.prod", theirs + ".b.prod", "own", "b"}
	var objects []any
	for _, name := range thieves {
		objects = append(objects, w.cluster(mine, name, up))
	}
	w.apply(objects...)
	for _, name := range thieves {
		message := w.ready(name, "False/ClientCertMissing")
		if want := "Secret " + hubNamespace + "/proxyauth-frontproxy-" + mine + "." + name; !strings.Contains(message, want) {
			w.Errorf("%s looks for %q, not for %s", name, message, want)
		}
		w.answers(mine, name, http.StatusServiceUnavailable, notReady+"ClientCertMissing")
	}
	// Nor does a wish of its own make the certificate of another an own one:
	// in preparation it is not presented either.
	prepared := w.passthrough(mine, "prepared", up)
	p := prefix
	prepared.Spec.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModePassthrough, UserPrefix: &p, GroupPrefix: &p}
	w.apply(prepared)
	s := w.hub.WaitStatus(w, mine, "prepared", "what is missing", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "FrontProxyNotReady") == "True/FrontProxyNotReady" && strings.Contains(hub.Message(s, "FrontProxyNotReady"), "ClientCertMissing")
	})
	if s.UpstreamAuth.Trust != "" || s.UpstreamAuth.ClientCertNotAfter != nil {
		w.Errorf("a certificate in preparation: %+v", s.UpstreamAuth)
	}
	for _, r := range withCertificate(up) {
		if r.Serial.Int64() != 7 || r.Identity != nil && r.Identity.User != prefix+"alice" && r.Identity.User != prefix+"proxyauth-probe" {
			w.Errorf("%v with certificate %v", r, r.Serial)
		}
	}
	w.apply(w.cluster(theirs, "b.prod", up))
	w.answers(theirs, "b.prod", http.StatusCreated, "")
}
