package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// limit bounds what a test waits for, on a loaded machine too.
const limit = 3 * time.Minute

// running is the demo as a program, as `make demo` runs it.
type running struct {
	cmd *exec.Cmd
	tmp string // its TMPDIR

	mu  sync.Mutex
	out bytes.Buffer
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *running) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "demo-test-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "demo")
	output, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput()
	if err != nil {
		return "", errors.New(string(output))
	}
	return file, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

func start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	r := &running{cmd: exec.CommandContext(ctx, file, args...), tmp: t.TempDir()}
	r.cmd.Env = append(append(os.Environ(), "TMPDIR="+r.tmp), env...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// mustEnd waits for the exit code, and looks whether anything is left.
func (r *running) mustEnd(t *testing.T, code int) {
	t.Helper()
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d, want %d:\n%s", got, code, r.output())
	}
	left, err := os.ReadDir(r.tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range left {
		t.Errorf("left behind: %s", file.Name())
	}
	for _, process := range r.processes(t) {
		t.Errorf("still running: %q", process)
	}
}

// processes are those that work in the demo's folder: all it starts.
func (r *running) processes(t *testing.T) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		// A process may be gone by now, or be another user's.
		if dir, err := os.Readlink(link); err == nil && strings.HasPrefix(dir, r.tmp) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// mustRun waits until that many processes run.
func (r *running) mustRun(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for len(r.processes(t)) < n {
		if time.Now().After(deadline) {
			t.Fatalf("only these run: %q\n%s", r.processes(t), r.output())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// mustSay waits until the demo has said something.
func (r *running) mustSay(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !strings.Contains(r.output(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not say %q:\n%s", text, r.output())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// CONF-7: DEMO=once ends with 0 after its checks.
func TestOnce(t *testing.T) {
	r := start(t, nil, "-once")
	r.mustEnd(t, 0)
	for _, want := range []string{
		"proxyauth:alice", "[proxyauth:team-a proxyauth:a,b system:authenticated]", // whoami
		"Pending",            // get pods -A
		`"proxyauth:élodie"`, // the refusal
		"Trusted",            // proxyauth status
		"All checks passed.",
	} {
		if !strings.Contains(r.output(), want) {
			t.Errorf("it does not say %q:\n%s", want, r.output())
		}
	}
}

// What the demo suggests works, and SIGTERM ends it cleanly.
func TestUp(t *testing.T) {
	r := start(t, nil)
	r.mustSay(t, "Ctrl-C ends everything")
	r.mustRun(t, 3) // etcd, kube-apiserver, caddy
	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindStringSubmatch(r.output())[1]
	cluster := regexp.MustCompile(`\S+/cluster\.yaml`).FindString(r.output())
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"token:", "key-data", "password"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("the kubeconfig holds a secret:\n%s", content)
		}
	}
	manifest, err := os.ReadFile(cluster)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.ReplaceAll(manifest, []byte(`user_prefix: "proxyauth:"`), []byte(`user_prefix: "people:"`))
	if err := os.WriteFile(cluster, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := kube.Kubectl{Kubeconfig: kubeconfig, Home: filepath.Join(t.TempDir(), "home")}
	deadline := time.Now().Add(limit)
	for {
		result := kubectl.MustEnd(t, "auth", "whoami")
		if strings.Contains(result.Stdout, "people:alice") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the change of the prefix is not seen: %+v", result)
		}
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.mustEnd(t, 0)
}

// Ctrl-C in the middle of the start leaves nothing.
func TestInterruptedStart(t *testing.T) {
	r := start(t, nil)
	r.mustRun(t, 2)
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r.mustEnd(t, exitInterrupted)
}

// A step that fails makes the exit code, and leaves nothing.
func TestFailedCheck(t *testing.T) {
	cache := t.TempDir()
	for _, tool := range []realtools.Tool{realtools.Etcd, realtools.KubeAPIServer, realtools.Kubectl} {
		file := realtools.Need(t, tool)
		if err := os.Symlink(file, filepath.Join(cache, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
	}
	// A kubectl that sees no pods.
	kubectl := realtools.Need(t, realtools.Kubectl)
	script := "#!/bin/sh\ncase \"$*\" in *'get pods'*) exit 0;; esac\nexec " + kubectl + " \"$@\"\n"
	file := filepath.Join(cache, filepath.Base(kubectl))
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte(script), 0o755)); err != nil {
		t.Fatal(err)
	}
	r := start(t, []string{"PROXYAUTH_CACHE=" + cache}, "-once")
	r.mustEnd(t, 1)
	if !strings.Contains(r.output(), "FAILED: kubectl get pods -A") {
		t.Errorf("%s", r.output())
	}
}
