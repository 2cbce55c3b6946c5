package k8swatch

import (
	"slices"
	"testing"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-1: a change concerns the objects that read what changed, there or not,
// and no others.
func TestAffectedByWhatWasRead(t *testing.T) {
	b := newBench(t)
	secret := Change{KindSecret, "team-a", "ca"}
	names := func(name string) {
		b.put(object(func(s *v1.ProxyKubeApiSpec) {
			s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "ca.crt"}}
		}))
		b.compile()
	}
	names("ca")
	if got := b.Compiler.Affected(secret); !slices.Equal(got, []Key{testKey}) {
		t.Errorf("a Secret that is missing: %v", got)
	}
	if got := b.Compiler.Affected(Change{KindConfigMap, "team-a", "ca"}); len(got) != 0 {
		t.Errorf("a ConfigMap of that name: %v", got)
	}
	if got := b.Compiler.Affected(Change{KindProxyKubeApi, "team-b", "new"}); !slices.Equal(got, []Key{{Namespace: "team-b", Name: "new"}}) {
		t.Errorf("an object: %v", got)
	}
	names("other")
	if got := b.Compiler.Affected(secret); len(got) != 0 {
		t.Errorf("no longer named: %v", got)
	}
	b.Compiler.Forget(testKey)
	if got := b.Compiler.readers; len(got) != 0 {
		t.Errorf("forgotten, and still there: %v", got)
	}
}
