package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Terminal is a kubectl that runs on a terminal of its own, for exec -it and
// attach -it, and ends with its test.
type Terminal struct {
	what   string
	master *os.File
	cmd    *exec.Cmd
	out    buffer
	seen   int // how much of out MustSee has passed
	done   chan struct{}
}

// MustStartTerminal starts a kubectl on a terminal of that size.
func (k Kubectl) MustStartTerminal(tb testing.TB, rows, columns uint16, args ...string) *Terminal {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	cmd, err := k.Command(ctx, args...)
	if err != nil {
		tb.Fatal(err)
	}
	master, end, err := openTerminal()
	if err != nil {
		tb.Fatal(err)
	}
	defer end.Close()
	t := &Terminal{what: fmt.Sprintf("kubectl %q", args), master: master, cmd: cmd, done: make(chan struct{})}
	t.MustResize(tb, rows, columns)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
	// The kernel tells the foreground processes of a session about a new size.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := k.Namespaces.Do(cmd.Start); err != nil {
		master.Close()
		tb.Fatalf("starting %s: %v", t.what, err)
	}
	go t.read()
	tb.Cleanup(func() {
		cancel()
		<-t.done
	})
	return t
}

// openTerminal returns both ends of a new terminal.
func openTerminal() (master, end *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	var number int
	err = control(master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if err == nil {
		end, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	return master, end, nil
}

// control calls f with the descriptor of a file, which stays with Go's poller.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

// read collects the output until kubectl has closed its end, as it does when it
// ends.
func (t *Terminal) read() {
	defer close(t.done)
	defer t.master.Close()
	part := make([]byte, 4096)
	for {
		n, err := t.master.Read(part)
		_, _ = t.out.Write(part[:n])
		if err != nil {
			_ = t.cmd.Wait() // ExitCode tells how it ended
			return
		}
	}
}

// MustResize changes the size of the terminal.
func (t *Terminal) MustResize(tb testing.TB, rows, columns uint16) {
	tb.Helper()
	err := control(t.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	if err != nil {
		tb.Fatalf("resizing the terminal of %s: %v", t.what, err)
	}
}

// MustType types a line.
func (t *Terminal) MustType(tb testing.TB, line string) {
	tb.Helper()
	if _, err := t.master.WriteString(line + "\n"); err != nil {
		tb.Fatalf("typing %q into %s: %v; it shows %q", line, t.what, err, t.out.String())
	}
}

// Sees waits so long for text behind what was seen before.
func (t *Terminal) Sees(text string, within time.Duration) bool {
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if at := strings.Index(t.out.String()[t.seen:], text); at >= 0 {
			t.seen += at + len(text)
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// MustSee waits for text behind what was seen before.
func (t *Terminal) MustSee(tb testing.TB, text string) {
	tb.Helper()
	if !t.Sees(text, lineTimeout) {
		tb.Fatalf("%s: no %q in %q", t.what, text, t.out.String())
	}
}

// MustExit waits for the end and returns the exit code.
func (t *Terminal) MustExit(tb testing.TB) int {
	tb.Helper()
	select {
	case <-t.done:
		return t.cmd.ProcessState.ExitCode()
	case <-time.After(lineTimeout):
		tb.Fatalf("%s has not ended; it shows %q", t.what, t.out.String())
		return 0
	}
}
