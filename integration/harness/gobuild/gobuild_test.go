package gobuild

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=mod")
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.test/m\n", "good/main.go": "package main\n\nfunc main() {}\n", "bad/main.go": "package main\n\nfunc main() { wrong() }\n", "tests/some_test.go": "package tests\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var progress bytes.Buffer
	build := &Build{Name: "good", Dir: dir, Output: filepath.Join(dir, "out") + "/", Packages: []string{"./good"}, Progress: &progress}
	if err := build.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "good")); err != nil {
		t.Error(err)
	}
	tests := &Build{Name: "tests", Dir: dir, Output: filepath.Join(dir, "out") + "/", Packages: []string{"./tests"}, Test: true, Progress: &progress}
	if err := tests.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "tests.test")); err != nil {
		t.Error(err)
	}
	build.Packages = []string{"./bad"}
	if err := build.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "undefined: wrong") {
		t.Errorf("what does not compile: %v", err)
	}
}

func TestCounter(t *testing.T) {
	c := &counter{of: map[string]bool{"a": true, "b/c": true, "d": true, "e": true}}
	for _, part := range []string{"a\nb", "/c\n# x\nx.go:1: wr", "ong\nnot/stale\n", "d"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.share(); got != "2 of 4 packages (50%)" {
		t.Errorf("share %q", got)
	}
	if got := c.rest.String(); got != "# x\nx.go:1: wrong\nnot/stale\n" {
		t.Errorf("the rest is %q", got)
	}
}
