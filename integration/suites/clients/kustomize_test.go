//go:build long

package clients

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// testKustomize applies an overlay as kubectl builds it and as kustomize does.
func testKustomize(t *testing.T, a access) {
	overlay := testdata(t, "kustomize", "overlay")
	const object = "service/web-overlay"
	for _, build := range []struct {
		name      string
		manifests func() string
	}{
		{"kubectl kustomize", func() string { return a.MustRun(t, "kustomize", overlay).Stdout }},
		{"kustomize build", func() string { return a.with(realtools.Kustomize).MustRun(t, "build", overlay).Stdout }},
	} {
		manifests := build.manifests()
		a.apply(t, manifests)
		out := a.MustRun(t, "get", object, "--output=jsonpath={.spec.ports[0].port} {.metadata.labels.from}").Stdout
		if out != "8080 overlay" {
			t.Errorf("%s: the Service has %q", build.name, out)
		}
		out = a.MustRun(t, "get", "configmaps", "--selector=from=overlay", "--output=jsonpath={.items[*].data.text}").Stdout
		if out != "overlay" {
			t.Errorf("%s: the ConfigMap has %q", build.name, out)
		}
		k := a.Kubectl
		k.Stdin = []byte(manifests)
		// The exit code of a difference is 1.
		if r := k.MustEnd(t, "diff", "-f", "-"); r.ExitCode != 0 {
			t.Errorf("%s: not what was applied: %+v", build.name, r)
		}
		k.MustRun(t, "apply", "--server-side", "--force-conflicts", "-f", "-")
		k.MustRun(t, "delete", "-f", "-")
	}
	a.MustRun(t, "apply", "-k", overlay)
	if r := a.MustEnd(t, "diff", "-k", overlay); r.ExitCode != 0 {
		t.Errorf("kubectl apply -k: not what was applied: %+v", r)
	}
	a.MustRun(t, "delete", "-k", overlay)
}
