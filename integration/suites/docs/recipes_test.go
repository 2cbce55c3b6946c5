package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/schemas"
)

// Each recipe is accepted by a real apiserver that has the definitions of the
// operators it is for, and no field of it is unknown to them.
func TestRecipes(t *testing.T) {
	t.Parallel()
	hub := kube.Start(t, kube.Options{})
	schemas.Install(t, hub)
	kubectl := hub.Kubectl(t, "")
	kubectl.MustRun(t, "create", "namespace", "proxyauth")
	apply := func(t *testing.T, text []byte) kube.Result {
		t.Helper()
		k := kubectl
		k.Stdin = text
		return k.MustEnd(t, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	}

	files, err := filepath.Glob(filepath.Join(repository(t), "docs", "recipes", "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d recipes, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if r := apply(t, text); r.ExitCode != 0 {
				t.Errorf("%s%s", r.Stdout, r.Stderr)
			}
			// The same with a field that no schema has is refused.
			wrong := strings.Replace(string(text), "\nspec:\n", "\nspec:\n  notAField: 1\n", 1)
			if r := apply(t, []byte(wrong)); r.ExitCode == 0 || !strings.Contains(r.Stderr, "notAField") {
				t.Errorf("with an unknown field: exit code %d\n%s%s", r.ExitCode, r.Stdout, r.Stderr)
			}
		})
	}
}
