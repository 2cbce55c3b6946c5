package trust

import (
	"sync"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// leaderVerdict remembers the last trust refusal that this replica read from the
// object's status. It is kept when the trust key changes: the status may go on
// showing the refusal of the old certificate for a while, which then is nothing new
// and does not close the gate of the new certificate.
type leaderVerdict struct {
	mu   sync.Mutex
	last string
}

// changed stores a refusal, "" for none, and reports whether it differs from the
// one before.
func (l *leaderVerdict) changed(refusal string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last
	l.last = refusal
	return refusal != before
}

// ReadStatus takes in the status of the object that the leader of an installation
// wrote (TRUST-4). A status that another installation wrote is ignored: that proxy
// has certificates of its own (REC-8).
//
// A new refusal in it closes the gate, so that a replica that does not probe on
// schedule learns what the leader found out. A status never opens a gate: when
// the refusal has gone, this replica probes the apiserver itself.
//
// Call it on replicas that do not lead. A status about another generation of
// the object is ignored.
func (t *Trust) ReadStatus(told *v1.ProxyKubeApiStatus, installation string) {
	if t.leader == nil || told == nil || told.ObservedBy != installation || told.ObservedGeneration != t.spec.Generation {
		return
	}
	refused, ok := status.TrustRefusal(told)
	refusal := ""
	if ok {
		refusal = refused.Reason + " " + readySince(told)
	}
	if !t.leader.changed(refusal) {
		return
	}
	if !ok {
		if t.guard.Refused() {
			t.guard.Reprobe()
		}
		return
	}
	switch frontProxy := t.spec.Mode == v1.ModeFrontProxy && t.gateIsCurrent(); {
	case frontProxy && refused.Reason == k8swatch.ReasonFrontProxyNotTrusted:
		t.frontProxy.Refuse(frontProxyVerdict{Trust: v1.TrustRejected, Message: refused.Message})
	case frontProxy && refused.Reason == k8swatch.ReasonUpstreamIdentityNotHonoured:
		t.frontProxy.Refuse(frontProxyVerdict{Trust: v1.TrustNotHonoured, Message: refused.Message})
	case t.spec.ClientCert != nil && t.clientCert != nil && refused.Reason == k8swatch.ReasonClientCertIsIdentity:
		t.clientCert.Refuse(clientCertVerdict{Seen: probe.SeenIdentity, Message: refused.Message})
	}
}

// readySince is when Ready last changed its status: it tells a new refusal from
// the same one written again.
func readySince(told *v1.ProxyKubeApiStatus) string {
	for _, condition := range told.Conditions {
		if condition.Type == k8swatch.ConditionReady {
			return condition.LastTransitionTime.UTC().String()
		}
	}
	return ""
}
