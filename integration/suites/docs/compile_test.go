package docs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
)

// wantReady is the Ready of an object of the documentation in a directory that
// holds it with the CAs of the apiservers and nothing else. Every reason that
// says something about the object itself comes before these.
var wantReady = map[v1.UpstreamMode]string{
	v1.ModePassthrough: k8swatch.ReasonServing,
	v1.ModeFrontProxy:  k8swatch.ReasonClientCertMissing,
}

// compileManifest gives a manifest to the source and the compiler that the proxy has,
// admission included, and returns what its objects amount to.
func compileManifest(t *testing.T, manifest string) []*k8swatch.Cluster {
	t.Helper()
	dir := t.TempDir()
	authority := strings.ReplaceAll("\n"+string(pki.MustCA("apiserver-ca").PEM), "\n", "\n    ")
	for name, text := range map[string]string{
		"objects.yaml": manifest,
		"prod.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prod-ca, namespace: team-a}\ndata:\n  ca.crt: |" + authority,
		"staging.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: staging-ca, namespace: team-a}\ndata:\n  ca.crt: |" + authority,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := directory.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	first, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- source.Run(ctx, func(...k8swatch.Change) {
			select {
			case first <- struct{}{}:
			default:
			}
		})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-first:
	case <-time.After(time.Minute):
		t.Fatal("the directory is not read")
	}

	compiler := compile.New(compile.Options{
		Namespace:    "proxyauth",
		AllowedModes: []v1.UpstreamMode{v1.ModePassthrough, v1.ModeFrontProxy},
		Revalidate:   validator.Revalidate,
	})
	var clusters []*k8swatch.Cluster
	for _, key := range source.Keys() {
		c, _ := compiler.Compile(source, key, compile.Carried{})
		clusters = append(clusters, c)
	}
	return clusters
}

// notReady are the objects of a manifest that would not serve where its page
// puts them.
func notReady(t *testing.T, manifest string) (objects int, problems []string) {
	t.Helper()
	for _, c := range compileManifest(t, manifest) {
		objects++
		if want := wantReady[c.Mode]; c.Ready.Reason != want {
			problems = append(problems, c.Key.String()+" is "+c.Ready.Reason+", not "+want+": "+c.Ready.Message)
		}
	}
	return objects, problems
}

// Each manifest of docs/idp is complete and has a page, which leads to it.
func TestIdentityProviders(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(repository(t), "docs", "idp", "*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d manifests, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			manifest, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, problems := notReady(t, string(manifest))
			for _, p := range problems {
				t.Error(p)
			}
			if want := strings.Count(string(manifest), "\nkind: ProxyKubeApi\n"); objects != want || want == 0 {
				t.Errorf("%d objects of %d were read", objects, want)
			}
			page, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".md")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(page), "]("+filepath.Base(file)+")") {
				t.Error("its page has no link to it")
			}
		})
	}
}

// What is wrong with a manifest must not pass.
func TestIdentityProvidersCanFail(t *testing.T) {
	t.Parallel()
	file := filepath.Join(repository(t), "docs", "idp", "gitlab.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ what, from, to string }{
		{"CEL that does not compile", "claims.namespace_id == '72'", "claims.namespace_id =="},
		{"a field that there is not", "claim_mappings:", "claim_mapping:"},
		{"a mode without its prefix", `user_prefix: "proxyauth:"`, `user_prefix: ""`},
		{"a reference to nothing", "name: staging-ca,", "name: stagging-ca,"},
	} {
		wrong := strings.Replace(string(text), change.from, change.to, 1)
		if wrong == string(text) {
			t.Errorf("%s: %q is not in the manifest", change.what, change.from)
		}
		if _, problems := notReady(t, wrong); len(problems) != 1 {
			t.Errorf("%s: %q", change.what, problems)
		}
	}
}
