package caddymodule

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
)

// tables are the options of the app, those of a block behind the block.
func tables() (all []option) {
	for _, o := range new(App).table(new(serving.Options)) {
		all = append(all, o)
		if o.block != nil {
			all = append(all, o.block.open()...)
		}
	}
	return all
}

// Section 15: the rows of the reference are those of the tables. -update writes
// them.
func TestReferenceOptions(t *testing.T) {
	const header = "\n| option | values | default | environment |\n|---|---|---|---|\n"
	file := filepath.Join("..", "docs", "reference.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, section, found := strings.Cut(string(page), header)
	rows, after, _ := strings.Cut(section, "\n\n")
	if !found {
		t.Fatal("the reference has no table of options")
	}
	var want strings.Builder
	for _, o := range tables() {
		if o.planned {
			if !strings.Contains(after, "`"+o.name+"`") {
				t.Errorf("the reference does not say that %s is not in this version", o.name)
			}
			continue
		}
		want.WriteString("|")
		for _, cell := range []string{span(o.name), o.values, cmp.Or(o.otherwise, span(o.fallback)), span(o.variable)} {
			want.WriteString(strings.TrimRight(" "+cell, " ") + " |")
		}
		want.WriteString("\n")
	}
	table := strings.TrimSuffix(want.String(), "\n")
	if *updateGolden {
		if err := os.WriteFile(file, []byte(before+header+table+"\n\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(table, rows); diff != "" {
		t.Errorf("-table +reference (-update writes it):\n%s", diff)
	}
}

// span is text as code in Markdown.
func span(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
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
	if diff := gocmp.Diff(fields, rows); diff != "" {
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
