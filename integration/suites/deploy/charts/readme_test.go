package charts

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the table of values into the README of the chart")

// The table in the README of the chart is made of values.yaml and its schema:
// go test ./... -run TestReadme -update writes it.
func TestReadme(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- values: made by TestReadme -->\n", "<!-- end -->\n"
	file := repositoryPath(t, "charts", "proxyauthk8s", "README.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	table, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("no marks in %s", file)
	}
	want := valuesTable(t)
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("%s is not current (-update): %s", file, diff)
	}
}

// valuesTable is a table of every value with its default and description. What
// holds values has a row of its own in front of them.
func valuesTable(t *testing.T) string {
	t.Helper()
	defaults, root := readValues(t)
	var table strings.Builder
	table.WriteString("| value | default | |\n|---|---|---|\n")
	for _, v := range chartValues(t) {
		s, value := root, any(defaults)
		for _, step := range v.path {
			s, value = s.Properties[step], value.(map[string]any)[step]
		}
		if v.holder {
			fmt.Fprintf(&table, "| **`%s`** | | **%s** |\n", v.name(), s.Description)
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if v.name() == "networkPolicy.egress" {
			text = []byte("see values.yaml")
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.name(), text, strings.ReplaceAll(s.Description, "|", `\|`))
	}
	return table.String()
}

// What helm repositories and Artifact Hub show of a chart.
func TestChartMetadata(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{chart(t), crdsChart(t)} {
		var meta struct {
			Name, Version, AppVersion, KubeVersion, Home, Icon, Description, Type, APIVersion string
			Sources, Keywords                                                                 []string
			Annotations                                                                       map[string]string
		}
		text, err := os.ReadFile(dir + "/Chart.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &meta); err != nil {
			t.Fatal(err)
		}
		if meta.KubeVersion != ">=1.29.0-0" || len(meta.Keywords) < 3 || len(meta.Sources) == 0 || !strings.HasPrefix(meta.Icon, "data:image/svg+xml;base64,") {
			t.Errorf("%s: %+v", dir, meta)
		}
		for _, name := range []string{"artifacthub.io/category", "artifacthub.io/license", "artifacthub.io/links"} {
			if meta.Annotations[name] == "" {
				t.Errorf("%s has no annotation %s", dir, name)
			}
		}
		for name, text := range meta.Annotations {
			var any any
			if err := yaml.UnmarshalStrict([]byte(text), &any); err != nil {
				t.Errorf("%s: %s: %v", dir, name, err)
			}
		}
	}
}
