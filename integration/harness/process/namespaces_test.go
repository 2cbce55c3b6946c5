package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNamespaces enters a network namespace of a child, which takes root.
func TestNamespaces(t *testing.T) {
	NeedRoot(t, "entering a namespace")
	p, err := Start(Options{
		Path: "/bin/sleep", Args: []string{"600"},
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	ns, err := OpenNamespaces(p.PID(), "pid", "net", "mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	link := func(pid, kind string) string {
		target, err := os.Readlink(filepath.Join("/proc", pid, "ns", kind))
		if err != nil {
			t.Error(err)
		}
		return target
	}
	child, self := fmt.Sprint(p.PID()), fmt.Sprint(os.Getpid())
	before := link(self, "net")

	// Often and at the same time, so that the main thread would be hit.
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			err := ns.Do(func() error {
				thread := fmt.Sprintf("%d/task/%d", os.Getpid(), unix.Gettid())
				if got := link(thread, "net"); got != link(child, "net") {
					t.Errorf("the thread is in %s", got)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if after := link(self, "net"); after != before {
		t.Errorf("the process was in %s and is in %s", before, after)
	}

	log := filepath.Join(t.TempDir(), "log")
	inside, err := Start(Options{Path: "/bin/sh", Args: []string{"-c", "echo $$; exec sleep 600"}, LogFile: log, Namespaces: ns})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Kill()
	for deadline := time.Now().Add(5 * time.Second); len(inside.Log()) == 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if got := strings.TrimSpace(string(inside.Log())); got != "2" {
		t.Errorf("the second process of the namespace has the id %q", got)
	}
	p.Kill()
	select {
	case <-inside.Done():
	case <-time.After(10 * time.Second):
		t.Error("a process outlives the first one of its namespace")
	}
	if _, err := ns.DialContext(t.Context(), "tcp", "localhost:80"); err == nil || !strings.Contains(err.Error(), errNoAddress.Error()) {
		t.Errorf("dialling a name: %v", err)
	}
}
