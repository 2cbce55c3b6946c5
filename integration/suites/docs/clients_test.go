package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// The page about clients has the versions that the tests run.
func TestClientVersions(t *testing.T) {
	t.Parallel()
	root := repository(t)
	page := read(t, filepath.Join(root, "docs", "clients.md"))
	rows := map[string]string{ // by version, the program of its line
		clientNode(t, root):                                                "@kubernetes/client-node",
		pinned(t, root, "helm", "helm.sh/helm/v3"):                         "[helm]",
		pinned(t, root, "kustomize", "sigs.k8s.io/kustomize/kustomize/v5"): "[kustomize]",
		pinned(t, root, "kubernetes", "k8s.io/kubernetes"):                 "[kustomize]",
		pinned(t, root, "stern", "github.com/stern/stern"):                 "[stern]",
		pinned(t, root, "k9s", "github.com/derailed/k9s"):                  "[k9s]",
		pinned(t, root, "manager", "sigs.k8s.io/controller-runtime"):       "[controller-runtime]",
		pinned(t, root, "kubectl-1.29", "k8s.io/kubernetes"):               "kubectl,",
	}
	for version, name := range rows {
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.Contains(line, name) && strings.Contains(line, version)
		}
		if !found {
			t.Errorf("no line has %s and %s", name, version)
		}
	}
}

// pinned is the version of a module in integration/tools/<dir>/go.mod.
func pinned(t *testing.T, root, dir, module string) string {
	t.Helper()
	file := filepath.Join(root, "integration", "tools", dir, "go.mod")
	f, err := modfile.ParseLax(file, []byte(read(t, file)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Require {
		if r.Mod.Path == module {
			return r.Mod.Version
		}
	}
	t.Fatalf("%s does not require %s", file, module)
	return ""
}

func clientNode(t *testing.T, root string) string {
	t.Helper()
	var pins struct{ Dependencies map[string]string }
	file := filepath.Join(root, "integration", "suites", "clients", "testdata", "javascript", "package.json")
	if err := json.Unmarshal([]byte(read(t, file)), &pins); err != nil {
		t.Fatal(err)
	}
	return pins.Dependencies["@kubernetes/client-node"]
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
