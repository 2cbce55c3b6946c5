//go:build xcaddy

package xcaddybuild

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// module is what xcaddy is asked to add; it need not be published, since
// --replace says where it is.
const module = "github.com/proxyauthk8s/caddy-proxyauthk8s"

// CONF-7: xcaddy builds a server with the same modules, from the same versions
// of everything, as `make build`.
func TestXCaddy(t *testing.T) {
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(t.TempDir(), "caddy")
	run(t, environment(t), realtools.Need(t, realtools.XCaddy),
		"build", "v2.11.9", "--with", module+"/caddymodule", "--replace", module+"="+root, "--output", built)
	plain, err := proxy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	want := modules(t, plain)
	if diff := cmp.Diff(want, modules(t, built)); diff != "" {
		t.Errorf("modules of the server that xcaddy built (-want +got):\n%s", diff)
	}
	for _, id := range []string{
		"proxyauth", "http.handlers.proxyauth", "http.handlers.proxyauth_health",
		"http.reverse_proxy.transport.proxyauth", "http.reverse_proxy.upstreams.proxyauth", "admin.api.proxyauth",
		"tls.get_certificate.proxyauth", "caddy.storage.proxyauth",
	} {
		if !slices.Contains(want, id) {
			t.Errorf("module %s is missing", id)
		}
	}
	// By its build tags xcaddy leaves out three databases that nothing here uses.
	wantVersions, gotVersions := versions(t, plain), versions(t, built)
	if gotVersions["github.com/caddyserver/caddy/v2"] == "" || len(gotVersions) < 100 {
		t.Errorf("built from %v", gotVersions)
	}
	for path, version := range gotVersions {
		if version != wantVersions[path] {
			t.Errorf("xcaddy built from %s %s, make build from %q", path, version, wantVersions[path])
		}
	}
	if out := run(t, nil, built, "proxyauth", "--help"); !strings.Contains(out, "status") {
		t.Errorf("caddy proxyauth --help:\n%s", out)
	}
}

// environment has xcaddy take modules from the cache of this machine, and from
// the module proxy only what that lacks: xcaddy looks at more go.mod files than
// other builds here do. A second run needs no network.
//
// xcaddy builds with -trimpath, as make build does: packages which that compiled
// before need not be compiled again.
func environment(t *testing.T) []string {
	t.Helper()
	cache := strings.TrimSpace(run(t, nil, "go", "env", "GOMODCACHE"))
	proxies := strings.TrimSpace(run(t, nil, "go", "env", "GOPROXY"))
	return append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(cache)+"/cache/download,"+proxies,
		// The temporary module has no go.sum, and the checksums of what is in
		// the cache were verified when it came there.
		"GOSUMDB=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOWORK=off",
		"CGO_ENABLED=0",
	)
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = t.TempDir(), env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", filepath.Base(name), args, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// modules lists the Caddy modules of a server.
func modules(t *testing.T, caddy string) []string {
	t.Helper()
	var list []string
	for line := range strings.Lines(run(t, nil, caddy, "list-modules")) {
		// What begins with a space counts modules.
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, " ") {
			list = append(list, line)
		}
	}
	return list
}

// versions lists the Go modules that a server was built from, without ours.
func versions(t *testing.T, caddy string) map[string]string {
	t.Helper()
	info, err := buildinfo.ReadFile(caddy)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"go": info.GoVersion}
	for _, dep := range info.Deps {
		if dep.Path != module {
			all[dep.Path] = dep.Version
		}
	}
	return all
}
