package tenant

import (
	"net/http"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// aSecond is how soon a deletion shows.
const aSecond = time.Second

// STREAM-1: a deleted cluster has no URL and no streams.
func deletion(w *world) {
	up := rawserver.Start(w, rawserver.Options{Handler: ticking})
	w.approve(mine, "gone", up, 0)
	w.apply(w.cluster(mine, "gone", up))
	w.answers(mine, "gone", http.StatusCreated, "")
	ended := w.watching(mine, "gone")
	w.tenant.MustRun(w, "delete", "-n", mine, v1.Resource, "gone", "--wait=false")
	w.within(aSecond+slack, "404", func() bool { return w.get(mine, "gone") == http.StatusNotFound })
	if took := ended(); took > 5*time.Second+slack {
		w.Errorf("the watch ended after %v", took)
	}
}

// A finalizer is the author's to set: it keeps the object, but neither its URL
// nor its streams, and the certificate is presented no more.
func finalizer(w *world) {
	up := rawserver.Start(w, rawserver.Options{Handler: ticking})
	w.approve(mine, "kept", up, 0)
	c := w.cluster(mine, "kept", up)
	c.Finalizers = []string{"team-a.example.com/never"}
	w.apply(c)
	w.answers(mine, "kept", http.StatusCreated, "")
	ended := w.watching(mine, "kept")
	w.tenant.MustRun(w, "delete", "-n", mine, v1.Resource, "kept", "--wait=false")
	w.within(aSecond+slack, "404", func() bool { return w.get(mine, "kept") == http.StatusNotFound })
	if took := ended(); took > 5*time.Second+slack {
		w.Errorf("the watch ended after %v", took)
	}
	// Nor does a change of what is left bring it back.
	w.patch(v1.Resource, "kept", `{"metadata":{"annotations":{"still":"here"}},"spec":{"enabled":true,"dashboard_group":"x"}}`)
	up.Reset()
	w.stays(mine, "kept", http.StatusNotFound, w.ask(mine, "kept").Status.Message, 3*time.Second)
	for _, r := range withCertificate(up) {
		w.Errorf("%v", r)
	}
	w.patch(v1.Resource, "kept", `{"metadata":{"finalizers":null}}`)
}

// A cluster made anew under the name of another inherits nothing: no verdict, no
// token, no value that was read for the one before.
func madeAnew(w *world) {
	up := rawserver.Start(w, rawserver.Options{Handler: ticking})
	w.approve(mine, "anew", up, 0)
	w.apply(w.cluster(mine, "anew", up), proxy.Secret(mine, "anew-ca", map[string]string{"ca.crt": string(up.ServerCA.PEM)}))
	w.answers(mine, "anew", http.StatusCreated, "")
	for range 3 {
		ended := w.watching(mine, "anew")
		// Both at once, as kubectl replace --force does it.
		k := w.tenant
		again := w.cluster(mine, "anew", up)
		k.Stdin = []byte(proxy.Manifests(again))
		k.MustRun(w, "replace", "--force", "--grace-period=0", "-f", "-")
		if took := ended(); took > 5*time.Second+slack {
			w.Errorf("the watch of the first ended after %v", took)
		}
		w.answers(mine, "anew", http.StatusCreated, "")
	}

	// Tokens: the second one does not know the provider of the first.
	other := oidc.Start(w, oidc.Options{})
	c := w.cluster(mine, "anew", up)
	c.Spec.AuthConfig.JWT = []v1.JWTAuthenticator{proxy.Authenticator(other)}
	w.remove(v1.Resource, "anew")
	w.apply(c)
	w.hub.Eventually(w, "a token of the first is refused", func() bool { return w.ask(mine, "anew").Code == http.StatusUnauthorized })

	// References: what the first one had read well is nothing the second has.
	c = w.passthrough(mine, "anew", up)
	c.Spec.Cert = &v1.CertSource{Secret: keyRef("", "anew-ca", "ca.crt")}
	w.apply(c)
	w.ready("anew", "True/Serving")
	w.remove("secret", "anew-ca")
	w.hub.WaitStatus(w, mine, "anew", "ReferenceStale", hasCondition("ReferenceStale"))
	w.ready("anew", "True/Serving")
	w.remove(v1.Resource, "anew")
	w.apply(c)
	w.ready("anew", "False/ReferenceNotFound")

	// Verdicts: the apiserver has to show again that it honours the proxy.
	w.apply(w.cluster(mine, "anew", up))
	w.answers(mine, "anew", http.StatusCreated, "")
	w.remove(v1.Resource, "anew")
	bare := rawserver.Start(w, rawserver.Options{Addr: stopped(up), ServerCA: up.ServerCA, FrontProxyCA: up.FrontProxyCA, Bare: true, Handler: rawserver.Hang})
	w.apply(w.cluster(mine, "anew", up))
	w.hub.Eventually(w, "closed until it is asked", func() bool {
		return w.ask(mine, "anew").Status.Message == notReady+"UpstreamTrustUnknown"
	})
	for _, r := range bare.AllRequests() {
		if !r.Probe {
			w.Errorf("%v passed", r)
		}
	}
}

// stopped ends a server and returns its address.
func stopped(s *rawserver.Server) string {
	s.Stop()
	return s.Host
}
