package node

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
)

//go:embed init.sh
var initScript string

// startInit starts the first process and opens its namespaces.
func (n *Node) startInit(ctx context.Context) error {
	for _, dir := range []string{"lib", "log"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return fmt.Errorf("preparing the node's folder: %w", err)
		}
	}
	if _, err := n.write("resolv.conf", "nameserver "+Address+"\nsearch svc."+clusterDomain+" "+clusterDomain+"\noptions ndots:5\n"); err != nil {
		return err
	}
	if err := os.Chmod(n.path("resolv.conf"), 0o644); err != nil {
		return fmt.Errorf("preparing the node's folder: %w", err)
	}
	script, err := n.write("init.sh", initScript)
	if err != nil {
		return err
	}
	n.init, err = process.Start(process.Options{
		Path: "/bin/sh", Args: []string{script, n.dir, Address}, Dir: "/", LogFile: n.path("init.log"),
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
	})
	if err != nil {
		return err
	}
	err = n.poll(ctx, "the node's namespaces", func(context.Context) error {
		if n.init.Exited() {
			return fatal{fmt.Errorf("init.sh ended: %s", n.init.Log())}
		}
		_, err := os.Stat(n.path("ready"))
		return err
	})
	if err != nil {
		return err
	}
	n.Namespaces, err = process.OpenNamespaces(n.init.PID(), "pid", "net", "mnt")
	return err
}

// removeControlGroups removes what runc has made below /k8s.io for containers
// that were running at the end. Their ids are those of the folders that
// containerd keeps.
func (n *Node) removeControlGroups() error {
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return err
	}
	hierarchies = append(hierarchies, "/sys/fs/cgroup")
	containers, err := filepath.Glob(n.path("lib/containerd/io.containerd.grpc.v1.cri/*/*"))
	if err != nil {
		return err
	}
	var problems []error
	for _, h := range hierarchies {
		for _, c := range containers {
			problems = append(problems, removeControlGroup(filepath.Join(h, "k8s.io", filepath.Base(c))))
		}
		// Another node may still use the common one.
		_ = syscall.Rmdir(filepath.Join(h, "k8s.io"))
	}
	return errors.Join(problems...)
}

// removeControlGroup waits for the kernel, which empties a control group a
// moment after its last process has ended.
func removeControlGroup(dir string) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing the control group %s: %w", dir, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
