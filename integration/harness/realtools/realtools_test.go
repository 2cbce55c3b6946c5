package realtools

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestPlans(t *testing.T) {
	t.Setenv("PROXYAUTH_CACHE", t.TempDir())
	seen := map[string]bool{}
	for _, tool := range append(All(), OnlyNamed()...) {
		p, err := newPlan(tool)
		if err != nil {
			t.Fatalf("planning %s: %v", tool.Name, err)
		}
		if !strings.HasPrefix(filepath.Base(p.file), tool.Name+"-v") {
			t.Errorf("%s is kept as %s", tool.Name, p.file)
		}
		if seen[p.file] {
			t.Errorf("%s shares its file with another tool", tool.Name)
		}
		seen[p.file] = true
		if p.done() {
			t.Errorf("%s is in an empty cache", tool.Name)
		}
	}
}

func TestStamp(t *testing.T) {
	want := " -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
	if got := stamp("v1.37.2"); got != want {
		t.Errorf("stamp = %q", got)
	}
}

func TestCacheDir(t *testing.T) {
	dir := t.TempDir()
	tests := []struct{ name, cache, xdg, home, want string }{
		{"own variable wins", dir + "/a", dir + "/b", dir + "/c", dir + "/a"},
		{"XDG next", "", dir + "/b", dir + "/c", dir + "/b/proxyauthk8s"},
		{"home last", "", "", dir + "/c", dir + "/c/.cache/proxyauthk8s"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PROXYAUTH_CACHE", tc.cache)
			t.Setenv("XDG_CACHE_HOME", tc.xdg)
			t.Setenv("HOME", tc.home)
			got, err := CacheDir()
			if err != nil || got != tc.want {
				t.Fatalf("CacheDir = %q, %v; want %q", got, err, tc.want)
			}
			if _, err := os.Stat(got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			unlock, err := lock(t.Context(), path, func(time.Duration) {})
			if err != nil {
				t.Error(err)
				return
			}
			if !mu.TryLock() {
				t.Error("two holders of the lock")
			} else {
				time.Sleep(5 * time.Millisecond)
				mu.Unlock()
			}
			unlock()
		})
	}
	wg.Wait()

	unlock, err := lock(t.Context(), path, func(time.Duration) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path, func(time.Duration) {}); err == nil {
		t.Error("a held lock was taken")
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	t.Setenv("PROXYAUTH_CACHE", t.TempDir())
	bad := Staticcheck
	bad.Package = "honnef.co/go/tools/cmd/no-such-program"
	var log bytes.Buffer
	if _, err := Path(t.Context(), bad, &log); err == nil {
		t.Fatal("a program that does not exist was built")
	}
	left, _ := filepath.Glob(filepath.Join(os.Getenv("PROXYAUTH_CACHE"), "*"))
	if len(left) != 1 || !strings.HasSuffix(left[0], ".lock") {
		t.Errorf("left behind: %q", left)
	}
	if !strings.Contains(log.String(), "building staticcheck v") {
		t.Errorf("progress: %q", log.String())
	}
}

func TestTrimMajor(t *testing.T) {
	for pkg, want := range map[string]string{"go.etcd.io/etcd/server/v3": "go.etcd.io/etcd/server", "k8s.io/kubernetes/cmd/kubectl": "k8s.io/kubernetes/cmd/kubectl", "a/v": "a/v", "a/vim": "a/vim"} {
		if got := trimMajor(pkg); got != want {
			t.Errorf("%s: %s", pkg, got)
		}
	}
}

func TestRepoRoot(t *testing.T) {
	want, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := RepoRoot(); err != nil || got != want {
		t.Errorf("below the repository: %s, %v", got, err)
	}
	t.Chdir(t.TempDir())
	if got, err := RepoRoot(); err == nil {
		t.Errorf("elsewhere: %s", got)
	}
}

// A changed source beside the go.mod gives another file.
func TestOwnSource(t *testing.T) {
	dir := t.TempDir()
	if own, err := ownSource(dir); err != nil || own != nil {
		t.Errorf("without Go code: %q, %v", own, err)
	}
	for name, content := range map[string]string{"main.go": "package main", "go.mod": "module m"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if own, err := ownSource(dir); err != nil || len(own) != 1 || own[0] != "package main" {
		t.Errorf("with it: %q, %v", own, err)
	}
	if digest([]string{"ab", "c"}) == digest([]string{"a", "bc"}) {
		t.Error("parts run together")
	}
}
