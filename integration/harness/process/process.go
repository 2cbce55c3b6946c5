// Package process runs the servers of the tests as child processes: output to
// a file, SIGTERM and then SIGKILL by process id, and the kernel's promise
// (PDEATHSIG) that a child does not outlive a test that is killed.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Options is what to run.
type Options struct {
	Path string
	Args []string
	// Env is the whole environment; nil means that of this process.
	Env []string
	Dir string
	// LogFile receives standard output and error, appended; empty discards.
	LogFile string
	// Namespaces to start the program in; nil means those of this process.
	Namespaces *Namespaces
	// Cloneflags are CLONE_NEW* flags: namespaces that the program gets for
	// itself.
	Cloneflags uintptr
}

// ThriftyCommand has a Go program that ends within a second take less CPU time: it
// collects no garbage before it has much, and uses one core.
func ThriftyCommand() []string { return []string{"GOGC=off", "GOMEMLIMIT=512MiB", "GOMAXPROCS=1"} }

// Process is a running, or ended, child process.
type Process struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	done    chan struct{}
	waitErr error // valid once done is closed
}

// Start starts the program.
func Start(o Options) (*Process, error) {
	p := &Process{name: o.Path, logFile: o.LogFile, done: make(chan struct{})}
	p.cmd = exec.Command(o.Path, o.Args...)
	p.cmd.Env, p.cmd.Dir = o.Env, o.Dir
	// A group of its own, so that a Ctrl-C in the terminal reaches the test
	// alone, which then stops its servers in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: o.Cloneflags}
	if o.Namespaces != nil && o.Namespaces.pid {
		// Its parent is not in its PID namespace, which Go takes for a parent
		// that has died. The end of that namespace is the child's end too.
		p.cmd.SysProcAttr.Pdeathsig = 0
	}
	var log *os.File
	if o.LogFile != "" {
		var err error
		if log, err = os.OpenFile(o.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return nil, fmt.Errorf("opening the log of %s: %w", o.Path, err)
		}
		defer log.Close()
		p.cmd.Stdout, p.cmd.Stderr = log, log
	}
	started := make(chan error, 1)
	// PDEATHSIG fires when the thread that forked ends, not the process: this
	// goroutine keeps its thread until the child is gone.
	onOwnThread(func() {
		var err error
		if o.Namespaces != nil {
			err = o.Namespaces.enter()
		}
		if err == nil {
			err = p.cmd.Start()
		}
		started <- err
		if err != nil {
			return
		}
		p.waitErr = p.cmd.Wait()
		close(p.done)
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", o.Path, err)
	}
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited says whether the process has ended.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitCode waits for the end and returns the exit code, -1 when a signal
// ended the process.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to this process alone.
func (p *Process) Signal(sig os.Signal) error {
	if p.Exited() {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(sig)
}

// Stop sends SIGTERM, waits up to grace and then sends SIGKILL. It says
// whether the process ended by itself.
func (p *Process) Stop(grace time.Duration) (graceful bool) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		<-p.done
		return true
	}
	select {
	case <-p.done:
		return true
	case <-time.After(grace):
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
	return false
}

// Kill ends the process without notice.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Log is everything the process has written so far.
func (p *Process) Log() []byte {
	b, _ := os.ReadFile(p.logFile)
	return b
}

// LogTail is the last lines of the log, for error messages.
func (p *Process) LogTail(lines int) string {
	b := bytes.TrimRight(p.Log(), "\n")
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '\n' {
			if lines--; lines == 0 {
				return string(b[i+1:])
			}
		}
	}
	return string(b)
}

var errNotFree = errors.New("no free port")

// FreePort is a TCP port of 127.0.0.1 that was free a moment ago, and that no
// test process is given again while this one runs: servers that listen with
// SO_REUSEPORT, as Caddy's do, would share it without an error. It is none that the
// kernel gives to connections, so that a server which starts again finds it free.
// Another program may still take it before the server listens: callers retry.
func FreePort() (int, error) {
	for range maxPortTries {
		port := firstPort + rand.IntN(ports)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		// An abstract socket ends with its process, whatever ends that.
		if claim, err := net.Listen("unix", fmt.Sprintf("@proxyauthk8s-test-port-%d", port)); err == nil {
			claims.Store(port, claim) // one that nothing refers to is closed
			return port, nil
		} else if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, fmt.Errorf("%w: %w", errNotFree, err)
		}
	}
	return 0, errNotFree
}

const (
	maxPortTries = 100
	// firstPort and ports are a range below that of connections (from 32768 on, in
	// net.ipv4.ip_local_port_range) and of the NodePorts of Kubernetes.
	firstPort, ports = 10_000, 20_000
)

// claims are what FreePort holds, by port.
var claims sync.Map
