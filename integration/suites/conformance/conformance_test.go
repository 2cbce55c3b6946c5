//go:build long

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/conformance"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// atOnce is how many tests run at the same time: they wait for pods more than
// they compute.
const atOnce = 16

// leastDirect is how many of a hundred tests that one node can run have to pass
// directly: a broken node makes no green run.
const leastDirect = 95

// TestLongConformanceQuick runs a few tests of each kind: discovery, watches,
// chunks, streams, logs, CRDs, server-side apply, the proxy subresource (RELAY-1,
// RELAY-2).
func TestLongConformanceQuick(t *testing.T) {
	tests := conformance.Quick()
	run(t, "quick", tests, len(tests)*leastDirect/100)
}

// TestConformance runs all tests, or the part that SHARD names: make conformance.
func TestConformance(t *testing.T) {
	all, err := conformance.List(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tests, err := conformance.Runnable(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range conformance.Quick() {
		if !slices.Contains(tests, name) { // one that is not called [Conformance]
			tests = append(tests, name)
		}
	}
	k, n, err := conformance.ParseShard(os.Getenv("SHARD"))
	if err != nil {
		t.Fatal(err)
	}
	tests = conformance.Shard(tests, k, n)
	run(t, fmt.Sprintf("shard-%d-of-%d", k, n), tests, len(tests)*leastDirect/100)
}

// run compares the tests, of which at least so many have to pass directly, and
// keeps the results in bin/conformance.
func run(t *testing.T, name string, tests []string, least int) {
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "bin", "conformance")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := conformance.Start(t)
	logs := filepath.Join(dir, name)
	if err := os.RemoveAll(logs); err != nil {
		t.Fatal(err)
	}
	runner := &conformance.Runner{Node: w.Node, Dir: logs, AtOnce: atOnce, Progress: os.Stderr}
	forms := []conformance.Form{{Name: "path", Kubeconfig: w.Path}, {Name: "host", Kubeconfig: w.Host}}
	if only := os.Getenv("CONFORMANCE_FORM"); only != "" {
		forms = slices.DeleteFunc(forms, func(f conformance.Form) bool { return f.Name != only })
	}
	remedies := []conformance.Form{{Name: conformance.ForwardImpersonation, Kubeconfig: w.Impersonation}}
	c, err := runner.Compare(t.Context(), conformance.Form{Name: "direct", Kubeconfig: w.Direct}, forms, remedies, tests)
	if c != nil {
		if err := c.Write(dir, name); err != nil {
			t.Error(err)
		}
		t.Logf("kept in %s:\n%s", dir, c.Table())
	}
	if err != nil {
		t.Fatal(err)
	}
	if passed := c.Passed(); passed < least {
		t.Errorf("%d of %d tests pass directly, and at least %d have to", passed, len(tests), least)
	}
	for _, f := range c.Faults() {
		t.Errorf("%s: %s: %s: %s", f.Form, f.Test, f.Reason, f.Failure)
	}
}
