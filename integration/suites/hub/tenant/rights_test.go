package tenant

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// CRD-02, CERT-7: with the rights of a restricted chart nothing is listed that
// may not be; a right that is taken away shows on the object it concerns within
// a minute, by the name of the Secret and the verb, while what was last read
// serves; with the right it is gone, and nothing was restarted.
func TestCRD02ARightThatIsTakenAway(t *testing.T) {
	t.Parallel()
	const rights = "rbac.secretNamespaces={team-a,team-b}"
	w := &world{T: t, idp: oidc.Start(t, oidc.Options{})}
	w.hub = hub.Start(t, kube.Options{}, rights)
	w.addTenant(t)
	w.token = w.idp.Token(oidc.Alice, nil)
	// Nothing is hurried here: the bound is that of the product's defaults.
	w.px = proxy.Start(t, proxy.Options{Hub: w.hub.Kubeconfig})
	servers := map[string]*rawserver.Server{}
	serials := map[string]int64{mine: 11, theirs: 12}
	for _, namespace := range []string{mine, theirs} {
		up := rawserver.Start(t, rawserver.Options{NoIdentity: true})
		servers[namespace] = up
		pair := up.FrontProxy(serials[namespace]) // here it is any certificate
		c := w.passthrough(namespace, "prod", up)
		c.Spec.Cert = &v1.CertSource{Secret: keyRef("", "ca", "ca.crt")}
		c.Spec.ClientCert = &v1.ClientCert{
			Cert: v1.CertSource{Secret: keyRef("", "mtls", "tls.crt")}, Key: v1.CertSource{Secret: keyRef("", "mtls", "tls.key")},
		}
		w.apply(c, proxy.Secret(namespace, "ca", map[string]string{"ca.crt": string(up.ServerCA.PEM)}),
			proxy.Secret(namespace, "mtls", map[string]string{"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM)}))
	}
	for _, namespace := range []string{mine, theirs} {
		w.hub.WaitReady(t, namespace, "prod", "True/Serving")
		w.hub.Eventually(t, "it serves", func() bool { return w.get(namespace, "prod") == http.StatusOK })
	}
	w.hub.MustNotHaveBeenForbidden(t)

	binding := w.bindings(mine)
	w.hub.Admin.MustRun(t, append([]string{"delete", "rolebinding", "-n", mine}, binding...)...)
	start := time.Now()
	for asked := 0; ; asked++ {
		for _, namespace := range []string{mine, theirs} {
			if code := w.get(namespace, "prod"); code != http.StatusOK {
				t.Fatalf("%s: %d without the right", namespace, code)
			}
		}
		s := w.hub.Cluster(t, mine, "prod").Status
		message := hub.Message(s, "ReferenceStale")
		if strings.Contains(message, "get Secret team-a/ca: forbidden") && strings.Contains(message, "get Secret team-a/mtls: forbidden") {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("after a minute: %q", message)
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Logf("told after %v", time.Since(start).Round(time.Second))
	if got := hub.Condition(w.hub.Cluster(t, mine, "prod").Status, "Ready"); got != "True/Serving" {
		t.Errorf("Ready is %s", got)
	}
	other := w.hub.Cluster(t, theirs, "prod").Status
	if hub.Condition(other, "ReferenceStale") != "" || hub.Condition(other, "Ready") != "True/Serving" {
		t.Errorf("the other tenant: %+v", other.Conditions)
	}
	// What was never read is missing, by the same words.
	c := w.passthrough(mine, "late", servers[mine])
	c.Spec.Cert = &v1.CertSource{Secret: keyRef("", "ca", "ca.crt")}
	w.apply(c)
	if message := w.ready("late", "False/ReferenceNotFound"); !strings.Contains(message, "get Secret team-a/ca: forbidden") {
		t.Errorf("a new object: %q", message)
	}

	w.hub.Grant(t, rights)
	w.hub.WaitStatus(t, mine, "prod", "no notice", func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, "ReferenceStale") == "" })
	w.ready("late", "True/Serving")
	for namespace, up := range servers {
		if code := w.get(namespace, "prod"); code != http.StatusOK {
			t.Errorf("%s: %d", namespace, code)
		}
		all := up.Requests()
		if n := len(all); n == 0 || all[n-1].Serial == nil || all[n-1].Serial.Int64() != serials[namespace] {
			t.Errorf("%s: the last of %d requests came without its certificate", namespace, n)
		}
	}
	select {
	case <-w.px.Done():
		t.Error("the proxy ended")
	default:
	}
	// Nothing but reads by name was refused, and nothing was listed elsewhere.
	for _, e := range w.hub.Requests(t, func(e *auditv1.Event) bool { return e.ObjectRef != nil }) {
		secrets := slices.Contains([]string{"secrets", "configmaps"}, e.ObjectRef.Resource)
		if e.ResponseStatus.Code == http.StatusForbidden && (!secrets || e.Verb != "get" || e.ObjectRef.Namespace != mine) ||
			secrets && e.Verb != "get" && e.ObjectRef.Namespace != hubNamespace {
			t.Errorf("%d %s %s", e.ResponseStatus.Code, e.Verb, e.RequestURI)
		}
	}
	w.nothingTold(whispered[1])
}

// bindings are the RoleBindings of the chart in a namespace.
func (w *world) bindings(namespace string) []string {
	w.Helper()
	names := strings.Fields(w.hub.Admin.MustRun(w, "get", "rolebinding", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}").Stdout)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ":references") })
	if len(names) == 0 {
		w.Fatalf("no RoleBinding in %s", namespace)
	}
	return names
}
