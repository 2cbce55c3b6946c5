package tenant

import (
	"net/http"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// CHART-1, TRUST-4: a user with the ClusterRole edit in a namespace, with the rights
// that the chart adds to it, makes and changes clusters and Secrets there. The user
// writes no status, neither directly nor along with the object, and reaches nothing
// of another namespace.
func whoTheTenantIs(w *world) {
	up := rawserver.Start(w, rawserver.Options{NoIdentity: true})
	w.apply(w.passthrough(mine, "own", up), proxy.Secret(mine, "own", map[string]string{"a": "b"}))
	w.patch(v1.Resource, "own", `{"spec":{"dashboard_group":"x"}}`)
	w.ready("own", "True/Serving")
	w.hub.Eventually(w, "it serves", func() bool { return w.get(mine, "own") == http.StatusOK })

	const forged = `{"status":{"exposed":true,"error":"forged","conditions":[{"type":"Ready","status":"True","reason":"Forged","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`
	w.patch(v1.Resource, "own", forged)
	if s := w.hub.Cluster(w, mine, "own").Status; hub.Condition(s, "Ready") != "True/Serving" || s.Error != nil {
		w.Errorf("a status came in with the object: %+v", s)
	}
	for _, args := range [][]string{
		{"patch", "-n", mine, v1.Resource, "own", "--subresource=status", "--type=merge", "-p", forged},
		{"get", "-n", theirs, "secrets"},
		{"get", "-n", hubNamespace, "secrets"},
		{"get", "-n", hubNamespace, "secret", "proxyauth-frontproxy-" + theirs + ".steady"},
		{"get", "-A", "secrets"},
		{"get", "-A", v1.Resource},
		{"patch", "-n", theirs, v1.Resource, "steady", "--type=merge", "-p", `{"spec":{"enabled":false}}`},
		{"delete", "-n", theirs, v1.Resource, "steady"},
		{"create", "secret", "generic", "-n", hubNamespace, "proxyauth-frontproxy-" + mine + ".own"},
		{"create", "token", "-n", hubNamespace, "proxyauthk8s"},
		{"create", "rolebinding", "more", "-n", mine, "--clusterrole=admin", "--user=" + attacker},
	} {
		if r := w.tenant.MustEnd(w, args...); r.ExitCode == 0 || !strings.Contains(r.Stderr, "orbidden") {
			w.Errorf("%q: %+v", args, r)
		}
	}
	w.remove("secret", "own")
	w.remove(v1.Resource, "own")
}
