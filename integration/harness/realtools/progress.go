package realtools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressInterval is how often a running build says how far it is.
const progressInterval = 15 * time.Second

// goBuild runs go build in dir and says how many of the packages that have to
// be compiled are done.
func goBuild(ctx context.Context, dir string, flags []string, output string, packages []string, names string, progress io.Writer) error {
	stale, err := stalePackages(ctx, dir, flags, packages)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-v"}, flags...)
	cmd := goCommand(ctx, dir, append(append(args, "-o", output+"/"), packages...)...)
	compiled := &counter{of: stale}
	cmd.Stdout, cmd.Stderr = compiled, compiled
	start := time.Now()
	stop := every(progressInterval, func() {
		fmt.Fprintf(progress, "building %s ... %s, %s\n", names, compiled.share(), time.Since(start).Round(time.Second))
	})
	err = cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(compiled.rest.Bytes()))
	}
	return nil
}

// stalePackages are the packages that go build would compile: those that the
// build cache lacks.
func stalePackages(ctx context.Context, dir string, flags, packages []string) (map[string]bool, error) {
	args := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags...)
	cmd := goCommand(ctx, dir, append(args, packages...)...)
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

// counter counts the lines of go build -v that name a package, and keeps the
// others, which are errors. exec writes to it from one goroutine, because
// standard output and error are the same writer.
type counter struct {
	of map[string]bool

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
	if c.done >= len(c.of) {
		return "linking"
	}
	return fmt.Sprintf("%d of %d packages (%d%%)", c.done, len(c.of), 100*c.done/len(c.of))
}

// lines lets several builds write lines to the same writer.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
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
