package admission

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An object can be wrong in tens of thousands of places within every bound. It
// is refused in no time all the same, each time with the same words.
func TestObjectWrongInEveryPlace(t *testing.T) {
	v := newValidator(t)
	ports := slices.Repeat([]any{"x"}, 64)
	rules := make([]any, 128)
	for i := range rules {
		rules[i] = map[string]any{"Path": map[string]any{"path": "a", "allowed_ports": ports}}
	}
	tests := map[string]any{
		"ports":       map[string]any{"service": map[string]any{"Agent": map[string]any{}}, "security_config": map[string]any{"allowed_resources": rules, "allowed_ressources": rules}},
		"a long list": map[string]any{"service": map[string]any{"Agent": map[string]any{}}, "virtual_apis": slices.Repeat([]any{map[string]any{}}, 200_000)},
	}
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			text := ""
			for range 3 {
				_, refused := refusal(t, v, object(set("spec", spec)))
				if refused == nil {
					t.Fatal("it is accepted")
				}
				if text != "" && text != refused.Text() {
					t.Errorf("the text changes: %s\n%s", text, refused.Text())
				}
				text = refused.Text()
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("three times took %v", took)
			}
		})
	}
}

// What is told of a list that was cut is told of the whole.
func TestCutListsAreCounted(t *testing.T) {
	spec := map[string]any{"service": map[string]any{"Agent": map[string]any{}}, "virtual_apis": slices.Repeat([]any{map[string]any{"kind": "OpenShiftProject"}}, 1000)}
	_, refused := refusal(t, newValidator(t), object(set("spec", spec)))
	want := field.TooMany(field.NewPath("spec", "virtual_apis"), 1000, 8).Error()
	if refused == nil || !strings.Contains(refused.Error(), want) {
		t.Errorf("refused = %v, want %s", refused, want)
	}
}

// An object that fills every list is left as it is.
func TestFullListsAreKept(t *testing.T) {
	ports := slices.Repeat([]any{"80"}, 64)
	rules := slices.Repeat([]any{map[string]any{"Path": map[string]any{"path": "/a", "allowed_ports": ports}}}, 128)
	spec := map[string]any{"service": map[string]any{"Agent": map[string]any{}}, "security_config": map[string]any{"allowed_resources": rules, "allowed_ressources": rules}}
	typed, refused := refusal(t, newValidator(t), object(set("spec", spec)))
	if refused != nil {
		t.Fatal(refused)
	}
	security := typed.Spec.SecurityConfig
	if n := len(security.AllowedRessources); n != 128 || len(security.AllowedResources) != 128 || len(security.AllowedResources[127].Path.AllowedPorts) != 64 {
		t.Errorf("lists were cut: %d rules", n)
	}
}
