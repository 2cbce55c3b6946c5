// Command testrun runs a command, usually go test, beside servers that all test
// processes share:
//
//	testrun go test -p 4 ./...
//
// It builds the product once and starts one etcd, on which each apiserver of a
// test has a prefix of its own, tells the tests of both in the environment, and
// ends what it started by process id. Tests that run without it build and start
// their own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testrun command [argument ...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	os.Exit(code)
}

func run(ctx context.Context, command []string) (code int, err error) {
	binary, err := proxy.Binary(ctx)
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "testrun")
	if err != nil {
		return 1, fmt.Errorf("making a folder for the servers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, err := kube.StartEtcd(ctx, dir)
	if err != nil {
		return 1, err
	}
	defer etcd.Stop()
	return child(ctx, command, proxy.BinaryVariable+"="+binary, kube.EtcdVariable+"="+etcd.URL)
}

// child runs the command and returns its exit code. A signal is passed on, and
// the command has a while to end its own servers.
func child(ctx context.Context, command []string, env ...string) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("running %s: %w", command[0], err)
	}
	return 0, nil
}
