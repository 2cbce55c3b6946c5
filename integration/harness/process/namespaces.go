package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Namespaces are Linux namespaces of a running process, to start children in
// and to open connections from. They live while they are open, even when the
// process has ended. A nil *Namespaces means those of this process, so that
// callers need not care. All methods may be called at the same time.
type Namespaces struct {
	files []*os.File
	// mount and pid say which kinds are among them.
	mount, pid bool
}

// OpenNamespaces opens namespaces of a process by the names that they have
// below /proc/<pid>/ns: net, mnt, pid and so on.
func OpenNamespaces(pid int, kinds ...string) (*Namespaces, error) {
	n := &Namespaces{}
	for _, kind := range kinds {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind))
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("opening the namespaces of process %d: %w", pid, err)
		}
		n.files = append(n.files, f)
		n.mount = n.mount || kind == "mnt"
		n.pid = n.pid || kind == "pid"
	}
	return n, nil
}

// Close lets the namespaces go.
func (n *Namespaces) Close() {
	for _, f := range n.files {
		f.Close()
	}
}

// enter moves the calling thread, which must be locked and must not serve
// another goroutine later. A PID namespace takes effect for children.
func (n *Namespaces) enter() error {
	if n.mount {
		// A thread that shares its root and working folder may not leave.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unsharing the file system attributes of a thread: %w", err)
		}
	}
	for _, f := range n.files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("entering %s: %w", f.Name(), err)
		}
	}
	return nil
}

// Do runs f in the namespaces, on a thread that ends with it: sockets that f
// opens and children that it starts belong there, goroutines that it starts
// do not. In another mount namespace the working folder is /. f must return,
// which a test's Fatal does not.
func (n *Namespaces) Do(f func() error) error {
	if n == nil {
		return f()
	}
	result := make(chan error, 1)
	onOwnThread(func() {
		if err := n.enter(); err != nil {
			result <- err
			return
		}
		result <- f()
	})
	return <-result
}

// onOwnThread starts a goroutine on a thread that serves no other and ends
// with it.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		// The main thread never ends, and its namespaces are what /proc shows
		// as those of the process. While it is held, f gets another one.
		defer runtime.UnlockOSThread()
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
	}()
}

var errNoAddress = errors.New("not an IP address and a port")

// DialContext connects from the namespaces. Names are not resolved there, so
// the address is to be an IP address with a port.
func (n *Namespaces) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	if n == nil {
		return dialer.DialContext(ctx, network, address)
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dialling %s in a namespace: %w", address, errNoAddress)
	}
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
