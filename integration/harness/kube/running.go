package kube

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// lineTimeout is how long MustLine waits; machines are slow at times.
const lineTimeout = time.Minute

// Running is a kubectl that runs beside a test and ends with it.
type Running struct {
	// Stdin is its standard input.
	Stdin io.WriteCloser

	what   string
	cancel context.CancelFunc
	lines  chan string // closed at the end of standard output
	stderr buffer
	cmd    *exec.Cmd
	done   chan struct{}
}

// MustStart starts a kubectl that streams.
func (k Kubectl) MustStart(tb testing.TB, args ...string) *Running {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd, err := k.Command(ctx, args...)
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	r := &Running{
		what: fmt.Sprintf("%s %q", k.tool().Name, args), cancel: cancel, cmd: cmd,
		lines: make(chan string, 1024), done: make(chan struct{}),
	}
	cmd.Stderr = &r.stderr
	stdout, err := r.start(k, cmd)
	if err != nil {
		cancel()
		tb.Fatalf("starting %s: %v", r.what, err)
	}
	go func() {
		defer close(r.done)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			r.lines <- scanner.Text()
		}
		close(r.lines)
		_ = cmd.Wait() // MustEnd tells how it ended
	}()
	tb.Cleanup(r.Stop)
	return r
}

func (r *Running) start(k Kubectl, cmd *exec.Cmd) (stdout io.Reader, err error) {
	if r.Stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return stdout, k.Namespaces.Do(cmd.Start)
}

// Stop kills it.
func (r *Running) Stop() {
	r.cancel()
	for range r.lines { // which also lets the reader end
	}
	<-r.done
}

// Done is closed when it has ended and all its lines were read.
func (r *Running) Done() <-chan struct{} { return r.done }

// MustEnd waits for its end, and returns how it ended and what it printed that
// MustLine has not read.
func (r *Running) MustEnd(tb testing.TB) Result {
	tb.Helper()
	var out strings.Builder
	timeout := time.After(lineTimeout)
	for {
		select {
		case line, ok := <-r.lines:
			if ok {
				out.WriteString(line + "\n")
				continue
			}
			<-r.done
			return Result{Stdout: out.String(), Stderr: r.stderr.String(), ExitCode: r.cmd.ProcessState.ExitCode()}
		case <-timeout:
			tb.Fatalf("%s has not ended: %q, stderr %s", r.what, out.String(), r.stderr.String())
		}
	}
}

// MustLine reads standard output up to a line that holds text.
func (r *Running) MustLine(tb testing.TB, text string) string {
	tb.Helper()
	var others []string
	timeout := time.After(lineTimeout)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				tb.Fatalf("%s ended without a line with %q: %q, stderr %s", r.what, text, others, r.stderr.String())
			}
			if strings.Contains(line, text) {
				return line
			}
			others = append(others, line)
		case <-timeout:
			tb.Fatalf("%s: no line with %q: %q, stderr %s", r.what, text, others, r.stderr.String())
		}
	}
}

var forwarding = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// MustForward forwards a port of a pod or Service and returns the local
// address, for k.Namespaces.DialContext.
func (k Kubectl) MustForward(tb testing.TB, target string, port int) string {
	tb.Helper()
	r := k.MustStart(tb, "port-forward", target, fmt.Sprintf(":%d", port))
	return forwarding.FindString(r.MustLine(tb, "Forwarding from 127.0.0.1:"))
}

// buffer is a bytes.Buffer for a writer and a reader at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
