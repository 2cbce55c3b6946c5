package charts

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// valueSet is one entry of testdata/table/sets.yaml.
type valueSet struct {
	// Release and Namespace are those of the other tests when they are empty.
	Release, Namespace string
	Values             map[string]any
	// Want is what the objects hold, by "<Kind>[/<name>] <JSON pointer>".
	Want map[string]any
}

// loadSets reads testdata/table/sets.yaml.
func loadSets(t *testing.T) map[string]valueSet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "table", "sets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sets map[string]valueSet
	if err := yaml.UnmarshalStrict(text, &sets); err != nil {
		t.Fatal(err)
	}
	if len(sets) < 40 {
		t.Fatalf("%d sets of values", len(sets))
	}
	for name, s := range sets {
		if s.Release == "" {
			s.Release = release
		}
		if s.Namespace == "" {
			s.Namespace = namespace
		}
		sets[name] = s
	}
	return sets
}

// rendered holds the manifest of each set: more than one test looks at it.
var rendered sync.Map

// manifest renders the set once.
func (s valueSet) manifest(t *testing.T, name string) string {
	t.Helper()
	render, _ := rendered.LoadOrStore(name, sync.OnceValues(func() (manifest, messages string) {
		manifest, messages, code := template(t, s.Release, s.Namespace, chart(t), "--values", valuesFile(t, s.Values))
		if code == 0 {
			messages = ""
		}
		return manifest, messages
	}))
	manifest, messages := render.(func() (string, string))()
	if messages != "" {
		t.Fatalf("helm template: %s", messages)
	}
	return manifest
}

// valuesFile writes values for helm, which takes a comma in a file's name for
// the end of it: names of tests may have some.
func valuesFile(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp("", "values-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file.Name()) })
	if _, err := file.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// Each set makes what it has to, of the types of Kubernetes, named and labelled
// and wired as it should be (CHART-3).
func TestSets(t *testing.T) {
	t.Parallel()
	for name, s := range loadSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := s.manifest(t, name)
			objects := decode(t, text)
			checkNames(t, s.Release, s.Namespace, objects)
			checkWiring(t, objects)
			generic := documents(t, text)
			for at, want := range s.Want {
				if diff := cmp.Diff(want, found(generic, at)); diff != "" {
					t.Errorf("%s: %s", at, diff)
				}
			}
		})
	}
}

// Rendering is stable: Pods are not replaced and diffs stay empty when nothing
// has changed (CHART-3).
func TestStableRendering(t *testing.T) {
	t.Parallel()
	for name, s := range loadSets(t) {
		if !slices.Contains([]string{"defaults", "namespace that is a number", "rules", "autoscaling", "labels of everything", "ingress"}, name) {
			continue
		}
		again := mustTemplate(t, s.Release, s.Namespace, chart(t), "--values", valuesFile(t, s.Values))
		if diff := cmp.Diff(s.manifest(t, name), again); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The product takes the Caddyfile of each set without a warning.
func TestSetsCaddyfiles(t *testing.T) {
	t.Parallel()
	distinct := map[string]string{} // Caddyfile -> set
	for name, s := range loadSets(t) {
		files := byName[*corev1.ConfigMap](decode(t, s.manifest(t, name)), fullName(s)).Data
		distinct[files["Caddyfile"]] = name
	}
	for text, name := range distinct {
		_, messages := caddy(t, "adapt", map[string]string{"Caddyfile": text})
		if strings.Contains(messages, `"level":"warn"`) {
			t.Errorf("%s: caddy adapt: %s\n%s", name, messages, text)
		}
	}
}

// fullName is the name of the main objects of a set.
func fullName(s valueSet) string {
	if name, ok := s.Values["fullnameOverride"].(string); ok {
		return name
	}
	switch {
	case s.Release[0] <= '9':
		return "proxyauthk8s-" + strings.ReplaceAll(s.Release, ".", "-")
	case s.Release == "proxyauthk8s":
		return s.Release
	}
	name := s.Release + "-proxyauthk8s"
	return strings.TrimSuffix(name[:min(len(name), 50)], "-")
}

// found is what is at "<Kind>[/<name>] <JSON pointer>", nil when nothing is.
func found(objects []*unstructured.Unstructured, at string) any {
	what, pointer, _ := strings.Cut(at, " ")
	kind, name, named := strings.Cut(what, "/")
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && (!named || o.GetName() == name)
	})
	if i < 0 {
		return nil
	}
	var value any = objects[i].Object
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch inside := value.(type) {
		case map[string]any:
			value = inside[step]
		case []any:
			at, err := strconv.Atoi(step)
			if err != nil || at >= len(inside) {
				return nil
			}
			value = inside[at]
		default:
			return nil
		}
	}
	return value
}

// Names outside the namespace of a release are of one release alone, whatever
// the names of releases and namespaces look like side by side (CHART-3).
func TestWideNames(t *testing.T) {
	t.Parallel()
	owner := map[string]string{}
	for _, r := range []struct{ release, namespace, fullname string }{
		{"x", "a-b", "c"},
		{"x", "a", "b-c"},
		{"x", "a", "b-c-references"},
		{"x", "a", "b-c-storage"},
		{"y", "a", "c"},
		{"x", "a-b-c", "references"},
		{"proxyauthk8s", "a", ""},
		{"proxyauthk8s", "a-b", ""},
		{"x", "a", ""},
	} {
		id := fmt.Sprintf("%+v", r)
		values := map[string]any{
			"fullnameOverride": r.fullname,
			"rbac":             map[string]any{"aggregateToView": true, "aggregateToEdit": true},
			"tls":              map[string]any{"mode": "acme", "acme": map[string]any{"hosts": []string{"k8s.example.com"}}},
		}
		chosen := maps.Clone(values)
		chosen["watchNamespaces"] = []string{"shared"}
		chosen["rbac"] = map[string]any{"secretNamespaces": []string{"shared"}}
		for _, values := range []map[string]any{values, chosen} {
			text := mustTemplate(t, r.release, r.namespace, chart(t), "--values", valuesFile(t, values))
			for _, o := range documents(t, text) {
				if o.GetNamespace() == r.namespace {
					continue
				}
				key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
				if other := owner[key]; other != "" && other != id {
					t.Errorf("%s belongs to %s and to %s", key, other, id)
				}
				owner[key] = id
			}
		}
	}
}
