package caddymodule

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
)

// optionRow is a row of the table of section 15.
type optionRow struct{ fallback, variable string }

// referenceOptions reads that table: the code spans of its cells.
func referenceOptions(t *testing.T) map[string]optionRow {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n| option | values | default | environment |\n")
	section, _, _ = strings.Cut(section, "\n\n")
	rows := map[string]optionRow{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " |")
		if strings.HasPrefix(line, "|---") {
			continue
		}
		var texts []string
		for _, cell := range append(cells, "", "")[:4] {
			texts = append(texts, strings.TrimSpace(cell))
		}
		rows[strings.Trim(texts[0], "`")] = optionRow{fallback: texts[2], variable: strings.Trim(texts[3], "`")}
	}
	return rows
}

// tables are those of the app and of its blocks.
func tables() []option {
	var o serving.Options
	all := (&App{}).table(&o)
	for _, row := range all {
		if row.block != nil {
			all = append(all, row.block.open()...)
		}
	}
	return all
}

// Section 15: the table of the reference has the options of the tables, with
// their defaults and environment variables.
func TestReferenceOptions(t *testing.T) {
	told := referenceOptions(t)
	for _, o := range tables() {
		row, ok := told[o.name]
		delete(told, o.name)
		switch {
		case ok == o.planned:
			t.Errorf("%s: in the reference %t, planned for a later version %t", o.name, ok, o.planned)
		case o.fallback != "" && !strings.HasSuffix(row.fallback, "`"+o.fallback+"`"):
			t.Errorf("the default of %s is %s, not %s", o.name, o.fallback, row.fallback)
		case o.variable != row.variable && o.name != "kubeconfig": // client-go reads KUBECONFIG
			t.Errorf("the variable of %s is %q, not %q", o.name, o.variable, row.variable)
		}
	}
	for name := range told {
		t.Errorf("the reference has the option %s, which does not exist", name)
	}
}

// An option has the same name in the Caddyfile and in JSON.
func TestOptionsHaveJSONFields(t *testing.T) {
	var fields []string
	for _, block := range []any{App{}, KubernetesSource{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(block)) {
			if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag != "" {
				fields = append(fields, tag)
			}
		}
	}
	var rows []string
	for _, o := range tables() {
		if !o.planned {
			rows = append(rows, o.name)
		}
	}
	slices.Sort(fields)
	slices.Sort(rows)
	if diff := cmp.Diff(fields, rows); diff != "" {
		t.Errorf("-fields +rows:\n%s", diff)
	}
}

// The example of all options has each of them, and says its environment
// variable.
func TestExampleHasAllOptions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "Caddyfile.examples", "options.Caddyfile"))
	if err != nil {
		t.Fatal(err)
	}
	handler, storage := new(Handler), new(Storage)
	for _, o := range slices.Concat(tables(), handler.table(), storage.table()) {
		used := regexp.MustCompile(`(?m)^\s*(# )?` + o.name + `\b`).Match(text)
		if used == o.planned {
			t.Errorf("%s: in the example %t, planned for a later version %t", o.name, used, o.planned)
		}
		if !strings.Contains(string(text), o.variable) {
			t.Errorf("the example does not say that %s reads %s", o.name, o.variable)
		}
	}
}
