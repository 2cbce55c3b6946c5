package admission

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// node is a field of a full object together with its schema.
type node struct {
	path  []any // field names and indexes
	value any
	props apiextensions.JSONSchemaProps
}

// generic is the path with [] for each index, as the schema knows it.
func (n node) generic() string { return generic(n.text()) }

func (n node) text() string {
	var b strings.Builder
	for _, step := range n.path {
		switch step := step.(type) {
		case string:
			b.WriteString("." + step)
		case int:
			b.WriteString("[" + strconv.Itoa(step) + "]")
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

var index = regexp.MustCompile(`\[[0-9]+\]`)

func generic(path string) string { return index.ReplaceAllString(path, "[]") }

// walk visits the fields that value holds, parents first.
func walk(path []any, value any, props apiextensions.JSONSchemaProps, visit func(node)) {
	visit(node{slices.Clone(path), value, props})
	switch value := value.(type) {
	case map[string]any:
		for name, element := range value {
			if child, found := props.Properties[name]; found {
				walk(append(path, name), element, child, visit)
			}
		}
	case []any:
		for i, element := range value {
			walk(append(path, i), element, *props.Items.Schema, visit)
		}
	}
}

// walkSchema visits every schema below props.
func walkSchema(path string, props apiextensions.JSONSchemaProps, visit func(string, apiextensions.JSONSchemaProps)) {
	visit(path, props)
	for name, child := range props.Properties {
		walkSchema(strings.TrimPrefix(path+"."+name, "."), child, visit)
	}
	if props.Items != nil {
		walkSchema(path+"[]", *props.Items.Schema, visit)
	}
}

func specProps(t testing.TB) apiextensions.JSONSchemaProps {
	t.Helper()
	props, err := schemaProps(v1.CRD)
	if err != nil {
		t.Fatal(err)
	}
	return props.Properties["spec"]
}

// with returns the object of a full spec with another value at a path.
func with(t testing.TB, spec any, path []any, value any) map[string]any {
	t.Helper()
	object := map[string]any{
		"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi",
		"metadata": map[string]any{"name": "prod", "namespace": "default"},
		"spec":     spec,
	}
	object = runtime.DeepCopyJSON(object)
	var at any = object
	for i, step := range path {
		final := i == len(path)-1
		switch step := step.(type) {
		case string:
			if final {
				at.(map[string]any)[step] = value
			} else {
				at = at.(map[string]any)[step]
			}
		case int:
			if final {
				at.([]any)[step] = value
			} else {
				at = at.([]any)[step]
			}
		}
	}
	return object
}

// broken lists the types of the errors at exactly one path.
func broken(refused *Refusal, path string) []field.ErrorType {
	if refused == nil {
		return nil
	}
	var types []field.ErrorType
	for _, err := range refused.Invalid {
		if err.Field == path {
			types = append(types, err.Type)
		}
	}
	return types
}

// eachNode visits each field of the full objects once per place in the schema.
func eachNode(t *testing.T, visit func(t *testing.T, spec any, n node)) {
	t.Helper()
	props := specProps(t)
	seen := map[string]bool{}
	for _, full := range readCases[ruleCase](t, "full.yaml") {
		walk([]any{"spec"}, full.Spec, props, func(n node) {
			if seen[n.generic()] {
				return
			}
			seen[n.generic()] = true
			t.Run(n.generic(), func(t *testing.T) { visit(t, full.Spec, n) })
		})
	}
	walkSchema("spec", props, func(path string, _ apiextensions.JSONSchemaProps) {
		if !seen[path] {
			t.Errorf("%s is in no object of full.yaml", path)
		}
	})
}

func TestFullObjectsAreAccepted(t *testing.T) {
	v := newValidator(t)
	for _, full := range readCases[ruleCase](t, "full.yaml") {
		if _, refused := refusal(t, v, full.object()); refused != nil {
			t.Errorf("%s: %v", full.Name, refused)
		}
	}
}

// Every bound of the schema: at the bound nothing is said of the field for
// that reason, one past it the object is refused there.
func TestEveryBound(t *testing.T) {
	v := newValidator(t)
	tested := 0
	eachNode(t, func(t *testing.T, spec any, n node) {
		check := func(name string, at, past any, reason field.ErrorType) {
			t.Helper()
			tested++
			_, refused := refusal(t, v, with(t, spec, n.path, at))
			if slices.Contains(broken(refused, n.text()), reason) {
				t.Errorf("%s: refused at the bound: %v", name, refused.Text())
			}
			_, refused = refusal(t, v, with(t, spec, n.path, past))
			if !slices.Contains(broken(refused, n.text()), reason) {
				t.Errorf("%s: not refused past the bound: %v", name, refused)
			}
		}
		if n.props.MaxLength != nil {
			length := int(*n.props.MaxLength)
			// Characters, not bytes.
			check("maxLength", strings.Repeat("é", length), strings.Repeat("a", length+1), field.ErrorTypeTooLong)
		}
		if n.props.MaxItems != nil {
			items := int(*n.props.MaxItems)
			element := n.value.([]any)[0]
			check("maxItems", slices.Repeat([]any{element}, items), slices.Repeat([]any{element}, items+1), field.ErrorTypeTooMany)
		}
		if n.props.Minimum != nil {
			check("minimum", int64(*n.props.Minimum), int64(*n.props.Minimum)-1, field.ErrorTypeInvalid)
		}
		if n.props.Maximum != nil {
			check("maximum", int64(*n.props.Maximum), int64(*n.props.Maximum)+1, field.ErrorTypeInvalid)
		}
		for _, allowed := range n.props.Enum {
			check(fmt.Sprintf("enum %v", allowed), allowed, fmt.Sprint(allowed)+"x", field.ErrorTypeNotSupported)
		}
		if n.props.Pattern != "" {
			check("pattern", n.value, "x", field.ErrorTypeInvalid)
		}
	})
	want := 0
	walkSchema("spec", specProps(t), func(_ string, props apiextensions.JSONSchemaProps) { want += bounds(props) })
	if tested != want {
		t.Errorf("%d bounds were tested, the schema has %d", tested, want)
	}
}

func bounds(props apiextensions.JSONSchemaProps) int {
	count := len(props.Enum)
	for _, set := range []bool{props.MaxLength != nil, props.MaxItems != nil, props.Minimum != nil, props.Maximum != nil, props.Pattern != ""} {
		if set {
			count++
		}
	}
	return count
}

// Every field refuses another type, an unknown neighbour and, where it is
// required, its absence; null is refused or dropped as the schema says.
func TestEveryShape(t *testing.T) {
	v := newValidator(t)
	eachNode(t, func(t *testing.T, spec any, n node) {
		_, refused := refusal(t, v, with(t, spec, n.path, otherType(n.value)))
		if !slices.Contains(broken(refused, n.text()), field.ErrorTypeTypeInvalid) && !slices.Contains(broken(refused, n.text()), field.ErrorTypeInvalid) {
			t.Errorf("another type is not refused: %v", refused)
		}
		if fields, ok := n.value.(map[string]any); ok {
			_, refused := refusal(t, v, with(t, spec, append(n.path, "unheard"), "of"))
			want := fmt.Sprintf("unknown field %q", n.text()+".unheard")
			if refused == nil || refused.Text() != want {
				t.Errorf("an unknown field: refused = %v, want %s", refused, want)
			}
			for _, name := range n.props.Required {
				without := map[string]any{}
				for key, value := range fields {
					if key != name {
						without[key] = value
					}
				}
				_, refused := refusal(t, v, with(t, spec, n.path, without))
				if !slices.Contains(broken(refused, n.text()+"."+name), field.ErrorTypeRequired) {
					t.Errorf("%s is not required: %v", name, refused)
				}
			}
		}
		if n.props.Nullable {
			_, refused := refusal(t, v, with(t, spec, n.path, nil))
			if slices.Contains(broken(refused, n.text()), field.ErrorTypeTypeInvalid) {
				t.Errorf("null is refused: %v", refused.Text())
			}
		}
	})
}

func otherType(value any) any {
	if _, ok := value.(string); ok {
		return int64(7)
	}
	return "text"
}

// Each CEL rule of the schema refuses at least one object of the tables and
// lets at least one through.
func TestEveryRuleIsReached(t *testing.T) {
	v := newValidator(t)
	type rule struct{ path, message string }
	refusedBy, passed := map[rule]bool{}, map[string]bool{}
	props := specProps(t)

	objects := []map[string]any{}
	for _, file := range []string{"rules.yaml", "full.yaml"} {
		for _, c := range readCases[ruleCase](t, file) {
			objects = append(objects, c.object())
		}
	}
	for _, c := range readCases[verdictCase](t, "cases.yaml") {
		objects = append(objects, c.Object)
	}
	for _, object := range objects {
		_, refused := refusal(t, v, object)
		if refused == nil {
			walk([]any{"spec"}, object["spec"], props, func(n node) { passed[n.generic()] = true })
			continue
		}
		for _, err := range refused.Invalid {
			refusedBy[rule{generic(err.Field), err.Detail}] = true
		}
	}
	walkSchema("spec", props, func(path string, props apiextensions.JSONSchemaProps) {
		for _, r := range props.XValidations {
			if !refusedBy[rule{path + r.FieldPath, r.Message}] {
				t.Errorf("no object is refused at %s%s with %q", path, r.FieldPath, r.Message)
			}
			if !passed[path] {
				t.Errorf("no accepted object holds %s", path)
			}
		}
	})
}
