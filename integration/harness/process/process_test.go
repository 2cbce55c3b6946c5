package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestExitCodeAndLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Options{Path: "/bin/sh", Args: []string{"-c", "echo one; echo two >&2; exit 3"}, LogFile: log})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.ExitCode(); got != 3 {
		t.Errorf("exit code %d", got)
	}
	if got := p.LogTail(1); got != "two" {
		t.Errorf("last line %q", got)
	}
	if got := p.LogTail(5); got != "one\ntwo" {
		t.Errorf("log %q", got)
	}
	if !p.Stop(time.Second) {
		t.Error("an ended process had to be killed")
	}
}

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Options{Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"}, LogFile: log})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(string(p.Log()), "ready"); {
		if time.Now().After(deadline) {
			t.Fatal("the script did not start")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if p.Stop(100 * time.Millisecond) {
		t.Error("the process is said to have ended by itself")
	}
	if got := p.ExitCode(); got != -1 {
		t.Errorf("exit code %d", got)
	}
}

// TestChildDiesWithItsParent runs this test binary as the parent and kills it.
func TestChildDiesWithItsParent(t *testing.T) {
	if file := os.Getenv("PROCESS_TEST_PARENT"); file != "" {
		p, err := Start(Options{Path: "/bin/sleep", Args: []string{"600"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+".tmp", []byte(strconv.Itoa(p.PID())), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Rename(file+".tmp", file)
		select {}
	}
	file := filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0], "-test.run=^TestChildDiesWithItsParent$")
	parent.Env = append(os.Environ(), "PROCESS_TEST_PARENT="+file)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	deadline := time.Now().Add(10 * time.Second)
	for pid == 0 {
		b, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(string(b))
		if time.Now().After(deadline) {
			t.Fatal("the parent started nothing")
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for running(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d outlived its parent", pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// running is false for a zombie: where process 1 reaps nothing, a killed
// orphan stays in the table.
func running(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestFreePortIsGivenOnce(t *testing.T) {
	given := map[int]bool{}
	for range 500 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("port %d was given twice", port)
		}
		given[port] = true
	}
}
