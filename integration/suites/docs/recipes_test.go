package docs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

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
	kubectl.MustRun(t, "create", "namespace", "front-proxy-ca")
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

// The key of a CA is not where the proxy can read it: an Issuer with a CA in a
// Secret, and the Certificate that it signs, have another namespace than the proxy,
// and what copies the certificate may not read the CA.
func TestRecipesKeepTheCAFromTheProxy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "recipes", "cert-manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type recipe struct {
		Kind     string
		Metadata struct{ Namespace string }
		Spec     struct {
			CA struct{ SecretName string }
		}
		Rules []struct{ ResourceNames, Verbs []string }
	}
	authorities, readable := map[string]bool{}, map[string]bool{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var r recipe
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch r.Kind {
		case "ClusterIssuer":
			t.Error("a ClusterIssuer signs for every namespace")
		case "Issuer", "Certificate":
			if r.Metadata.Namespace == "proxyauth" {
				t.Errorf("the %s is in the namespace of the proxy", r.Kind)
			}
			if name := r.Spec.CA.SecretName; name != "" {
				authorities[name] = true
			}
		case "Role", "ClusterRole":
			for _, rule := range r.Rules {
				if len(rule.ResourceNames) == 0 {
					t.Error("the copy may read every Secret")
				}
				for _, name := range rule.ResourceNames {
					readable[name] = true
				}
			}
		}
	}
	if len(authorities) == 0 || len(readable) == 0 {
		t.Fatalf("CAs %v, readable %v", authorities, readable)
	}
	for name := range authorities {
		if readable[name] {
			t.Errorf("the copy may read the CA %s", name)
		}
	}
}
