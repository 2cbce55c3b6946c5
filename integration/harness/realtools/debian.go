package realtools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/gobuild"
)

// DebianPackage is what a test needs and the Go module proxy does not have.
type DebianPackage struct {
	Name string
	// File that the package brings: an absolute path, or a program in PATH.
	// The package is taken for installed when the file is there.
	File string
}

func (p DebianPackage) installed() bool {
	if filepath.IsAbs(p.File) {
		_, err := os.Stat(p.File)
		return err == nil
	}
	_, err := exec.LookPath(p.File)
	return err == nil
}

var errNotRoot = errors.New("root is needed to install packages")

// Debian installs, with apt-get, those of the packages that are missing, and
// writes lines about it, and only then, to progress (nil: standard error).
func Debian(ctx context.Context, progress io.Writer, packages ...DebianPackage) error {
	if len(missing(packages)) == 0 {
		return nil
	}
	if progress == nil {
		progress = os.Stderr
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "debian.lock"), func(waited time.Duration) {
		fmt.Fprintf(progress, "waiting for another installation of packages ... %s\n", waited)
	})
	if err != nil {
		return fmt.Errorf("installing packages: %w", err)
	}
	defer unlock()
	names := missing(packages)
	if len(names) == 0 { // the other process installed them
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("installing %s: %w", strings.Join(names, ", "), errNotRoot)
	}
	start := time.Now()
	fmt.Fprintf(progress, "installing the packages %s\n", strings.Join(names, ", "))
	stop := gobuild.Every(gobuild.Interval, func() {
		fmt.Fprintf(progress, "installing packages ... %s\n", time.Since(start).Round(time.Second))
	})
	defer stop()
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, names...)} {
		if err := aptGet(ctx, args...); err != nil {
			return err
		}
	}
	if names = missing(packages); len(names) > 0 {
		return fmt.Errorf("installing packages: %s did not bring the expected files", strings.Join(names, ", "))
	}
	fmt.Fprintf(progress, "installed the packages in %s\n", time.Since(start).Round(100*time.Millisecond))
	return nil
}

func missing(packages []DebianPackage) (names []string) {
	for _, p := range packages {
		if !p.installed() {
			names = append(names, p.Name)
		}
	}
	return names
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	// RUNLEVEL=1 keeps invoke-rc.d from starting the services it installs.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running apt-get %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
