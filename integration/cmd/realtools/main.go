// Command realtools builds the real programs that tests and the Makefile use
// and prints where they are, one path a line.
//
//	realtools                      build all that the short tests need
//	realtools kubectl staticcheck  build these
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: realtools [name ...]\n\nBuilds these programs when the cache lacks them, and prints their paths:")
		for _, t := range realtools.All() {
			fmt.Fprintln(os.Stderr, "  "+t.Name)
		}
		for _, t := range realtools.OnlyNamed() {
			fmt.Fprintln(os.Stderr, "  "+t.Name+" (only when named)")
		}
	}
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "realtools:", err)
		os.Exit(1)
	}
}

func run(names []string) error {
	tools := realtools.All()
	if len(names) > 0 {
		tools = nil
		for _, name := range names {
			t, ok := realtools.Named(name)
			if !ok {
				return fmt.Errorf("no program is named %q", name)
			}
			tools = append(tools, t)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	paths, err := realtools.Paths(ctx, tools, os.Stderr)
	if err != nil {
		return err
	}
	for _, path := range paths {
		fmt.Println(path)
	}
	return nil
}
