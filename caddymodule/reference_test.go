package caddymodule

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/go-cmp/cmp"
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
			texts = append(texts, strings.Trim(cell, "` "))
		}
		rows[texts[0]] = optionRow{fallback: texts[2], variable: texts[3]}
	}
	return rows
}

// Section 15: the table of the reference has the options that the Caddyfile
// knows, with the defaults and the environment variables that the code has.
func TestReferenceOptions(t *testing.T) {
	rows := referenceOptions(t)
	var known []string
	for _, text := range []string{"proxyauth {\n\tx\n}", "proxyauth {\n\tkubernetes {\n\t\tx\n\t}\n}"} {
		err := new(App).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
		list := regexp.MustCompile(`must be one of (.+), at Testfile`).FindStringSubmatch(err.Error())
		if list == nil {
			t.Fatal(err)
		}
		known = append(known, strings.Split(list[1], ", ")...)
	}
	slices.Sort(known)
	if diff := cmp.Diff(known, slices.Sorted(maps.Keys(rows))); diff != "" {
		t.Errorf("options: %s", diff)
	}

	clearEnv(t)
	dir := t.TempDir()
	o, err := (&App{Directory: dir}).options()
	if err != nil {
		t.Fatal(err)
	}
	for option, value := range map[string]any{
		"upstream_client_ttl": o.UpstreamClientTTL, "token_cache_ttl": o.TokenCacheTTL, "probe_interval": o.ProbeInterval,
	} {
		if told, err := parseDuration(rows[option].fallback); err != nil || told != value {
			t.Errorf("the default of %s is %v, not %s", option, value, rows[option].fallback)
		}
	}
	for option, value := range map[string]string{
		"allowed_modes": string(o.AllowedModes[0]), "audience_validation": o.AudienceValidation,
		"impersonation": string(impersonationStrip), "proxy_cookies": "off", "leader_election": defaultLease,
	} {
		if rows[option].fallback != value {
			t.Errorf("the default of %s is %s, not %s", option, value, rows[option].fallback)
		}
	}

	told := map[string]bool{}
	for option, row := range rows {
		if row.variable == "" {
			continue
		}
		told[row.variable] = true
		if row.variable == "KUBECONFIG" { // which client-go reads
			continue
		}
		t.Run(option, func(t *testing.T) {
			t.Setenv(row.variable, "Not a value")
			if _, err := (&App{Directory: dir}).options(); err == nil {
				t.Errorf("%s has no effect", row.variable)
			}
		})
	}
	source, err := os.ReadFile("options.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"([A-Z]+(?:_[A-Z]+)+)"`).FindAllSubmatch(source, -1) {
		if !told[string(m[1])] {
			t.Errorf("the reference does not have the variable %s", m[1])
		}
	}
}
