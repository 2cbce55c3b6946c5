package tenant

import (
	"net/http"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func hasCondition(kind string) func(*v1.ProxyKubeApiStatus) bool {
	return func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, kind) != "" }
}

// forge writes a status as its author would like it. The attacker has no right to
// do so, so the test uses the rights of another; they gain nothing by it either.
func (w *world) forge(name, status, reason, trust string) {
	w.Helper()
	w.hub.Admin.MustRun(w, "patch", "-n", mine, v1.Resource, name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"exposed":true,"error":null,"observedGeneration":1,"path":"/clusters/`+theirs+`/steady","conditions":[{"type":"Ready","status":"`+status+`","reason":"`+reason+
			`","message":"forged","lastTransitionTime":"2020-01-01T00:00:00Z","observedGeneration":1}],
		"upstreamAuth":{"mode":"FrontProxy","trust":"`+trust+`","trustSince":"2020-01-01T00:00:00Z","lastProbe":"2020-01-01T00:00:00Z","message":"forged"}}}`)
}

// TRUST-4: the right to write a status opens no cluster, and the leader puts the
// status right.
func forgedStatus(w *world) {
	bad := rawserver.Start(w, rawserver.Options{Bare: true, Handler: rawserver.Unauthorized})
	good := rawserver.Start(w, rawserver.Options{})
	w.approve(mine, "forged-open", bad, 0)
	w.approve(mine, "forged-closed", good, 0)
	w.apply(w.cluster(mine, "forged-open", bad), w.cluster(mine, "forged-closed", good), w.cluster(mine, "forged-missing", good))
	w.answers(mine, "forged-closed", http.StatusCreated, "")
	w.ready("forged-open", "False/FrontProxyNotTrusted")
	w.ready("forged-missing", "False/ClientCertMissing")
	right := func(s *v1.ProxyKubeApiStatus, path string) bool {
		return s.Path != nil && *s.Path == path && hub.Message(s, "Ready") != "forged"
	}
	for range 3 {
		w.forge("forged-open", "True", "Serving", "Trusted")
		w.forge("forged-missing", "True", "Serving", "Trusted")
		w.forge("forged-closed", "False", "FrontProxyNotTrusted", "Rejected")
		for _, name := range []string{"forged-open", "forged-missing", "forged-closed"} {
			w.hub.WaitStatus(w, mine, name, "what is true", func(s *v1.ProxyKubeApiStatus) bool {
				return right(s, "/clusters/"+mine+"/"+name)
			})
		}
		w.stays(mine, "forged-open", http.StatusServiceUnavailable, notReady+"FrontProxyNotTrusted", time.Second)
		w.stays(mine, "forged-missing", http.StatusServiceUnavailable, notReady+"ClientCertMissing", time.Second)
	}
	w.ready("forged-open", "False/FrontProxyNotTrusted")
	w.ready("forged-missing", "False/ClientCertMissing")
	w.ready("forged-closed", "True/Serving")
	w.answers(mine, "forged-closed", http.StatusCreated, "")
	for _, r := range bad.AllRequests() {
		if !r.Probe {
			w.Errorf("%v passed", r)
		}
	}
}

// A mode that the proxy admin did not open is not served, nor served as another
// one; one that no version knows does not come in.
func mode(w *world) {
	up := rawserver.Start(w, rawserver.Options{})
	w.approve(mine, "modes", up, 0)
	w.apply(w.cluster(mine, "modes", up))
	w.answers(mine, "modes", http.StatusCreated, "")
	up.Reset()
	strict := *w
	strict.px = proxy.Start(w, proxy.Options{Hub: w.hub.Kubeconfig, Settings: quick, AllowedModes: []string{"Passthrough"}})
	strict.hub.Eventually(w, "the replica has read its clusters", func() bool { return strict.ask(mine, "modes").Status.Reason != "" })
	const message = "upstream mode FrontProxy is not enabled on this proxy installation"
	strict.answers(mine, "modes", http.StatusServiceUnavailable, message)
	strict.stays(mine, "modes", http.StatusServiceUnavailable, message, time.Second)
	for _, other := range []string{"frontproxy", "FRONTPROXY", "Impersonation", ""} {
		r := w.tenant.MustEnd(w, "patch", "-n", mine, v1.Resource, "modes", "--type=merge", "-p", `{"spec":{"upstream_auth":{"mode":"`+other+`"}}}`)
		if r.ExitCode == 0 || !strings.Contains(r.Stderr, "spec.upstream_auth.mode") {
			w.Errorf("mode %q: %+v", other, r)
		}
	}
	strict.px.Stop()
	for _, r := range up.AllRequests() {
		if r.Identity == nil && !r.Probe {
			w.Errorf("%v", r)
		}
	}
}
