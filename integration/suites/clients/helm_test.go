//go:build long

package clients

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// revision is a line of helm history.
type revision struct {
	Revision            int
	Status, Description string
}

// testHelm leads a chart with a CustomResourceDefinition, an object of it, a
// Deployment and a hook through its life.
func testHelm(t *testing.T, a access) {
	helm, chart := a.with(realtools.Helm), testdata(t, "chart")
	// Helm leaves definitions behind, and they belong to no namespace.
	defer a.MustEnd(t, "delete", "crd", "widgets.clients.example.com")
	state := func() string {
		const text = "--output=jsonpath={.spec.text}"
		const replicas = "--output=jsonpath={.status.readyReplicas} {.spec.template.metadata.annotations.text}"
		return a.MustRun(t, "get", "widget", "web", text).Stdout + " " + a.MustRun(t, "get", "deployment", "web", replicas).Stdout
	}
	var seen []string
	for _, args := range [][]string{
		{"install", "web", chart, "--wait", "--timeout=100s"},
		{"upgrade", "web", chart, "--set=text=second,replicas=2", "--wait", "--timeout=100s"},
		{"rollback", "web", "1", "--wait", "--timeout=100s"},
	} {
		helm.MustRun(t, args...)
		seen = append(seen, state())
	}
	if diff := cmp.Diff([]string{"first 1 first", "second 2 second", "first 1 first"}, seen); diff != "" {
		t.Errorf("after install, upgrade and rollback (-want +got):\n%s", diff)
	}
	var history []revision
	if err := json.Unmarshal([]byte(helm.MustRun(t, "history", "web", "--output=json").Stdout), &history); err != nil {
		t.Fatal(err)
	}
	want := []revision{
		{1, "superseded", "Install complete"}, {2, "superseded", "Upgrade complete"}, {3, "deployed", "Rollback to 1"},
	}
	if diff := cmp.Diff(want, history); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	helm.MustRun(t, "uninstall", "web", "--wait", "--timeout=100s")
	if out := a.MustRun(t, "get", "widgets,deployments,secrets", "--output=name").Stdout; out != "" {
		t.Errorf("after uninstall there are %s", out)
	}
}
