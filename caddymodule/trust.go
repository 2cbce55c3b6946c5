package caddymodule

import (
	"cmp"
	"context"
	"net/url"
	"sync/atomic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// reachability is whether an apiserver answers (REC-6). The versions of a
// cluster share it while the endpoint is the same.
type reachability struct {
	endpoint string
	last     atomic.Pointer[k8swatch.Condition]
}

// takeTrust takes over from the version before what is known of the apiserver,
// as far as it is about the same: the verdict on the set, whatever the mode
// (TRUST-2), that on client_cert, and whether it answers. Whatever is new begins
// with a closed gate.
func (rt *runtime) takeTrust(c, old *cluster) {
	defer func() { c.entrance = entranceOf(c) }()
	changed := func() { rt.prober.tell(c.spec.Key) }
	c.takeReach(old)
	c.takeClientCert(old, changed)
	c.gate, c.gateSet, c.renewed = old.gate, old.gateSet, old.renewed
	if !c.spec.Probe {
		return
	}
	set := c.spec.SetID()
	same := c.gate != nil && c.gateSet == set
	if !same {
		c.gate, c.gateSet = upstream.NewGate[probe.Verdict](changed), set
		c.renewed = status.TrustState{}
		if old.spec != nil && c.spec.Renews(old.spec) {
			c.renewed = old.trust()
		}
	}
	switch {
	case c.spec.Mode == v1.ModeFrontProxy && c.pair != nil:
		// The relay's own connections are the ones to ask over.
	case same && old.probing != nil:
		c.probing = old.probing
	default:
		c.probing = newPair(c.spec, c.spec.FrontProxy)
	}
}

func (c *cluster) takeClientCert(old *cluster, changed func()) {
	c.certGate, c.certSet = old.certGate, old.certSet
	if c.spec.ClientCert == nil {
		return
	}
	if set := c.spec.CredentialID(); c.certGate == nil || c.certSet != set {
		c.certGate, c.certSet = upstream.NewGate[probe.CertVerdict](changed), set
	}
}

func (c *cluster) takeReach(old *cluster) {
	c.heard = old.heard
	if c.heard == nil || old.spec.UID != c.spec.UID {
		c.heard = new(hearsay)
	}
	c.reach = old.reach
	if endpoint := c.spec.EndpointID(); c.reach == nil || c.reach.endpoint != endpoint {
		c.reach = &reachability{endpoint: endpoint}
	}
}

// gated reports whether the gate is about what the cluster is now. One that is
// kept while the certificate is missing is about a set that is not.
func (c *cluster) gated() bool { return c.spec.Probe && c.gate != nil }

// notReady is row 8: why the cluster may not serve, what the apiserver showed
// included. A set that was refused is asked about again behind the request.
func (c *cluster) notReady() *refusal {
	switch {
	case c.closed != nil:
		return c.closed
	case c.entrance.Open():
		return nil
	}
	ready := status.EffectiveReady(c.spec, c.standing())
	if ready.Status == k8swatch.StatusTrue {
		return nil // not known yet: row 14 finds out
	}
	c.entrance.Recheck()
	return c.trustRefusal(ready.Reason)
}

// admit is row 14: the replica's own check before its first request over a new
// set, that the apiserver honours the proxy (TRUST-3), or takes client_cert for
// nobody (CERT-9).
func (c *cluster) admit(ctx context.Context) *refusal {
	if c.entrance.Open() {
		return nil
	}
	if c.entrance.Check(ctx) == nil && c.entrance.Open() {
		return nil
	}
	ready := status.EffectiveReady(c.spec, c.standing())
	if ready.Status == k8swatch.StatusTrue {
		ready.Reason = k8swatch.NoticeUpstreamTrustUnknown
	}
	return c.trustRefusal(ready.Reason)
}

func (c *cluster) trustRefusal(reason string) *refusal {
	refused := notReady(c.spec.Mode, reason)
	refused.audit = "upstream_trust"
	return refused
}

// address is the apiserver's, with its path base.
func (c *cluster) address() (*url.URL, bool) {
	base, err := url.Parse("https://" + c.spec.Target.Host + c.spec.Target.BasePath)
	return base, err == nil
}

const badAddress = "the address of the apiserver cannot be parsed"

// probe asks the apiserver who it sees behind the front-proxy certificate.
func (c *cluster) probe(ctx context.Context) probe.Verdict {
	over := c.pair
	if c.probing != nil {
		over = c.probing
	}
	base, ok := c.address()
	if !ok {
		return probe.Verdict{Trust: v1.TrustUnknown, Message: badAddress}
	}
	if over == nil {
		return probe.Verdict{Trust: v1.TrustUnknown, Message: "there is no certificate to present"}
	}
	v := probe.Check(ctx, over, base, c.settings)
	if v.Effect() != probe.Inconclusive {
		over.Checked()
	}
	return v
}

// checkClientCert asks the apiserver what it takes client_cert for. It asks over
// the relay's own connections: what a certificate means is a matter of the
// connection, and no other certificate is ever presented on these.
func (c *cluster) checkClientCert(ctx context.Context) probe.CertVerdict {
	base, ok := c.address()
	if !ok {
		return probe.CertVerdict{Seen: probe.SeenUnknown, Message: badAddress}
	}
	v := probe.CheckClientCert(ctx, c.pair, base)
	if v.Effect() != probe.Inconclusive {
		c.pair.Checked()
	}
	return v
}

// reachOut asks the apiserver for an answer, as nobody. Each time it is a
// connection of its own: TLS is part of the question.
func (c *cluster) reachOut(ctx context.Context) k8swatch.Condition {
	base, ok := c.address()
	if !ok {
		return k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusFalse,
			Reason: k8swatch.ReasonConnectFailed, Message: badAddress}
	}
	var asked atomic.Bool
	pair := upstream.New(upstream.Config{
		Target: c.spec.Target, ServerName: c.spec.ServerName, RootCAs: c.spec.CA,
		AskedForCertificate: func() { asked.Store(true) },
	})
	defer pair.Retire()
	return probe.Reach(ctx, pair, base, &asked)
}

