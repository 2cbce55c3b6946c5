package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

// checkLimit bounds one command of the checks.
const checkLimit = 2 * time.Minute

// outcome is what is expected of a command: its exit code, and parts of its output.
type outcome struct {
	code int
	says []string
}

// check shows what the proxy does, and fails when it does not.
func (d *demo) check(ctx context.Context) error {
	d.say("alice asks the apiserver who she is: it knows her under the prefix, and her token never reached it")
	if err := d.kubectlAs(ctx, "alice", outcome{says: []string{
		prefix + "alice", prefix + "team-a", prefix + "a,b", "demo.example.com/session",
	}}, "auth", "whoami"); err != nil {
		return err
	}
	d.say("alice looks at all pods: her group has the right to")
	if err := d.kubectlAs(ctx, "alice", outcome{says: []string{"demo", "web"}}, "get", "pods", "-A"); err != nil {
		return err
	}
	d.say("élodie may not: the proxy let her in, the apiserver's RBAC refuses")
	if err := d.kubectlAs(ctx, "elodie", outcome{code: 1, says: []string{"Forbidden", prefix + "élodie"}}, "get", "pods", "-A"); err != nil {
		return err
	}
	d.say("What the proxy says about its clusters")
	return d.runChecked(ctx, outcome{says: []string{"Serving", "FrontProxy", "Trusted"}},
		exec.CommandContext(ctx, d.caddy, "proxyauth", "status", "--address", d.admin), "bin/caddy", "proxyauth", "status", "--address", d.admin)
}

// kubectlAs runs kubectl through the proxy in the context of a user.
func (d *demo) kubectlAs(ctx context.Context, user string, want outcome, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if user != "alice" {
		args = append([]string{"--context", user}, args...)
	}
	cmd, err := kube.Kubectl{Kubeconfig: d.kubeconfig(), Home: d.home()}.Command(ctx, args...)
	if err != nil {
		return err
	}
	return d.runChecked(ctx, want, cmd, append([]string{"kubectl"}, args...)...)
}

// runChecked runs a command, shows it with its output, and compares them with want.
func (d *demo) runChecked(ctx context.Context, want outcome, cmd *exec.Cmd, shown ...string) error {
	line := strings.Join(shown, " ")
	fmt.Fprintf(d.out, "    $ %s\n", line)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	d.quote(output.String())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return fmt.Errorf("%s: %w", line, errors.Join(err, ctx.Err()))
	}
	if code := cmd.ProcessState.ExitCode(); code != want.code {
		return fmt.Errorf("%s: exit code %d, expected %d", line, code, want.code)
	}
	for _, text := range want.says {
		if !strings.Contains(output.String(), text) {
			return fmt.Errorf("%s: %q is missing in its output", line, text)
		}
	}
	return nil
}

// quote shows the output of a command.
func (d *demo) quote(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(d.out, "    %s\n", strings.TrimRight(line, "\n"))
	}
}
