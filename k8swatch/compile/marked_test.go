package compile

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-4, API-8: `kubectl explain` says of each field that this version refuses or
// ignores that it does, and of no other. What the code refuses is read from the code,
// so that a field that is built, or a new one that is not, changes its description.
func TestFieldsThatAreNotBuiltAreMarked(t *testing.T) {
	var crd map[string]any
	if err := yaml.Unmarshal([]byte(v1.CRD), &crd); err != nil {
		t.Fatal(err)
	}
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	spec := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["spec"].(map[string]any)
	refused, idle := map[string]bool{}, map[string]bool{}
	marked(spec, "spec", refused, idle)

	code := ""
	for _, file := range []string{"unsupported.go", "target.go", "auth.go", "exchange.go", "oidc.go", "frontproxy.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code += string(text)
	}
	_, ignoring, _ := strings.Cut(code, ") withoutEffect(")
	ignoring, _, _ = strings.Cut(ignoring, "\n}\n")
	wantRefused := paths(code, `\bunsupported\("(spec[^"]*)"`)
	// An unknown value of validate_against is refused, not the field.
	delete(wantRefused, "spec.auth_config.validate_against")
	wantIdle := paths(ignoring, `"(spec\.[^"]*)"`)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(wantRefused)), slices.Sorted(maps.Keys(refused))); diff != "" || len(refused) == 0 {
		t.Errorf("refused (-code +description):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(wantIdle)), slices.Sorted(maps.Keys(idle))); diff != "" || len(idle) == 0 {
		t.Errorf("without effect (-code +description):\n%s", diff)
	}
}

// paths are the fields that a pattern finds in code, without indices.
func paths(code, pattern string) map[string]bool {
	found := map[string]bool{}
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(code, -1) {
		found[strings.ReplaceAll(match[1], "[%d]", "")] = true
	}
	return found
}

// marked collects the fields whose descriptions have a mark.
func marked(schema map[string]any, path string, refused, idle map[string]bool) {
	description, _ := schema["description"].(string)
	description = strings.Join(strings.Fields(description), " ")
	if strings.Contains(description, "Refused by this version: ") {
		refused[path] = true
	}
	if strings.Contains(description, "Without effect in this version") {
		idle[path] = true
	}
	if items, ok := schema["items"].(map[string]any); ok {
		marked(items, path, refused, idle)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		marked(property.(map[string]any), path+"."+name, refused, idle)
	}
}
