package charts

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// chartValue is one value of the chart: every key of values.yaml, and of the
// objects in it that the schema describes.
type chartValue struct {
	path []string
	// required says that the schema refuses its absence.
	required bool
	// holder says that the schema describes what is in it.
	holder bool
}

func (v chartValue) name() string { return strings.Join(v.path, ".") }

// chartValues walks values.yaml and its schema.
func chartValues(t *testing.T) []chartValue {
	t.Helper()
	defaults, root := readValues(t)
	var values []chartValue
	var walk func(path []string, s *schema, defaults map[string]any)
	walk = func(path []string, s *schema, defaults map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(defaults)) {
			inside := s.Properties[name]
			if inside == nil {
				t.Fatalf("the schema has no %s", strings.Join(append(path, name), "."))
			}
			v := chartValue{append(slices.Clone(path), name), slices.Contains(s.Required, name), inside.Properties != nil}
			values = append(values, v)
			if v.holder {
				below, _ := defaults[name].(map[string]any)
				walk(v.path, inside, below)
			}
		}
	}
	walk(nil, root, defaults)
	return values
}

// readValues reads values.yaml and its schema.
func readValues(t *testing.T) (map[string]any, *schema) {
	t.Helper()
	text, err := os.ReadFile(repositoryPath(t, "charts", "proxyauthk8s", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(repositoryPath(t, "charts", "proxyauthk8s", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	root := new(schema)
	if err := json.Unmarshal(text, root); err != nil {
		t.Fatal(err)
	}
	return values, root
}

// put sets a value below others, which are made when they are missing.
func put(values map[string]any, path []string, value any) {
	for _, step := range path[:len(path)-1] {
		below, ok := values[step].(map[string]any)
		if !ok {
			below = map[string]any{}
			values[step] = below
		}
		values = below
	}
	values[path[len(path)-1]] = value
}

// has says whether values give one.
func has(values map[string]any, path []string) bool {
	for _, step := range path[:len(path)-1] {
		values, _ = values[step].(map[string]any)
	}
	_, ok := values[path[len(path)-1]]
	return ok
}

// Helm takes null for the wish to have no default. The schema refuses it for
// every value that the templates cannot do without, by the value's name: UID 0,
// plain http and options without a value are never meant (CHART-3).
func TestNullIsRefused(t *testing.T) {
	t.Parallel()
	values := chartValues(t)
	refused := 0
	// What is in an object that is null itself is not looked at: one run for the
	// values in objects, and one for the objects of each depth.
	for what, chosen := range map[string]func(chartValue) bool{
		"values":               func(v chartValue) bool { return !v.holder },
		"objects":              func(v chartValue) bool { return v.holder && len(v.path) == 1 },
		"objects in objects":   func(v chartValue) bool { return v.holder && len(v.path) == 2 },
		"objects deeper still": func(v chartValue) bool { return v.holder && len(v.path) == 3 },
	} {
		given := map[string]any{}
		var names []chartValue
		for _, v := range values {
			if v.required && chosen(v) {
				put(given, v.path, nil)
				names = append(names, v)
			}
		}
		stdout, stderr, code := template(t, release, namespace, chart(t), "--values", valuesFile(t, given))
		if code == 0 {
			t.Fatalf("%s: rendered\n%s", what, stdout)
		}
		for _, v := range names {
			refused++
			holder := "/" + strings.Join(v.path[:len(v.path)-1], "/")
			if holder == "/" {
				holder = ""
			}
			if !missing(stderr, holder, v.path[len(v.path)-1]) {
				t.Errorf("%s: null is not refused\n%s", v.name(), stderr)
			}
		}
	}
	if refused < 60 {
		t.Errorf("%d values are refused", refused)
	}
}

// missing says whether helm names a property that an object lacks.
func missing(messages, holder, property string) bool {
	for line := range strings.Lines(messages) {
		if strings.Contains(line, "at '"+holder+"': missing propert") && strings.Contains(line, "'"+property+"'") {
			return true
		}
	}
	return false
}

// For every other value null is the same as leaving it out, whatever else is
// set. Helm makes the notes, too, without printing them (CHART-3).
func TestNullIsTheDefault(t *testing.T) {
	t.Parallel()
	bases := map[string]string{
		"nothing": `{}`,
		"secret": `{
  publicUrl: "https://k8s.example.com",
  tls: {certManager: {enabled: true, issuerRef: {name: internal}}},
  rbac: {aggregateToView: true, aggregateToEdit: true}, autoscaling: {enabled: true}, ingress: {enabled: true},
  gateway: {enabled: true, parentRefs: [{name: edge}]}, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true},
  grafanaDashboard: {enabled: true}, service: {type: LoadBalancer}}`,
		"acme": `{
  publicUrl: "https://k8s.example.com", tls: {mode: acme}, podMonitor: {enabled: true}, service: {type: NodePort},
  networkPolicy: {from: [{podSelector: {}}]}}`,
		"off": `{tls: {mode: "off"}, ingress: {enabled: true, hosts: [k8s.example.com]}, watchNamespaces: [team-a]}`,
	}
	for name, text := range bases {
		var base, given map[string]any
		for _, into := range []*map[string]any{&base, &given} {
			if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		nulls := 0
		for _, v := range chartValues(t) {
			if !v.required && !has(base, v.path) {
				put(given, v.path, nil)
				nulls++
			}
		}
		if nulls < 60 {
			t.Errorf("%d values may be null", nulls)
		}
		want := mustTemplate(t, release, namespace, chart(t), "--values", valuesFile(t, base))
		got := mustTemplate(t, release, namespace, chart(t), "--values", valuesFile(t, given))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// In objects that take any keys, null removes what is there by default.
func TestNullInFreeObjects(t *testing.T) {
	t.Parallel()
	text := mustTemplate(t, release, namespace, chart(t), "--values", valuesFile(t, map[string]any{
		"resources":        map[string]any{"limits": nil, "requests": map[string]any{"cpu": nil}},
		"grafanaDashboard": map[string]any{"enabled": true, "labels": map[string]any{"grafana_dashboard": nil, "mine": "1"}},
	}))
	objects := documents(t, text)
	for at, want := range map[string]any{
		"Deployment /spec/template/spec/containers/0/resources":                     map[string]any{"requests": map[string]any{"memory": "128Mi"}},
		"ConfigMap/proxy-proxyauthk8s-dashboard /metadata/labels/mine":              "1",
		"ConfigMap/proxy-proxyauthk8s-dashboard /metadata/labels/grafana_dashboard": nil,
	} {
		if diff := cmp.Diff(want, found(objects, at)); diff != "" {
			t.Errorf("%s: %s", at, diff)
		}
	}
}
