//go:build long

package clients

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
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
		{"install", "web", chart, "--wait", "--timeout=4m"},
		{"upgrade", "web", chart, "--set=text=second,replicas=2", "--wait", "--timeout=4m"},
		{"rollback", "web", "1", "--wait", "--timeout=4m"},
	} {
		mustWait(t, helm, args...)
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
	mustWait(t, helm, "uninstall", "web", "--wait", "--timeout=4m")
	if out := a.MustRun(t, "get", "widgets,deployments,secrets", "--output=name").Stdout; out != "" {
		t.Errorf("after uninstall there are %s", out)
	}
}

// mustWait is MustRun for what waits itself, on a busy machine.
func mustWait(t *testing.T, k kube.Kubectl, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if r, err := k.Run(ctx, args...); err != nil || r.ExitCode != 0 {
		t.Fatalf("helm %q: %v: %+v", args, err, r)
	}
}
