package realtools

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

var errNoRoot = errors.New("neither the working directory nor this program lies in the repository")

// RepoRoot is the folder of the product's go.mod. It is looked for above the
// working directory, which `go test` and `go run` set, and then above this
// program's own file, as for bin/demo. Source paths are not asked: a build with
// -trimpath has none.
func RepoRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for _, below := range []string{wd, filepath.Dir(self)} {
		for dir := below; ; dir = filepath.Dir(dir) {
			if isRoot(dir) {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("finding the repository: %w", errNoRoot)
}

func isRoot(dir string) bool {
	for _, name := range []string{"go.mod", filepath.Join("integration", "tools")} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// CacheDir is where built programs are kept; it is created when missing.
func CacheDir() (string, error) {
	dir := os.Getenv("PROXYAUTH_CACHE")
	if dir == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("finding the cache folder: %w", err)
			}
			base = filepath.Join(home, ".cache")
		}
		dir = filepath.Join(base, "proxyauthk8s")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache folder: %w", err)
	}
	return dir, nil
}
