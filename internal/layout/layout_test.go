package layout

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// topLevel is what the top of the repository holds. Other files are hidden.
var topLevel = []string{
	"caddymodule", "k8swatch", "probe", "xcaddy", "Caddyfile.examples", "charts", "integration", "internal", "docs",
	"go.mod", "go.sum", "Makefile", "LICENSE", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md",
	"bin", // what make build writes
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, ".") && !slices.Contains(topLevel, name) {
			t.Errorf("%s has no place at the top of the repository", name)
		}
	}
}

// maxLines is how long a file may be that is not generated.
const maxLines = 450

func TestFilesAreShort(t *testing.T) {
	for name, n := range theTree(t).lines {
		if n > maxLines && !strings.Contains(name, "zz_generated") {
			t.Errorf("%s has %d lines: more than %d", name, n, maxLines)
		}
	}
}

// A test is skipped in one place alone, which fails it instead where CI=true says
// that all have to run.
func TestNoTestIsSkipped(t *testing.T) {
	if diff := cmp.Diff([]string{"integration/harness/process/testing.go"}, theTree(t).skipping); diff != "" {
		t.Errorf("files that skip tests: %s", diff)
	}
}

// Every package opens with sentences that explain it, in doc.go.
func TestPackagesExplainThemselves(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range theTree(t).sources {
		if _, known := documented[s.dir()]; !known {
			documented[s.dir()] = false
		}
		if s.Doc == nil || s.isTest() {
			continue
		}
		if !strings.HasSuffix(s.path, "/doc.go") && s.Name.Name != "main" {
			t.Errorf("%s has a comment on its package, which belongs into doc.go", s.path)
		}
		documented[s.dir()] = true
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no comment says what the package is for", dir)
		}
	}
}
