//go:build long

package clients

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// testK9s looks at pods, follows a log and opens a shell, in a terminal.
func testK9s(t *testing.T, a access) {
	s := startTerminal(t, a, realtools.Need(t, realtools.K9s), "--namespace", a.namespace, "--command", "pods", "--logoless", "--splashless")
	s.mustShow(t, `\bone\b.*Running`)
	s.mustShow(t, `\btwo\b.*Running`)

	// The first pod is selected.
	s.press(t, "l")
	s.mustShow(t, `one tick \d+`)
	s.mustFollow(t)
	s.press(t, "Escape")
	s.mustShow(t, `\btwo\b.*Running`)

	s.press(t, "s")
	s.mustShow(t, `/ #`)
	s.press(t, "echo $(hostname) $((6*7))", "Enter")
	s.mustShow(t, `one 42`)
	s.press(t, "exit", "Enter")
	s.mustShow(t, `\btwo\b.*Running`)
}

// terminal is a program in a terminal of tmux.
type terminal struct {
	a      access
	socket string
	env    []string
}

func startTerminal(t *testing.T, a access, program string, args ...string) *terminal {
	t.Helper()
	if err := realtools.Debian(t.Context(), nil, realtools.DebianPackage{Name: "tmux", File: "tmux"}); err != nil {
		t.Fatal(err)
	}
	// A socket's path is short. k9s runs kubectl by that name.
	dir, err := os.MkdirTemp("", "terminal")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Symlink(realtools.Need(t, realtools.Kubectl), filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	s := &terminal{a: a, socket: filepath.Join(dir, "socket"), env: []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + a.Home, "LANG=C.UTF-8", "SHELL=/bin/sh", "TERM=xterm-256color",
		"KUBECONFIG=" + a.Kubeconfig,
	}}
	s.tmux(t, append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "40", program}, args...)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen:\n%s", s.screen(t))
		}
		s.tmux(t, "kill-server")
	})
	return s
}

// tmux runs a command of tmux and returns its output.
func (s *terminal) tmux(t *testing.T, args ...string) string {
	t.Helper()
	// Cleanups come here when the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-S", s.socket}, args...)...)
	cmd.Dir, cmd.Env = s.a.Home, s.env
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := s.a.Namespaces.Do(cmd.Run); err != nil {
		t.Errorf("running tmux %q: %v: %s", args, err, output.String())
	}
	return output.String()
}

// press sends texts and keys, by tmux's names.
func (s *terminal) press(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		s.tmux(t, "send-keys", key)
	}
}

func (s *terminal) screen(t *testing.T) string {
	t.Helper()
	return s.tmux(t, "capture-pane", "-p")
}

// mustShow waits until a line of the screen matches.
func (s *terminal) mustShow(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if line.MatchString(s.screen(t)) {
			return
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Fatalf("the screen does not show %s", pattern)
}

var tick = regexp.MustCompile(`one tick \d+`)

// mustFollow waits until the log on the screen has ended in five lines, one after
// the other: what was written before comes at once.
func (s *terminal) mustFollow(t *testing.T) {
	t.Helper()
	last := map[string]bool{}
	for deadline := time.Now().Add(time.Minute); len(last) < 5; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the screen does not follow the log, which has ended in %v", last)
		}
		if lines := tick.FindAllString(s.screen(t), -1); len(lines) > 0 {
			last[lines[len(lines)-1]] = true
		}
	}
}
