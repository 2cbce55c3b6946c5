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
	"sync"
	"syscall"
	"testing"
	"time"
)

// progressInterval is how often a running build says that it is alive.
const progressInterval = 15 * time.Second

// built remembers paths within this process: a test asks for kubectl often.
var built sync.Map // Tool -> string

// Path returns the program's file and builds it first when the cache lacks it.
// Lines about a build, and only then, are written to progress (nil: standard
// error).
func Path(ctx context.Context, t Tool, progress io.Writer) (string, error) {
	if file, ok := built.Load(t); ok {
		return file.(string), nil
	}
	p, err := newPlan(t)
	if err != nil {
		return "", err
	}
	if !p.done() {
		if progress == nil {
			progress = os.Stderr
		}
		if err := p.build(ctx, progress); err != nil {
			return "", err
		}
	}
	built.Store(t, p.file)
	return p.file, nil
}

// Need is Path for tests: a program that cannot be built fails the test.
func Need(tb testing.TB, t Tool) string {
	tb.Helper()
	file, err := Path(tb.Context(), t, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

func (p *plan) done() bool {
	info, err := os.Stat(p.file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func (p *plan) build(ctx context.Context, progress io.Writer) error {
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(p.file), "build.lock"), func(waited time.Duration) {
		fmt.Fprintf(progress, "waiting for another build before building %s %s ... %s\n", p.Name, p.version, waited)
	})
	if err != nil {
		return fmt.Errorf("building %s: %w", p.Name, err)
	}
	defer unlock()
	if p.done() { // the other process built it
		return nil
	}
	start := time.Now()
	stop := every(progressInterval, func() {
		fmt.Fprintf(progress, "building %s %s ... %s\n", p.Name, p.version, time.Since(start).Round(time.Second))
	})
	defer stop()
	fmt.Fprintf(progress, "building %s %s (once; kept as %s)\n", p.Name, p.version, p.file)
	if err := p.compile(ctx); err != nil {
		return fmt.Errorf("building %s %s: %w", p.Name, p.version, err)
	}
	fmt.Fprintf(progress, "built %s %s in %s\n", p.Name, p.version, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// compile writes to a temporary name and renames, so that a killed build
// leaves no half program under the final one.
func (p *plan) compile(ctx context.Context) error {
	tmp, err := os.MkdirTemp(filepath.Dir(p.file), "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, p.Name)
	// No -trimpath: it would keep a second copy of every package in the Go
	// build cache beside the one that the lint and other builds use.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", p.ldflags, "-o", out, p.Package)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+p.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(output.Bytes()))
	}
	return os.Rename(out, p.file)
}

// lock takes an exclusive lock on a file, between processes and within this
// one, and tells waiting every progressInterval how long it has waited.
func lock(ctx context.Context, path string, waiting func(time.Duration)) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the build lock: %w", err)
	}
	start := time.Now()
	last := start
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing releases
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("taking the build lock: %w", err)
		}
		if time.Since(last) >= progressInterval {
			last = time.Now()
			waiting(time.Since(start).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the build lock: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// every calls f each interval until the returned function is called, which
// waits for a running call.
func every(interval time.Duration, f func()) (stop func()) {
	ticker := time.NewTicker(interval)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				f()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-ended
	}
}
