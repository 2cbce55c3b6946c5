package migration

import (
	"encoding/base64"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

// probeAgent is how the proxy's own requests call themselves.
const probeAgent = "proxyauth-probe"

// noRequestRanAsACertificate looks at every request that the apiservers have
// answered: none but the proxy's own reviews was taken for the name of a
// certificate, or for anonymous.
func (w *world) noRequestRanAsACertificate(t *testing.T) {
	t.Helper()
	for _, target := range w.targets {
		events, err := target.AuditEvents()
		if err != nil {
			t.Fatal(err)
		}
		users := map[string]int{}
		for _, e := range events {
			users[e.User.Username]++
			if !known(&e) {
				t.Errorf("a request ran as %q: %s %s %s", e.User.Username, e.UserAgent, e.Verb, e.RequestURI)
			}
		}
		t.Logf("who asked: %v", users)
		if users[idpName] == 0 || users[prefixedName] == 0 || users[prefix+probeAgent] == 0 {
			t.Errorf("the log of %s does not hold what the test is about: %v", target.URL, users)
		}
	}
}

// nothingLeaked looks at all that the proxy has written at level DEBUG while it
// read Secrets and wrote to the hub (SIG-3).
func (w *world) nothingLeaked(t *testing.T) {
	t.Helper()
	log := w.proxy.Everything()
	for _, part := range []string{
		"PRIVATE KEY", base64.StdEncoding.EncodeToString(w.good.KeyPEM)[:64],
		// client-go's, which writes Secrets in hexadecimal too.
		"Request Body", "Response Body",
	} {
		if strings.Contains(log, part) {
			t.Errorf("the log of the proxy holds %q", part)
		}
	}
	if !strings.Contains(log, `"level":"debug"`) {
		t.Error("the log is not at level DEBUG")
	}
}

func known(e *auditv1.Event) bool {
	review := e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Resource == "selfsubjectreviews"
	switch e.User.Username {
	case idpName, prefixedName, "admin", "system:apiserver", hub.Account:
		return true
	case prefix + probeAgent:
		return e.UserAgent == probeAgent && review
	case "system:anonymous":
		// Reachable, and what client_cert is taken for.
		return e.UserAgent == probeAgent && (review || e.Verb == "get" && e.RequestURI == "/version")
	case "", kube.FrontProxyName, otherName, identityName:
		// There is no other way to learn what a certificate is taken for.
		return e.UserAgent == probeAgent && review
	}
	return false
}
