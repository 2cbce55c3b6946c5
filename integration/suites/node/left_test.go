package node

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

// machine is what a node must not change on its host, and what identifies its
// processes.
type machine struct {
	mounts, interfaces, sysctls []string
	// processes are those of the node, containers included, by process id.
	processes []int
	// containers are their ids, the last element of their control groups.
	containers []string
	// namespaces are the node's own, as links below /proc/<pid>/ns.
	namespaces []string
}

func observe(t *testing.T) machine {
	t.Helper()
	var m machine
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	m.mounts = strings.Split(string(mounts), "\n")
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		m.interfaces = append(m.interfaces, fmt.Sprint(i.Name, addresses))
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward"} {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		m.sysctls = append(m.sysctls, name+"="+strings.TrimSpace(string(value)))
	}
	return m
}

// observeNode is called while pods run.
func observeNode(t *testing.T, n *node.Node) machine {
	t.Helper()
	var m machine
	self := strconv.Itoa(os.Getpid())
	for _, kind := range []string{"net", "mnt", "pid"} {
		own, err := os.Readlink(filepath.Join("/proc", self, "ns", kind))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(n.PID()), "ns", kind))
		if err != nil {
			t.Fatal(err)
		}
		if own == theirs {
			t.Fatalf("the node shares the %s namespace of the host", kind)
		}
		m.namespaces = append(m.namespaces, theirs)
	}
	m.processes = inNamespaces(t, m.namespaces)
	for _, pid := range m.processes {
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			continue // ended meanwhile
		}
		for _, found := range containerGroup.FindAllStringSubmatch(string(groups), -1) {
			m.containers = append(m.containers, found[1])
		}
	}
	if len(m.processes) < 8 || len(m.containers) == 0 {
		t.Fatalf("the node has the processes %v and the containers %q only", m.processes, m.containers)
	}
	return m
}

var containerGroup = regexp.MustCompile(`(?m)/k8s\.io/([0-9a-f]+)$`)

// inNamespaces lists the processes that are in one of the namespaces.
func inNamespaces(t *testing.T, namespaces []string) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		// What ends meanwhile has no links.
		if target, err := os.Readlink(link); err == nil && slices.Contains(namespaces, target) {
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// mustBeAll fails unless the host is as before and the node is gone.
func (m machine) mustBeAll(t *testing.T, inside machine) {
	t.Helper()
	if left := inNamespaces(t, inside.namespaces); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	for _, id := range inside.containers {
		for _, pattern := range []string{"/sys/fs/cgroup/k8s.io/", "/sys/fs/cgroup/*/k8s.io/"} {
			if left, _ := filepath.Glob(pattern + id); len(left) > 0 {
				t.Errorf("control groups are left: %q", left)
			}
		}
	}
	after := observe(t)
	for _, c := range []struct {
		what          string
		before, after []string
	}{{"mounts", m.mounts, after.mounts}, {"interfaces", m.interfaces, after.interfaces}, {"settings", m.sysctls, after.sysctls}} {
		if !slices.Equal(c.before, c.after) {
			t.Errorf("the %s of the host were\n%q\nand are\n%q", c.what, c.before, c.after)
		}
	}
}

// TestKilled runs this test binary as the owner of a node and kills it: the
// kernel ends all of the node.
func TestKilled(t *testing.T) {
	if os.Getenv("NODE_TEST_OWNER") != "" {
		n := node.Start(t, node.Options{})
		fmt.Printf("node %d\n", n.PID())
		select {}
	}
	process.NeedRoot(t, "a node with real pods")
	owner := exec.Command(os.Args[0], "-test.run=^TestKilled$", "-test.v")
	// What it cannot remove any more goes with this test.
	owner.Env = append(os.Environ(), "NODE_TEST_OWNER=1", "TMPDIR="+t.TempDir())
	owner.Stderr = os.Stderr
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	defer owner.Process.Kill()
	pid := 0
	var output strings.Builder
	for scanner := bufio.NewScanner(stdout); pid == 0 && scanner.Scan(); {
		output.WriteString(scanner.Text() + "\n")
		if text, ok := strings.CutPrefix(scanner.Text(), "node "); ok {
			if pid, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if pid == 0 {
		t.Fatalf("no node was started:\n%s", output.String())
	}
	var namespaces []string
	for _, kind := range []string{"net", "mnt", "pid"} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		namespaces = append(namespaces, link)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // which says that it was killed
	var left []int
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if left = inNamespaces(t, namespaces); len(left) == 0 {
			return
		}
	}
	t.Errorf("processes are left: %v", left)
}
