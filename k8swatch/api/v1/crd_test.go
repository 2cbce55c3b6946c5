package v1

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata/schema-golden.yaml")

// The shape of the CRD is an interface: fields, bounds, defaults, rules,
// messages and columns change only on purpose. Descriptions are left out.
func TestCRDShape(t *testing.T) {
	got := shape(t, CRD)
	golden := filepath.Join("testdata", "schema-golden.yaml")
	if *update {
		text, err := yaml.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shape(t, string(text)), got); diff != "" {
		t.Errorf("the CRD changed (-golden +generated); if that is meant, run this test with -update:\n%s", diff)
	}
}

func shape(t *testing.T, text string) map[string]any {
	t.Helper()
	var crd map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &crd); err != nil {
		t.Fatal(err)
	}
	// The version of the generator.
	delete(crd["metadata"].(map[string]any), "annotations")
	return withoutDescriptions(crd, false).(map[string]any)
}

// withoutDescriptions drops the key description except where it is the name of
// a field.
func withoutDescriptions(value any, names bool) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, element := range value {
			if key != "description" || names {
				kept[key] = withoutDescriptions(element, key == "properties" && !names)
			}
		}
		return kept
	case []any:
		for i := range value {
			value[i] = withoutDescriptions(value[i], false)
		}
	}
	return value
}

// kubectl explain shows the descriptions: every field of the spec and of the
// status has one, which names the field as an author writes it.
func TestEveryFieldIsDescribed(t *testing.T) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(CRD), &crd); err != nil {
		t.Fatal(err)
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema["properties"].(map[string]any)
	described := 0
	var walk func(path string, props map[string]any)
	walk = func(path string, props map[string]any) {
		for name, schema := range props {
			schema := schema.(map[string]any)
			description, _ := schema["description"].(string)
			if !strings.HasPrefix(description, name) && !strings.Contains(path, "conditions") {
				t.Errorf("%s.%s: description %q does not begin with the name of the field", path, name, description)
			}
			if _, ok := schema["default"]; ok && !strings.Contains(description, "Default:") && !strings.Contains(description, "Required") {
				if name != "audiences" {
					t.Errorf("%s.%s: description %q does not say the default", path, name, description)
				}
			}
			described++
			if items, ok := schema["items"].(map[string]any); ok {
				schema = items
			}
			if props, ok := schema["properties"].(map[string]any); ok {
				walk(path+"."+name, props)
			}
		}
	}
	walk("", map[string]any{"spec": root["spec"], "status": root["status"]})
	if described < 200 {
		t.Errorf("only %d fields were looked at", described)
	}
}
