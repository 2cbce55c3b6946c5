//go:build long

package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// pythonClient belongs to Debian's interpreter, and to no other in PATH.
var pythonClient = realtools.DebianPackage{
	Name: "python3-kubernetes", File: "/usr/lib/python3/dist-packages/kubernetes/__init__.py",
}

func testPython(t *testing.T, a access) {
	if err := realtools.Debian(t.Context(), nil, pythonClient); err != nil {
		t.Fatal(err)
	}
	mustReport(t, a, "python", "/usr/bin/python3", testdata(t, "python", "client.py"), a.namespace)
}

func testJavaScript(t *testing.T, a access) {
	modules, err := realtools.NodeModules(t.Context(), testdata(t, "javascript"), nil)
	if err != nil {
		t.Fatal(err)
	}
	interpreter, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	// A script finds its packages beside itself.
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(testdata(t, "javascript", "client.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "client.mjs")
	if err := os.WriteFile(file, script, 0o644); err != nil {
		t.Fatal(err)
	}
	mustReport(t, a, "javascript", interpreter, file, a.namespace)
}

// report is what one step of a script came to.
type report struct {
	Step   string `json:"step"`
	Result any    `json:"result"`
}

// mustReport runs a script to its end, whose steps must come to what
// testdata/<name>/want.json says.
func mustReport(t *testing.T, a access, name, interpreter string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, args...)
	cmd.Dir = a.Home
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + a.Home, "TMPDIR=" + a.Home, "LANG=C.UTF-8",
		"KUBECONFIG=" + a.Kubeconfig, "PYTHONDONTWRITEBYTECODE=1",
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := a.Namespaces.Do(cmd.Run); err != nil {
		t.Errorf("running %s: %v: %s", name, err, stderr.String())
	}
	var got, want []report
	for decoder := json.NewDecoder(&stdout); decoder.More(); {
		var r report
		if err := decoder.Decode(&r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	content, err := os.ReadFile(testdata(t, name, "want.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps of %s (-want +got):\n%s", name, diff)
	}
}
