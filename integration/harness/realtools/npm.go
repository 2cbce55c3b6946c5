package realtools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// nodeJS are the interpreter and its installer of packages.
var nodeJS = []DebianPackage{{Name: "nodejs", File: "node"}, {Name: "npm", File: "npm"}}

// NodeModules returns the folder node_modules with the packages that
// package.json and package-lock.json in dir pin, and installs them first when the
// cache lacks them. Their own scripts do not run. Lines about an installation,
// and only then, are written to progress (nil: standard error).
func NodeModules(ctx context.Context, dir string, progress io.Writer) (string, error) {
	if progress == nil {
		progress = os.Stderr
	}
	if err := Debian(ctx, progress, nodeJS...); err != nil {
		return "", err
	}
	pins, err := readPins(dir)
	if err != nil {
		return "", fmt.Errorf("reading the pins of JavaScript packages: %w", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	kept := filepath.Join(cache, "node-modules-"+digest([]string{pins["package.json"], pins["package-lock.json"]}))
	unlock, err := lock(ctx, kept+".lock", func(waited time.Duration) {
		fmt.Fprintf(progress, "waiting for another installation of JavaScript packages ... %s\n", waited)
	})
	if err != nil {
		return "", fmt.Errorf("installing JavaScript packages: %w", err)
	}
	defer unlock()
	modules := filepath.Join(kept, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	fmt.Fprintf(progress, "installing JavaScript packages (once; kept in %s)\n", kept)
	if err := install(ctx, cache, kept, pins); err != nil {
		return "", fmt.Errorf("installing JavaScript packages: %w", err)
	}
	return modules, nil
}

func readPins(dir string) (map[string]string, error) {
	pins := map[string]string{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		pins[name] = string(content)
	}
	return pins, nil
}

// install renames the finished folder, so that one that was interrupted is never
// taken for whole.
func install(ctx context.Context, cache, kept string, pins map[string]string) error {
	tmp, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, content := range pins {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running npm ci: %w\n%s", err, bytes.TrimSpace(out))
	}
	return os.Rename(tmp, kept)
}
