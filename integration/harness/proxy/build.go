package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

var (
	buildOnce sync.Once
	binary    string
	buildErr  error
)

// BinaryVariable names a program to test in place of one built here.
const BinaryVariable = "PROXYAUTH_BINARY"

// raceVariable has the program built with the race detector.
const raceVariable = "PROXYAUTH_RACE"

// errRaceBinary: a program that is given may be without the race detector, and a
// run with it would find nothing.
var errRaceBinary = errors.New(raceVariable + " builds the program under test and " + BinaryVariable + " names one: set one of them")

// Binary is the program under test.
func Binary(ctx context.Context) (string, error) {
	buildOnce.Do(func() { binary, buildErr = buildBinary(ctx) })
	return binary, buildErr
}

// buildBinary builds into the cache, where go build finds the result of the
// last time and does nothing when it is current, and takes a link to a copy of
// its own: another test run may build another state of the sources meanwhile.
func buildBinary(ctx context.Context) (string, error) {
	race := os.Getenv(raceVariable) == "1"
	if file := os.Getenv(BinaryVariable); file != "" {
		if race {
			return "", errRaceBinary
		}
		return filepath.Abs(file)
	}
	root, err := realtools.RepoRoot()
	if err != nil {
		return "", err
	}
	cache, err := realtools.CacheDir()
	if err != nil {
		return "", err
	}
	name := "caddy"
	args := []string{"build"}
	cgo := "0" // as make build has it
	if race {
		name, cgo = "caddy-race", "1"
		args = append(args, "-race")
	}
	lock, err := os.OpenFile(filepath.Join(cache, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("building the proxy: %w", err)
	}
	defer lock.Close() // releases
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("building the proxy: %w", err)
	}
	shared := filepath.Join(cache, name)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", shared, "./xcaddy")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off", "PWD="+root)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the proxy: %w\n%s", err, output)
	}
	// A test binary leaves no code to run at its end, so the copy goes to
	// where the next build of the same kind removes it.
	old, _ := filepath.Glob(shared + "-run-*")
	for _, f := range old {
		if unused(f) {
			os.Remove(f)
		}
	}
	return copyOf(shared, fmt.Sprintf("%s-run-%d", shared, os.Getpid()))
}

// unused says whether the process whose id ends the name is gone.
func unused(file string) bool {
	pid, err := strconv.Atoi(file[strings.LastIndexByte(file, '-')+1:])
	return err == nil && syscall.Kill(pid, 0) == syscall.ESRCH
}

func copyOf(from, to string) (string, error) {
	in, err := os.Open(from)
	if err != nil {
		return "", fmt.Errorf("copying the proxy: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return "", fmt.Errorf("copying the proxy: %w", err)
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return "", fmt.Errorf("copying the proxy: %w", err)
	}
	return to, out.Close()
}
