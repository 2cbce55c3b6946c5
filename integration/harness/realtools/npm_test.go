package realtools

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeModules runs a stand-in for npm that notes how it is called, and fails
// when package.json says so.
func TestNodeModules(t *testing.T) {
	bin, pins := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\necho \"$*\" >>" + bin + "/calls\nmkdir node_modules && cp package.json package-lock.json node_modules && ! grep broken package.json\n"
	for name, content := range map[string]string{"npm": script, "node": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cache := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("PROXYAUTH_CACHE", cache)
	pin := func(manifest, lock string) {
		t.Helper()
		for name, content := range map[string]string{"package.json": manifest, "package-lock.json": lock} {
			if err := os.WriteFile(filepath.Join(pins, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var dirs []string
	for _, versions := range [][2]string{{"one", "locked"}, {"one", "locked"}, {"one", "locked anew"}} {
		pin(versions[0], versions[1])
		dir, err := NodeModules(t.Context(), pins, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "package-lock.json")); err != nil || string(got) != versions[1] {
			t.Errorf("npm saw the lock %q, %v", got, err)
		}
		dirs = append(dirs, dir)
	}
	if dirs[0] != dirs[1] || dirs[1] == dirs[2] {
		t.Errorf("folders %q", dirs)
	}
	pin("broken", "locked")
	if dir, err := NodeModules(t.Context(), pins, io.Discard); err == nil {
		t.Errorf("a failure gave %s", dir)
	}
	const call = "ci --ignore-scripts --no-audit --no-fund\n"
	if calls, err := os.ReadFile(filepath.Join(bin, "calls")); err != nil || string(calls) != strings.Repeat(call, 3) {
		t.Errorf("calls %q, %v", calls, err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 2+3 { // folders and locks
		t.Errorf("left behind: %q, %v", left, err)
	}
}
