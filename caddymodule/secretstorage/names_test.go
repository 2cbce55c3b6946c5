package secretstorage

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNames(t *testing.T) {
	for key, want := range map[string]string{"a/b": "a/b", "/a//b/": "a/b", "../a": "a", "a/./../b": "b", "": "", "/": "", "..": ""} {
		if got, err := cleanDirectory(key); err != nil || got != want {
			t.Errorf("%q: %q, %v", key, got, err)
		}
	}
	for key, prefix := range map[string]string{
		"a/*.example.com.key": "caddy-example-com-key-",
		"ÜÜ":                  "caddy-",
		"UPPER":               "caddy-upper-",
	} {
		if got := secretName(key); len(got) > 253 || got[:len(prefix)] != prefix || len(got) != len(prefix)+32 {
			t.Errorf("%q: %s", key, got)
		}
	}
	labels := secretLabels("a/b/c")
	names := []string{}
	for name, value := range labels {
		if name != managedByLabel && len(value) == 32 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{directoryLabel + "1", directoryLabel + "2"}) {
		t.Errorf("%v", labels)
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	for key, want := range map[string]error{"": errEmptyKey, "a/..": errEmptyKey, strings.Repeat("a", maxKey+1): errLongKey, "a\xff": errKeyBytes} {
		if _, err := cleanKey(key); !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", key, err, want)
		}
	}
}

// A list has the keys below a directory, and the directories between the two.
func TestAddKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		directory string
		recursive bool
		want      []string
	}{
		"the root":            {"", false, []string{"a", "x"}},
		"all":                 {"", true, []string{"a", "a/b", "a/b/c", "a/b/d", "x"}},
		"a directory":         {"a", false, []string{"a/b"}},
		"a directory, all":    {"a", true, []string{"a/b", "a/b/c", "a/b/d"}},
		"directly below":      {"a/b", false, []string{"a/b/c", "a/b/d"}},
		"a name that differs": {"a/", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := map[string]bool{}
			for _, key := range []string{"a/b/c", "a/b/d", "x"} {
				if isBelow(key, tc.directory) {
					addKeys(found, key, tc.directory, tc.recursive)
				}
			}
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
