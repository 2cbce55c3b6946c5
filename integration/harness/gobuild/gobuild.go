// Package gobuild runs go build and says how far it is: how many of the
// packages that the build cache lacks are compiled. Minutes of silence look
// like a hang.
package gobuild

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Interval is how often a running build says how far it is.
const Interval = 15 * time.Second

// Build is one go build.
type Build struct {
	// Name is what the lines call it.
	Name string
	// Dir is the working directory, in the module that is built.
	Dir string
	// Flags come between "build" and the packages; no -v and no -o.
	Flags []string
	// Output is the file, or the folder if it ends with a slash.
	Output   string
	Packages []string
	// Test says that the packages are tests to compile, by go test -c, which does
	// not tell how far it is.
	Test bool
	// Progress receives the lines, each with one Write.
	Progress io.Writer
}

// Run builds. What the compiler says is part of the error.
func (b *Build) Run(ctx context.Context) error {
	compiled := &counter{programs: len(b.Packages)}
	args := []string{"test", "-c", "-vet=off", "-o", b.Output}
	if !b.Test {
		var err error
		if compiled.of, err = b.stale(ctx); err != nil {
			return err
		}
		args = []string{"build", "-v", "-o", b.Output}
	}
	cmd := b.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = compiled, compiled
	start := time.Now()
	stop := Every(Interval, func() {
		fmt.Fprintf(b.Progress, "building %s ... %s, %s\n", b.Name, compiled.share(), time.Since(start).Round(time.Second))
	})
	err := cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(compiled.rest.Bytes()))
	}
	return nil
}

// stale are the packages that the build cache lacks.
func (b *Build) stale(ctx context.Context) (map[string]bool, error) {
	cmd := b.command(ctx, "list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("listing the packages: %w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	stale := map[string]bool{}
	for name := range strings.FieldsSeq(stdout.String()) {
		stale[name] = true
	}
	return stale, nil
}

func (b *Build) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(append(args, b.Flags...), b.Packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if b.Dir != "" {
		cmd.Env = append(cmd.Env, "PWD="+b.Dir)
	}
	// A group of its own: compilers are children of go, and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// counter counts the lines of go build -v that name a package, and keeps the
// others, which are errors.
type counter struct {
	of       map[string]bool
	programs int // among them, whose compilation is soon done and whose link is not

	mu   sync.Mutex
	done int
	part []byte // of a line
	rest bytes.Buffer
}

func (c *counter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part = append(c.part, b...)
	for {
		line, rest, whole := bytes.Cut(c.part, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if c.of[string(line)] {
			c.done++
		} else {
			c.rest.Write(line)
			c.rest.WriteByte('\n')
		}
		c.part = rest
	}
}

func (c *counter) share() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		return "compiling"
	}
	if c.done >= len(c.of)-c.programs {
		return "linking"
	}
	return fmt.Sprintf("%d of %d packages (%d%%)", c.done, len(c.of), 100*c.done/len(c.of))
}

// Every calls f each interval until the returned function is called, which
// waits for a running call.
func Every(interval time.Duration, f func()) (stop func()) {
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
