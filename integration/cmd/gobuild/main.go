// Command gobuild is go build that says how far it is:
//
//	gobuild -C .. -o bin/caddy ./xcaddy
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/gobuild"
)

func main() {
	dir := flag.String("C", ".", "the folder to build in")
	output := flag.String("o", "", "the program to write, from that folder")
	ldflags := flag.String("ldflags", "", "as for go build")
	flag.Parse()
	if err := run(*dir, *output, *ldflags, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gobuild:", err)
		os.Exit(1)
	}
}

func run(dir, output, ldflags string, packages []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	build := gobuild.Build{Name: output, Dir: dir, Output: output, Packages: packages, Progress: os.Stderr}
	if ldflags != "" {
		build.Flags = []string{"-ldflags", ldflags}
	}
	return build.Run(ctx)
}
