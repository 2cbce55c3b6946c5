package caddymodule

import (
	"sync"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// hearsay remembers which refusal the status of an object told last. It
// outlives sets: an old word is no news for a new one.
type hearsay struct {
	mu   sync.Mutex
	last string
}

// news takes note of a word and reports whether it is another than the last.
func (h *hearsay) news(word string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.last
	h.last = word
	return word != before
}

// heed takes in the status of the object as others wrote it (TRUST-4): a refusal
// that was not there before closes the cluster on this replica as its own would,
// so that one that does not probe on schedule learns what the leader found out.
// Nothing in a status opens: when the refusal has gone the apiserver is asked,
// and only its answer does.
//
// It is for replicas that do not lead; the leader would hear its own word late.
// A status about another generation of the object says nothing.
func (c *cluster) heed(told *v1.ProxyKubeApiStatus) {
	if c.heard == nil || told == nil || told.ObservedGeneration != c.spec.Generation {
		return
	}
	refused, ok := status.TrustRefusal(told)
	word := ""
	if ok {
		word = refused.Reason + " " + readySince(told)
	}
	if !c.heard.news(word) {
		return
	}
	if !ok {
		if c.entrance.Refused() {
			c.entrance.Recheck()
		}
		return
	}
	switch frontProxy := c.spec.Mode == v1.ModeFrontProxy && c.gated(); {
	case frontProxy && refused.Reason == k8swatch.ReasonFrontProxyNotTrusted:
		c.gate.Refuse(probe.Verdict{Trust: v1.TrustRejected, Message: refused.Message})
	case frontProxy && refused.Reason == k8swatch.ReasonUpstreamIdentityNotHonoured:
		c.gate.Refuse(probe.Verdict{Trust: v1.TrustNotHonoured, Message: refused.Message})
	case c.spec.ClientCert != nil && c.certGate != nil && refused.Reason == k8swatch.ReasonClientCertIsIdentity:
		c.certGate.Refuse(probe.CertVerdict{Seen: probe.SeenIdentity, Message: refused.Message})
	}
}

// readySince is when Ready last changed its status: the same refusal told anew.
func readySince(status *v1.ProxyKubeApiStatus) string {
	for _, condition := range status.Conditions {
		if condition.Type == k8swatch.ConditionReady {
			return condition.LastTransitionTime.UTC().String()
		}
	}
	return ""
}
