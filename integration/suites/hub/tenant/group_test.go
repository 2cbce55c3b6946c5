package tenant

import (
	"net/http"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// ACC-1: who may name objects so that their default group is that of an older object
// gets no cluster with that group, and leaves the older one alone.
func defaultGroup(w *world) {
	const older, group = "team", "dashboard-team-a-grouped"
	up := rawserver.Start(w, rawserver.Options{})
	w.hub.Admin.MustRun(w, "create", "namespace", older)
	first := w.passthrough(older, "a-grouped", up)
	first.Spec.ExposeViaDashboard = true
	w.apply(first)
	w.answers(older, "a-grouped", http.StatusForbidden, "not a member of group "+group)

	second := w.passthrough(mine, "grouped", up)
	second.Spec.ExposeViaDashboard = true
	w.apply(second)
	if message := w.ready("grouped", "False/InvalidSpec"); !strings.Contains(message, "spec.dashboard_group: must be set") || !strings.Contains(message, group) {
		w.Errorf("the message is %q", message)
	}
	w.answers(mine, "grouped", http.StatusServiceUnavailable, passing+"InvalidSpec")
	w.answers(older, "a-grouped", http.StatusForbidden, "not a member of group "+group)

	w.patch(v1.Resource, "grouped", `{"spec":{"dashboard_group":"mine"}}`)
	w.answers(mine, "grouped", http.StatusForbidden, "not a member of group mine")
	w.patch(v1.Resource, "grouped", `{"spec":{"dashboard_group":null}}`)
	w.answers(mine, "grouped", http.StatusServiceUnavailable, passing+"InvalidSpec")
	// When the older object goes, the default belongs to the one that is left.
	w.hub.Admin.MustRun(w, "delete", "-n", older, "proxykubeapi", "a-grouped", "--wait")
	w.answers(mine, "grouped", http.StatusForbidden, "not a member of group "+group)
}
