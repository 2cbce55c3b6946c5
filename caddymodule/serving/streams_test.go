package serving

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// STREAM-1: which clusters keep their streams when a snapshot is swapped in, and
// that only the runtime in force decides.
func TestEndMissing(t *testing.T) {
	spec := func(name, target string) *k8swatch.Cluster {
		return &k8swatch.Cluster{
			Key: k8swatch.Key{Namespace: "team-a", Name: name}, Enabled: true, Target: k8swatch.Target{Canonical: target},
		}
	}
	keyOfStays := k8swatch.Key{Namespace: "team-a", Name: "stays"}
	p := newTestProcess()
	rt, other := newTestRuntime(p).serve(), newTestRuntime(p)
	for _, name := range []string{"stays", "moves", "disabled", "deleted"} {
		p.streams.groupOf(spec(name, "before"))
	}
	if p.streams.groupOf(&k8swatch.Cluster{}) != nil {
		t.Error("a disabled cluster has streams")
	}
	stays := p.streams.groupOf(spec("stays", "before"))
	disabled := spec("disabled", "before")
	disabled.Enabled = false
	clusters := []*Cluster{{Spec: spec("stays", "before")}, {Spec: spec("moves", "after")}, {Spec: disabled}}
	groups := func() int { return len(p.streams.groups) }

	if p.streams.endMissing(rt); groups() != 4 {
		t.Error("a runtime without a snapshot ended streams")
	}
	other.put()
	if p.streams.endMissing(other); groups() != 4 || p.streams.detach(other, keyOfStays) != nil {
		t.Error("a runtime that is not in force ended streams")
	}
	rt.put(clusters...)
	if p.streams.endMissing(rt); groups() != 1 || p.streams.groupOf(spec("stays", "before")) != stays {
		t.Errorf("%d groups are left", groups())
	}
	if detached := p.streams.detach(rt, keyOfStays); len(detached) != 1 || detached[0] != stays || groups() != 0 {
		t.Errorf("detached %v", detached)
	}
	if p.streams.groupOf(spec("stays", "before")) == stays {
		t.Error("a group that was detached is used again")
	}
}
