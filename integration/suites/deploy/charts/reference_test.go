package charts

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Section 16: the values that the reference names are there, with the defaults
// that it tells.
func TestReferenceValues(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(repositoryPath(t, "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(repositoryPath(t, "charts", "proxyauthk8s", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| value | what it is | default |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		path, told := strings.Trim(cells[0], "` "), strings.Trim(cells[len(cells)-1], "` ")
		rows++
		value := values
		for _, name := range strings.Split(path, ".") {
			inside, _ := value.(map[string]any)
			found, ok := inside[name]
			if !ok {
				t.Errorf("there is no value %s", path)
			}
			value = found
		}
		var want any
		if err := yaml.Unmarshal([]byte(told), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, value); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	if rows < 11 {
		t.Errorf("%d values", rows)
	}
}
