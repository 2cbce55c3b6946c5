package serving

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
)

// REC-6: a cluster behind an agent is Reachable Unknown with AgentAbsent, and no
// apiserver is asked whether it answers.
func TestAgentAbsent(t *testing.T) {
	rt := newTestRuntime(newTestProcess())
	c := rt.assemble(&k8swatch.Cluster{
		Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, Enabled: true, Mode: v1.ModePassthrough,
		Target: k8swatch.Target{Kind: k8swatch.TargetAgent, Canonical: "agent:team-a/prod", Host: "kubernetes.default.svc"},
		Ready:  k8swatch.Condition{Type: "Ready", Status: k8swatch.StatusFalse, Reason: k8swatch.ReasonInvalidSpec},
	}, nil)
	defer c.retire(nil)
	want := &k8swatch.Condition{Type: "Reachable", Status: "Unknown", Reason: "AgentAbsent", Message: "no agent is connected"}
	if diff := cmp.Diff(want, c.Trust.Reachable()); diff != "" {
		t.Error(diff)
	}
	if c.Trust.Unsettled() {
		t.Error("an answer is waited for")
	}
	status := status.Build(status.Input{Cluster: c.Spec, Trust: c.Trust.State(), Reachable: c.Trust.Reachable(), Now: time.Now()})
	if status.Exposed {
		t.Error("a cluster without its agent is exposed")
	}
}
