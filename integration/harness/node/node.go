package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// Name is the name of the node.
const Name = "node"

// Address is that of the node, the same for each: they do not see each other.
const Address = "172.31.0.1"

// podCIDR is where pods get their addresses.
const podCIDR = "10.244.0.0/24"

// startTimeout bounds the start, builds and installations aside.
const startTimeout = 4 * time.Minute

// Options shape one node.
type Options struct {
	// APIServer are the options of the apiserver; Node is filled in.
	APIServer kube.Options
	// LargeImages says that containers of large images will run: they share the
	// files of an image where the file system allows it.
	LargeImages bool
}

// Node is a running cluster.
type Node struct {
	// API is the apiserver: clients, kubeconfig, audit log, Suspend and Resume.
	API *kube.APIServer
	// Namespaces are those of the node. Names of Services resolve there.
	Namespaces *process.Namespaces
	// StartTime is how long the start took, builds and installations aside.
	StartTime time.Duration

	dir         string
	largeImages bool
	snapshotter string // of containerd
	init        *process.Process
	servers     []*server
	dns         *dnsServer
}

// server is one of the node's processes.
type server struct {
	name string
	*process.Process
}

// New starts a node with its files below dir, and waits until pods can run.
func New(ctx context.Context, dir string, o Options) (*Node, error) {
	if err := realtools.Debian(ctx, nil, packages...); err != nil {
		return nil, err
	}
	for _, t := range []realtools.Tool{
		realtools.Etcd, realtools.KubeAPIServer, realtools.KubeControllerManager,
		realtools.KubeScheduler, realtools.Kubelet, realtools.KubeProxy,
	} {
		if _, err := realtools.Path(ctx, t, nil); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	n := &Node{dir: dir, largeImages: o.LargeImages}
	if err := n.start(ctx, o); err != nil {
		err = fmt.Errorf("starting a node: %w\n%s", err, n.lastLines())
		return nil, errors.Join(err, n.Stop())
	}
	n.StartTime = time.Since(start)
	return n, nil
}

func (n *Node) start(ctx context.Context, o Options) error {
	if err := n.startInit(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		o.APIServer.Node = &kube.Node{Address: Address, Namespaces: n.Namespaces}
		n.API, err = kube.StartAPIServer(groupCtx, n.dir, o.APIServer)
		return err
	})
	group.Go(func() error { return n.startContainerd(groupCtx) })
	if err := group.Wait(); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{
		n.startDNS, n.startControllerManager, n.startScheduler, n.startKubelet, n.startKubeProxy, n.waitReady,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all of the node. The error is about something left behind.
func (n *Node) Stop() error {
	if n.dns != nil {
		n.dns.stop()
	}
	if n.init != nil {
		n.init.Kill() // and the kernel all others
	}
	for _, s := range n.servers {
		<-s.Done()
	}
	if n.API != nil {
		n.API.Stop()
	}
	if n.Namespaces != nil {
		n.Namespaces.Close()
	}
	return n.removeControlGroups()
}

// PID is the process id of the first process.
func (n *Node) PID() int { return n.init.PID() }

// run starts a server of the node.
func (n *Node) run(name, path string, args ...string) error {
	dir := n.path(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	p, err := process.Start(process.Options{
		Path: path, Args: args, Dir: dir, LogFile: filepath.Join(dir, "log"), Namespaces: n.Namespaces,
		Env: []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + dir, "LANG=C.UTF-8"},
	})
	if err != nil {
		return err
	}
	n.servers = append(n.servers, &server{name, p})
	return nil
}

// runTool is run for a program of realtools.
func (n *Node) runTool(ctx context.Context, t realtools.Tool, args ...string) error {
	path, err := realtools.Path(ctx, t, nil)
	if err != nil {
		return err
	}
	return n.run(t.Name, path, args...)
}

// Run runs a command in the node's namespaces to its end.
func (n *Node) Run(cmd *exec.Cmd) error {
	if cmd.Dir == "" {
		// Which would be that of the thread: / once it has entered.
		var err error
		if cmd.Dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	return n.Namespaces.Do(cmd.Run)
}

// path is that of a file of the node.
func (n *Node) path(elements ...string) string {
	return filepath.Join(append([]string{n.dir}, elements...)...)
}

// write writes a file of the node and returns its path.
func (n *Node) write(name, content string) (string, error) {
	file := n.path(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return file, nil
}
