// Command demo puts the proxy in front of a cluster, to try it: a real etcd and
// kube-apiserver without any OIDC flag, an OpenID provider, and bin/caddy with
// Caddyfile.examples/demo.Caddyfile. It shows what the users alice and élodie may
// do through the proxy, says what to try next, and stays until Ctrl-C. Everything
// listens on 127.0.0.1 and lives in one temporary folder, which is removed at the
// end, also after a failure or a signal.
//
//	demo                 stay up until Ctrl-C
//	demo -once           end after the checks; the exit code says how they went
//	demo token -user …   log in at the provider and print a token; the
//	                     kubeconfig's exec plugin
//
// setup.go and manifests/ prepare the cluster and the proxy, as a person would do
// it with files and kubectl. Use this for a demonstration only: the provider logs
// in any user that a request names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A reader of the output that ended (demo | head) must not prevent the cleanup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if len(os.Args) > 1 && os.Args[1] == "token" {
		if err := printToken(ctx, os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "demo token:", err)
			return 1
		}
		return 0
	}
	once := flag.Bool("once", false, "end after the checks")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		return 2
	}
	return demonstrate(ctx, os.Stdout, *once)
}

// demonstrate runs the demo to its end and returns the exit code.
func demonstrate(ctx context.Context, out io.Writer, once bool) int {
	d := &demo{out: out}
	defer d.cleanUp()
	err := d.up(ctx)
	if err == nil {
		err = d.check(ctx)
	}
	switch {
	case ctx.Err() != nil:
		d.say("Interrupted before everything was up.")
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(out, "\nFAILED: %v\n", err)
		d.showLog()
		return 1
	case once:
		fmt.Fprintln(out, "\nAll checks passed.")
		return 0
	}
	d.suggest()
	if err := d.wait(ctx); err != nil {
		fmt.Fprintf(out, "\nFAILED: %v\n", err)
		d.showLog()
		return 1
	}
	return 0
}

// exitInterrupted is what shells report for a program that Ctrl-C ended.
const exitInterrupted = 130

// wait returns when the user ends the demo, or with an error when a part of it
// ended by itself.
func (d *demo) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.proxy.Done():
		return errors.New("the proxy has ended")
	}
}
