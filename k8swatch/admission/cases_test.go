package admission

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// verdictCase is an entry of testdata/cases.yaml.
type verdictCase struct {
	Name     string         `json:"name"`
	Accepted bool           `json:"accepted"`
	Object   map[string]any `json:"object"`
}

// ruleCase is an entry of testdata/rules.yaml.
type ruleCase struct {
	Name    string `json:"name"`
	Spec    any    `json:"spec"`
	Refused string `json:"refused"`
}

func (c ruleCase) object() map[string]any {
	return map[string]any{
		"apiVersion": "weebo.si.rs/v1",
		"kind":       "ProxyKubeApi",
		"metadata":   map[string]any{"name": "prod", "namespace": "default"},
		"spec":       c.Spec,
	}
}

func readCases[T any](t testing.TB, file string) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	// Through the decoder of the apimachinery, which keeps whole numbers whole.
	json, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := utiljson.Unmarshal(json, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func newValidator(t testing.TB) *Validator {
	t.Helper()
	v, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// refusal returns the refusal of an object, nil when it is accepted.
func refusal(t testing.TB, v *Validator, object map[string]any) (*v1.ProxyKubeApi, *Refusal) {
	t.Helper()
	typed, err := v.Admit(object)
	if err == nil {
		return typed, nil
	}
	var refused *Refusal
	if !errors.As(err, &refused) || typed != nil {
		t.Fatalf("Admit = %v, %v; want a *Refusal alone", typed, err)
	}
	return nil, refused
}

// API-1: the verdicts of the apiserver.
func TestVerdicts(t *testing.T) {
	v := newValidator(t)
	cases := readCases[verdictCase](t, "cases.yaml")
	if len(cases) != 67 {
		t.Fatalf("%d cases, want 67", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			typed, refused := refusal(t, v, c.Object)
			if accepted := refused == nil; accepted != c.Accepted {
				t.Fatalf("accepted = %v (%v), want %v", accepted, refused, c.Accepted)
			}
			if refused == nil {
				stands(t, v, typed)
			}
		})
	}
}

// API-1: each rule, with the message an author sees.
func TestRules(t *testing.T) {
	v := newValidator(t)
	for _, c := range readCases[ruleCase](t, "rules.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			got := ""
			typed, refused := refusal(t, v, c.object())
			if refused != nil {
				got = refused.Text()
			}
			if diff := cmp.Diff(c.Refused, got); diff != "" {
				t.Fatalf("refused (-want +got):\n%s", diff)
			}
			if refused == nil {
				stands(t, v, typed)
			}
		})
	}
}

// stands checks that an admitted object passes the re-check too (API-3).
func stands(t *testing.T, v *Validator, typed *v1.ProxyKubeApi) {
	t.Helper()
	before := typed.DeepCopy()
	if errs := v.Revalidate(typed); len(errs) > 0 {
		t.Errorf("Revalidate refuses what Admit accepted: %v", errs)
	}
	if diff := cmp.Diff(before, typed); diff != "" {
		t.Errorf("Revalidate changed the object:\n%s", diff)
	}
}
