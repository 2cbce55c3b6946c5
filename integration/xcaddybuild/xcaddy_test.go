//go:build xcaddy

package xcaddybuild

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/realtools"
)

// module is what xcaddy is asked to add; it need not be published, since
// --replace says where it is.
const module = "github.com/proxyauthk8s/caddy-proxyauthk8s"

// CONF-7: xcaddy build makes a server with the same modules.
func TestXCaddyBuild(t *testing.T) {
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	xcaddy := realtools.Need(t, realtools.XCaddy)
	built := filepath.Join(t.TempDir(), "caddy")
	cmd := exec.Command(xcaddy, "build", "v2.11.9", "--with", module+"/caddymodule", "--replace", module+"="+root, "--output", built)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOPROXY="+modules(t), "GOSUMDB=off", "GOTOOLCHAIN=local",
		// Without -trimpath, xcaddy's default, what was compiled for the other
		// tests serves here too.
		"XCADDY_GO_BUILD_FLAGS=-ldflags=-w")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("xcaddy build: %v\n%s", err, out)
	}
	want := ours(t, plain(t, root))
	got := ours(t, built)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("xcaddy's server has the modules %v, want %v", got, want)
	}
}

// modules is the module cache as a proxy, and behind it the proxies that are
// configured. xcaddy resolves versions anew and needs a few go.mod files that
// the build of the module itself does not; it must not look for this module's
// own path anywhere but in the replacement, so version control is left out.
func modules(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, configured, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	proxies := []string{"file://" + filepath.ToSlash(cache) + "/cache/download"}
	for _, proxy := range strings.FieldsFunc(configured, func(r rune) bool { return r == ',' || r == '|' }) {
		if proxy != "direct" && proxy != "off" {
			proxies = append(proxies, proxy)
		}
	}
	return strings.Join(proxies, ",")
}

// plain is the server as make build makes it.
func plain(t *testing.T, root string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "caddy")
	cmd := exec.Command("go", "build", "-o", file, "./xcaddy")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

// ours lists the modules of this project in a server.
func ours(t *testing.T, caddy string) []string {
	t.Helper()
	out, err := exec.Command(caddy, "list-modules").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, line := range strings.Fields(string(out)) {
		if strings.Contains(line, "proxyauth") {
			list = append(list, line)
		}
	}
	return list
}
