package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func specSchema(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(v1.CRD), &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

// mutation is a spec that was changed in one place.
type mutation struct {
	name string
	spec any
}

// mutator makes mutations; thorough ones are three times as many.
type mutator struct{ thorough bool }

// mutations are changes of each place of a spec.
func (m mutator) mutations(schema apiextensionsv1.JSONSchemaProps, spec any) []mutation {
	var all []mutation
	m.visit("spec", schema, spec, func(name string, value any) {
		all = append(all, mutation{name, clone(value)})
	}, func(value any) any { return value })
	return all
}

// visit changes one value, and each one below it, and gives the whole object
// with the change: whole puts a value in its place.
func (m mutator) visit(path string, schema apiextensionsv1.JSONSchemaProps, value any, emit func(string, any), whole func(any) any) {
	change := func(what string, changed any) { emit(path+": "+what, whole(changed)) }
	others := []any{nil, int64(7)}
	switch value.(type) {
	case map[string]any, []any:
		others = append(others, "text", []any{}, map[string]any{})
	}
	if m.thorough {
		others = []any{nil, "text", int64(7), 7.5, true, []any{}, []any{"a"}, map[string]any{}, map[string]any{"a": "b"}}
	}
	for _, other := range others {
		change(fmt.Sprintf("%T %v", other, other), other)
	}
	m.bounds(schema, value, change)
	switch value := value.(type) {
	case map[string]any:
		m.visitObject(path, schema, value, emit, whole)
	case []any:
		for i, element := range value {
			m.visit(fmt.Sprintf("%s[%d]", path, i), *schema.Items.Schema, element, emit, func(changed any) any {
				list := slices.Clone(value)
				list[i] = changed
				return whole(list)
			})
		}
	}
}

func (m mutator) visitObject(path string, schema apiextensionsv1.JSONSchemaProps, value map[string]any, emit func(string, any), whole func(any) any) {
	with := func(name string, changed any) any {
		object := maps.Clone(value)
		object[name] = changed
		return whole(object)
	}
	emit(path+": an unknown field", with("unheard", "of"))
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if _, set := value[name]; !set {
			// A union of two members, or a field beside those it excludes.
			emit(path+": also "+name, with(name, map[string]any{}))
			continue
		}
		without := maps.Clone(value)
		delete(without, name)
		emit(path+": without "+name, whole(without))
		m.visit(path+"."+name, schema.Properties[name], value[name], emit, func(changed any) any { return with(name, changed) })
	}
}

// bounds are values at and past the bounds of a schema.
func (m mutator) bounds(schema apiextensionsv1.JSONSchemaProps, value any, change func(string, any)) {
	if max := schema.MaxLength; max != nil {
		for _, n := range []int64{*max, *max + 1} {
			change(fmt.Sprintf("%d characters", n), strings.Repeat("é", int(n)))
		}
	}
	if list, ok := value.([]any); ok && schema.MaxItems != nil && len(list) > 0 {
		for _, n := range []int64{*schema.MaxItems, *schema.MaxItems + 1} {
			change(fmt.Sprintf("%d items", n), slices.Repeat(list[:1], int(n)))
		}
	}
	if min := schema.Minimum; min != nil {
		change("minimum", int64(*min))
		change("below the minimum", int64(*min)-1)
	}
	if max := schema.Maximum; max != nil {
		change("maximum", int64(*max))
		change("above the maximum", int64(*max)+1)
	}
	for _, allowed := range schema.Enum {
		var v any
		if json.Unmarshal(allowed.Raw, &v) == nil {
			change(fmt.Sprintf("enum %v", v), v)
		}
	}
	if s, ok := value.(string); ok {
		odds := []string{"", s + "\n", "system:" + s}
		if m.thorough {
			odds = append(odds, " ", s+" ", " "+s, strings.ToUpper(s), s+"\u00a0", "http://h", "https://h?q", "https://u:p@h")
		}
		for _, odd := range odds {
			change(fmt.Sprintf("%q", odd), odd)
		}
	}
}

// clone is the value after a trip over the wire.
func clone(value any) any {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var copied any
	if err := utiljson.Unmarshal(b, &copied); err != nil {
		panic(err)
	}
	return copied
}
