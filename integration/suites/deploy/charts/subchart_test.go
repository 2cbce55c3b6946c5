package charts

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// parentChart is a chart with both charts as its own, the proxy's twice.
const parentChart = `
apiVersion: v2
name: platform
description: A parent
version: 1.0.0
icon: https://example.com/icon.svg
dependencies:
- {name: proxyauthk8s-crds, version: 0.1.0, repository: "", condition: proxyauthk8s-crds.enabled}
- {name: proxyauthk8s, version: 0.1.0, repository: "", condition: proxyauthk8s.enabled}
- {name: proxyauthk8s, alias: Inner_2, version: 0.1.0, repository: "", condition: Inner_2.enabled}
`

// parent writes the parent chart with its values.
func parent(t *testing.T, values string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"Chart.yaml": parentChart, "values.yaml": values} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, chart := range []string{chart(t), crdsChart(t)} {
		if err := os.CopyFS(filepath.Join(dir, "charts", filepath.Base(chart)), os.DirFS(chart)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The charts work as subcharts: the condition of the dependency decides, values
// that the parent shares are taken, and two of one chart do not disturb each
// other (CHART-3).
func TestSubcharts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values string
		args   []string
		want   []string // Deployments
		crds   int
	}{
		"by default":      {"global: {imageRegistry: registry.example.com}\n", nil, []string{"no-inner-2", "no-proxyauthk8s"}, 1},
		"enabled":         {"proxyauthk8s: {enabled: true, impersonation: deny}\nInner_2: {enabled: false}\n", nil, []string{"no-proxyauthk8s"}, 1},
		"disabled":        {"proxyauthk8s: {enabled: false}\nproxyauthk8s-crds: {enabled: false}\n", nil, []string{"no-inner-2"}, 0},
		"by the command":  {"Inner_2: {enabled: false}\n", []string{"--set", "Inner_2.enabled=true,proxyauthk8s.enabled=false,global.a=b"}, []string{"no-inner-2"}, 1},
		"none of them":    {"{}\n", []string{"--set", "Inner_2.enabled=false,proxyauthk8s.enabled=false,proxyauthk8s-crds.enabled=false"}, nil, 0},
		"global is null":  {"global:\n", []string{"--set", "Inner_2.enabled=false"}, []string{"no-proxyauthk8s"}, 1},
		"null, as helm":   {"Inner_2: {enabled: false}\n", []string{"--set", "proxyauthk8s.tls.secretName=null,proxyauthk8s.podLabels=null"}, []string{"no-proxyauthk8s"}, 1},
		"in parent files": {"Inner_2: {enabled: false}\nproxyauthk8s: {enabled: null}\n", nil, []string{"no-proxyauthk8s"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := parent(t, c.values)
			objects := decode(t, mustTemplate(t, "no", "1234", dir, c.args...))
			var names []string
			for _, d := range all[*appsv1.Deployment](objects) {
				names = append(names, d.Name)
			}
			slices.Sort(names)
			if diff := cmp.Diff(c.want, names); diff != "" {
				t.Error(diff)
			}
			if n := count(objects, "CustomResourceDefinition"); n != c.crds {
				t.Errorf("%d definitions", n)
			}
			checkUnique(t, objects)
			if name != "none of them" {
				newHelm(t, os.DevNull).mustRun(t, "lint", "--strict", "--with-subcharts", dir)
			}
		})
	}

	// What the schema refuses it refuses there, too.
	_, stderr, code := template(t, "no", "1234", parent(t, "proxyauthk8s: {impersonation: null}\n"))
	if code == 0 || !strings.Contains(stderr, "impersonation") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// count counts objects of a kind.
func count(objects []runtime.Object, kind string) (n int) {
	for _, o := range objects {
		if o.GetObjectKind().GroupVersionKind().Kind == kind {
			n++
		}
	}
	return n
}

// checkUnique demands that no two proxies share a name, a selector or a Lease.
func checkUnique(t *testing.T, objects []runtime.Object) {
	t.Helper()
	seen := map[string]bool{}
	add := func(key string) {
		if seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
	}
	for _, o := range objects {
		meta := o.(interface{ GetNamespace() string })
		name := o.(interface{ GetName() string })
		add(o.GetObjectKind().GroupVersionKind().Kind + " " + meta.GetNamespace() + "/" + name.GetName())
	}
	for _, d := range all[*appsv1.Deployment](objects) {
		labels := d.Spec.Selector.MatchLabels
		add("selector " + strings.Join(slices.Sorted(maps.Values(labels)), " "))
		add("lease " + leaseOf(t, byName[*corev1.ConfigMap](objects, d.Name)))
	}
}

// leaseOf is the Lease in a Caddyfile.
func leaseOf(t *testing.T, config *corev1.ConfigMap) string {
	t.Helper()
	_, after, found := strings.Cut(config.Data["Caddyfile"], "leader_election ")
	lease, _, _ := strings.Cut(after, "\n")
	if !found || lease == "" {
		t.Fatalf("no Lease in\n%s", config.Data["Caddyfile"])
	}
	return lease
}
