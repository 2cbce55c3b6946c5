package directory

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
)

// What a document means must be what it means to kubectl, which reads YAML with
// sigs.k8s.io/yaml: numbers, the booleans of YAML 1.1, merges, keys.
func TestDirectoryReadsYAMLAsKubectlDoes(t *testing.T) {
	texts := map[string]string{
		"scalars":    "{a: 1, b: 1.5, c: 443.0, d: 1e3, e: yes, f: off, g: y, h: 'yes', i: null, j: ~, k: 0x10, l: 010, m: 0o10, n: 1_000, o: 18446744073709551615, p: -0.0, q: 1e30, r: 2020-01-01, s: 12:30:45, t: .5, u: +1}",
		"keys":       "{1: a, true: b, 'x': c, no: d}",
		"merge":      "base: &b {a: 1, b: 2}\nuse: {<<: *b, c: 3}\n",
		"block text": "a: |\n  ---\n  x\nb: >-\n  folded\n  text\nc: \"esc\\u00e9\\x41\\ttab\"\n",
		"PEM":        "a: |\n  -----BEGIN CERTIFICATE-----\n  MII=\n  -----END CERTIFICATE-----\n",
		"comment":    "# c\n--- # d\na: 1 # e\n",
		"tags":       "{a: !!str 1, b: !!int '1', c: !!float 1, d: !!bool yes, e: !!binary aGk=}",
		"big":        "{a: 9223372036854775807, b: -9223372036854775808, c: 9223372036854775808}",
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			got, err := parseYAML([]byte(text))
			if err != nil || len(got) != 1 {
				t.Fatalf("%d documents, %v", len(got), err)
			}
			if diff := cmp.Diff(asKubectl(t, text), got[0]); diff != "" {
				t.Errorf("(-kubectl +directory):\n%s", diff)
			}
		})
	}
}

func asKubectl(t *testing.T, text string) any {
	t.Helper()
	json, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := utiljson.Unmarshal(json, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// Whatever bytes a file holds: no panic, no value in a message, and one
// document means what it means to kubectl.
func FuzzDirectoryFile(f *testing.F) {
	f.Add("a.yaml", []byte(dirCluster("a", "https://a")+dirSecret("s", "v")+dirConfigMap("c", "v")))
	f.Add("a.json", []byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"b"},"data":{"a":"YQ=="}}]}`))
	f.Add("a.yaml", []byte("a: &a [b, *a]\n<<: {c: d}\n? {e: f}\n: g\n"))
	f.Add("a.yaml", []byte("%YAML 1.1\n---\na: !!binary aGk=\n...\n---\n- .nan\n"))
	f.Add("a.yml", []byte("{\"a\": \"\\ud83d\\ude00\"}"))
	f.Add("a.yaml", []byte("\xef\xbb\xbfa: \t\r\n"))
	validator, err := admission.Default()
	if err != nil {
		f.Fatal(err)
	}
	const canary = "CANARYCANARY"
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		documents, err := parseDocuments(name, text)
		if err == nil && len(documents) == 1 && !strings.HasSuffix(name, ".json") {
			sameAsKubectl(t, text, documents[0])
		}
		// Every text value becomes the canary; none may come back.
		for _, quote := range []string{"'", `"`, "`"} {
			marked := bytes.ReplaceAll(text, []byte(": "+quote), []byte(": "+quote+canary))
			noCanary(t, name, marked, canary, validator)
		}
		noCanary(t, name, bytes.ReplaceAll(text, []byte(": "), []byte(": "+canary)), canary, validator)
		noCanary(t, name, bytes.ReplaceAll(text, []byte(": "), []byte(": *"+canary)), canary, validator)
	})
}

// sameAsKubectl compares a document, where kubectl too reads it as YAML.
func sameAsKubectl(t *testing.T, text []byte, got any) {
	json, err := yaml.YAMLToJSONStrict(bytes.TrimPrefix(text, []byte("\uFEFF")))
	if err != nil {
		return // JSON with escapes that YAML does not have
	}
	var want any
	if utiljson.Unmarshal(json, &want) != nil {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-kubectl +directory):\n%s", text, diff)
	}
}

func noCanary(t *testing.T, name string, text []byte, canary string, validator *admission.Validator) {
	content, err := parseFile(name, text, validator)
	if err != nil {
		// The name of a duplicate key is shown; a key is no value.
		if strings.Contains(err.Error(), canary) && !strings.Contains(err.Error(), "twice") {
			t.Errorf("%q: the error holds a value: %v", text, err)
		}
		return
	}
	for _, m := range content.manifests {
		if (m.value == nil) == (m.refused == "") {
			t.Errorf("%q: %s is neither accepted nor refused", text, m.id)
		}
		if strings.Contains(m.refused, canary) && !strings.Contains(m.refused, "unknown field") && !strings.Contains(m.refused, "key") {
			t.Errorf("%q: the reason holds a value: %s", text, m.refused)
		}
	}
}
