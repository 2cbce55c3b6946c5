package realtools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
)

// plan is a tool together with all that its build depends on.
type plan struct {
	Tool
	version string // of Module, as go.mod says, e.g. v1.37.2
	dir     string // absolute folder of the go.mod
	ldflags string
	file    string // absolute path of the finished program
}

func newPlan(t Tool) (*plan, error) {
	root, err := RepoRoot()
	if err != nil {
		return nil, err
	}
	p := &plan{Tool: t, dir: filepath.Join(root, "integration", "tools", t.Dir)}
	mod, err := os.ReadFile(filepath.Join(p.dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", t.Name, err)
	}
	sum, err := os.ReadFile(filepath.Join(p.dir, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", t.Name, err)
	}
	if p.version, err = versionOf(mod, t.Module); err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", t.Name, err)
	}
	p.ldflags = "-s -w"
	if t.StampVersion {
		p.ldflags += stamp(p.version)
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	own, err := ownSource(p.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the source of %s: %w", t.Name, err)
	}
	parts := append([]string{string(mod), string(sum), t.Package, p.ldflags, runtime.GOOS, runtime.GOARCH}, own...)
	p.file = filepath.Join(cache, fmt.Sprintf("%s-%s-%s", t.Name, p.version, digest(parts)))
	return p, nil
}

// ownSource is the Go code that lies beside a go.mod, if any.
func ownSource(dir string) (contents []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		contents = append(contents, string(content))
	}
	return contents, nil
}

// digest is part of the name of what was made from these.
func digest(parts []string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d\n%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func versionOf(mod []byte, module string) (string, error) {
	f, err := modfile.ParseLax("go.mod", mod, nil)
	if err != nil {
		return "", err
	}
	for _, r := range f.Require {
		if r.Mod.Path == module {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}

// stamp is what the Kubernetes release scripts pass to the linker.
func stamp(version string) string {
	const p = " -X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return p + "gitVersion=" + version + p + "gitMajor=" + major + p + "gitMinor=" + minor
}
