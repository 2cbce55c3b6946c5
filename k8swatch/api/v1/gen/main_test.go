package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const crd = `
spec:
  versions:
  - schema: {openAPIV3Schema: {properties: {status: {properties: {conditions: {maxItems: 32, items: {properties: {
      reason: {type: string, minLength: 1, maxLength: 1024, pattern: '^x$'},
      status: {type: string, enum: ['True']},
      observedGeneration: {type: integer, format: int64, minimum: 0}}}}}}}}}
`

func TestFinish(t *testing.T) {
	made, err := finish([]byte(crd))
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range []string{"minLength", "maxLength", "pattern", "enum", "minimum"} {
		if strings.Contains(string(made), bound) {
			t.Errorf("%s is still there:\n%s", bound, made)
		}
	}
	for _, kept := range []string{"maxItems: 32", "format: int64", "type: string", "DO NOT EDIT"} {
		if !strings.Contains(string(made), kept) {
			t.Errorf("%s is gone:\n%s", kept, made)
		}
	}
}

func TestFinishRefusesAnotherShape(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":          "[",
		"no version":       "spec: {}",
		"two versions":     "spec: {versions: [{}, {}]}",
		"no status":        "spec: {versions: [{schema: {openAPIV3Schema: {properties: {}}}}]}",
		"a text as schema": strings.Replace(crd, "{type: string, enum: ['True']}", "text", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if made, err := finish([]byte(text)); err == nil {
				t.Errorf("finish = %s", made)
			}
		})
	}
}

// What is in the chart must come out of Helm as the CRD and one annotation.
func TestChartTemplate(t *testing.T) {
	const given = `
metadata:
  annotations: {made: by-a-generator}
  name: things
spec:
  description: '{{username}} stands for the name, "}}" and {{ for nothing'
`
	made, err := chartTemplate([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := template.New("").Parse(string(made))
	if err != nil {
		t.Fatal(err)
	}
	var rendered bytes.Buffer
	if err := parsed.Execute(&rendered, nil); err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := errors.Join(yaml.Unmarshal(rendered.Bytes(), &got), yaml.Unmarshal([]byte(given), &want)); err != nil {
		t.Fatal(err)
	}
	want["metadata"].(map[string]any)["annotations"].(map[string]any)["helm.sh/resource-policy"] = "keep"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestChartTemplateRefusesAnotherShape(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":        "[",
		"no metadata":    "spec: {}",
		"no annotations": "metadata: {name: things}",
	} {
		t.Run(name, func(t *testing.T) {
			if made, err := chartTemplate([]byte(text)); err == nil {
				t.Errorf("chartTemplate = %s", made)
			}
		})
	}
}
