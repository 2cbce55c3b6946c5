package streamtest

import (
	"io"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
)

// Terminal runs a shell with exec -it: it has a terminal of the size that the
// user's terminal has, learns of a new size, and its exit code comes back.
func Terminal(t *testing.T, k kube.Kubectl) {
	terminal := k.MustStartTerminal(t, 24, 80, "exec", "-it", Pod, "--", "sh")
	terminal.MustSee(t, "# ")
	terminal.MustType(t, "tty")
	terminal.MustSee(t, "/dev/pts/")
	mustResize(t, terminal)
	terminal.MustType(t, "exit 3")
	if code := terminal.MustExit(t); code != 3 {
		t.Errorf("the shell ended with 3, kubectl with %d", code)
	}
}

// AttachTerminal attaches to the shell of TerminalPod, which lives on when kubectl
// is killed.
func AttachTerminal(t *testing.T, k kube.Kubectl) {
	terminal := k.MustStartTerminal(t, 24, 80, "attach", "-it", TerminalPod)
	terminal.MustType(t, "") // the shell has printed its prompt before
	terminal.MustSee(t, "# ")
	mustResize(t, terminal)
}

// mustResize makes a terminal that shows a shell larger. The shell learns of its
// size a moment after kubectl does.
func mustResize(t *testing.T, terminal *kube.Terminal) {
	t.Helper()
	for _, size := range []struct {
		rows, columns uint16
		text          string
	}{{24, 80, "24 80"}, {40, 132, "40 132"}, {10, 20, "10 20"}} {
		terminal.MustResize(t, size.rows, size.columns)
		deadline := time.Now().Add(30 * time.Second)
		for {
			terminal.MustType(t, "stty size")
			if terminal.Sees(size.text, 300*time.Millisecond) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the shell never was %s", size.text)
			}
		}
	}
}

// ExitCodes compares the exit codes of exec with those that direct, a kubectl on
// the apiserver itself, ends with.
func ExitCodes(t *testing.T, k, direct kube.Kubectl) {
	for _, command := range []struct {
		name string
		args []string
	}{
		{"0", []string{"true"}},
		{"1", []string{"false"}},
		{"42", []string{"sh", "-c", "exit 42"}},
		{"255", []string{"sh", "-c", "exit 255"}},
		{"killed", []string{"sh", "-c", "kill -9 $$"}},
		{"no such command", []string{"no-such-command"}},
	} {
		t.Run(command.name, func(t *testing.T) {
			args := append([]string{"exec", Pod, "--"}, command.args...)
			got, want := k.MustEnd(t, args...), direct.MustEnd(t, args...)
			if got.ExitCode != want.ExitCode || got.Stdout != want.Stdout || (got.ExitCode == 0) != (command.name == "0") {
				t.Errorf("through the proxy %+v, directly %+v", got, want)
			}
		})
	}
}

// Debug adds an ephemeral container to the pod, attaches to it, and talks to its
// shell. kubectl ends with its standard input, without waiting for an answer.
func Debug(t *testing.T, k kube.Kubectl) {
	r := k.MustStart(t, "debug", "-i", "pod/"+Pod, "--image=busybox:test", "--image-pull-policy=Never", "--target=main", "--", "sh")
	if _, err := io.WriteString(r.Stdin, "echo from $((6*7))\n"); err != nil {
		t.Fatal(err)
	}
	r.MustLine(t, "from 42")
}
