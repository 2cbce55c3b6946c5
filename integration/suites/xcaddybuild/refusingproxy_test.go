//go:build xcaddy

package xcaddybuild

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// The README's GOPROXY ends in |off: with it a module proxy that refuses the path
// of this module, as some of companies do, does not stop xcaddy. `go get` is the
// step of xcaddy that asks the proxy.
func TestModuleProxyThatRefuses(t *testing.T) {
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	const setting = `"$(go env GOPROXY | cut -d, -f1)|off"`
	if !strings.Contains(string(readme), "GOPROXY="+setting+" \\\n  xcaddy build ") {
		t.Error("the README shows another command")
	}
	cache := filepath.Join(strings.TrimSpace(run(t, nil, "go", "env", "GOMODCACHE")), "cache", "download")
	files := http.FileServer(http.Dir(cache))
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "proxyauthk8s") {
			http.Error(w, "refused", http.StatusForbidden)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	ofReadme := strings.TrimSpace(run(t, append(os.Environ(), "GOPROXY="+proxy.URL+",direct"), "sh", "-c", "printf %s "+setting))
	if ofReadme != proxy.URL+"|off" {
		t.Errorf("the README's GOPROXY is %s", ofReadme)
	}
	for goproxy, want := range map[string]bool{proxy.URL: false, ofReadme: true} {
		dir := t.TempDir()
		for _, args := range [][]string{{"mod", "init", "caddy"}, {"mod", "edit", "-replace", module + "=" + root}, {"get", module + "/caddymodule"}} {
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOPROXY="+goproxy, "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOWORK=off")
			out, err := cmd.CombinedOutput()
			if ok := err == nil; args[0] == "get" && ok != want {
				t.Errorf("GOPROXY=%s: %v\n%s", goproxy, err, out)
			} else if args[0] == "mod" && !ok {
				t.Fatalf("go %q: %v\n%s", args, err, out)
			}
		}
	}
}
