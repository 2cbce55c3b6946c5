//go:build long

package clients

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// testManager runs two managers and kills the leader.
func testManager(t *testing.T, a access) {
	manager := a.with(realtools.Manager)
	first := manager.MustStart(t, a.namespace, "first")
	first.MustLine(t, "first leads")
	second := manager.MustStart(t, a.namespace, "second")

	write := func(text string) {
		a.apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: original, labels: {copy: 'yes'}}, data: {text: "+text+"}}")
	}
	write("one")
	first.MustLine(t, "first copied original one")
	write("two")
	first.MustLine(t, "first copied original two")
	mustCopy(t, a, "two first")

	first.Stop() // by SIGKILL, so that the Lease has to expire
	second.MustLine(t, "second leads")
	write("three")
	second.MustLine(t, "second copied original three")
	mustCopy(t, a, "three second")

	a.MustRun(t, "delete", "configmap", "original") // waits for the finalizer
	second.MustLine(t, "second removed original")
	if r := a.MustEnd(t, "get", "configmap", "original-copy"); r.ExitCode == 0 {
		t.Errorf("the copy is still there: %s", r.Stdout)
	}
	lease := a.MustRun(t, "get", "lease", "clients.example.com", "--output=jsonpath={.spec.leaseTransitions}").Stdout
	if lease != "1" {
		t.Errorf("the Lease changed hands %s times, want once", lease)
	}
}

func mustCopy(t *testing.T, a access, want string) {
	t.Helper()
	if got := a.MustRun(t, "get", "configmap", "original-copy", "--output=jsonpath={.data.text} {.data.by}").Stdout; got != want {
		t.Errorf("the copy has %q, want %q", got, want)
	}
}