// reachable is what is known of whether the apiserver answers, nil for nothing.
func (c *cluster) reachable() *k8swatch.Condition {
	switch {
	case c.reach == nil:
		return nil
	case c.spec.Target.Kind == k8swatch.TargetAgent:
		return &k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusUnknown,
			Reason: k8swatch.ReasonAgentAbsent, Message: "no agent is connected"}
	}
	return c.reach.last.Load()
}

// standing is what the apiserver was seen to make of the cluster's own set and
// certificate: what requests meet.
func (c *cluster) standing() status.TrustState {
	var t status.TrustState
	if c.spec.Probe && c.gate != nil {
		s := c.gate.State()
		t = status.TrustState{Trust: s.Verdict.Trust, Since: s.Since, LastProbe: s.Checked, Message: s.Verdict.Message}
	}
	if c.spec.ClientCert != nil && c.certGate != nil {
		if v := c.certGate.State().Verdict; v.Seen == probe.SeenIdentity {
			// A status that closed the gate may have come without a text.
			t.ClientCertIsIdentity = cmp.Or(v.Message, "the apiserver takes the certificate of client_cert for an identity")
		}
	}
	return t
}

// trust is what a status says: standing, or while that is not known yet what
// was seen before a renewal (TRUST-2).
func (c *cluster) trust() status.TrustState {
	t := c.standing()
	if t.Trust == "" && c.spec.Probe {
		before := c.renewed
		before.ClientCertIsIdentity = t.ClientCertIsIdentity
		return before
	}
	return t
}

// certNotices is UpstreamTrustUnknown for a client_cert: the gate tells what
// FrontProxy tells by the same name.
func (c *cluster) certNotices() []k8swatch.Condition {
	if c.spec.ClientCert == nil || c.certGate == nil {
		return nil
	}
	v := c.certGate.State().Verdict
	if v.Seen != probe.SeenUnknown {
		return nil
	}
	return []k8swatch.Condition{{
		Type: k8swatch.NoticeUpstreamTrustUnknown, Status: k8swatch.StatusTrue,
		Reason: k8swatch.NoticeUpstreamTrustUnknown, Message: v.Message,
	}}
}
