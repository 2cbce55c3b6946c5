package compile

import (
	"slices"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// REC-1: a change concerns the objects that read what changed, there or not,
// and no others.
func TestAffectedByWhatWasRead(t *testing.T) {
	b := newBench(t)
	secret := k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: "team-a", Name: "ca"}
	names := func(name string) {
		b.put(k8stest.Object(func(s *v1.ProxyKubeApiSpec) {
			s.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: "ca.crt"}}
		}))
		b.compile()
	}
	names("ca")
	if got := b.affected(secret); !slices.Equal(got, []k8swatch.Key{k8stest.Key}) {
		t.Errorf("a Secret that is missing: %v", got)
	}
	if got := b.affected(k8swatch.Change{Kind: k8swatch.KindConfigMap, Namespace: "team-a", Name: "ca"}); len(got) != 0 {
		t.Errorf("a ConfigMap of that name: %v", got)
	}
	if got := b.affected(k8swatch.Change{Kind: k8swatch.KindProxyKubeApi, Namespace: "team-b", Name: "new"}); !slices.Equal(got, []k8swatch.Key{{Namespace: "team-b", Name: "new"}}) {
		t.Errorf("an object: %v", got)
	}
	names("other")
	if got := b.affected(secret); len(got) != 0 {
		t.Errorf("no longer named: %v", got)
	}
	b.forget()
	if got := b.affected(k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: "team-a", Name: "other"}); len(got) != 0 {
		t.Errorf("forgotten: %v", got)
	}
}
