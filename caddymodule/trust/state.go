package trust

import (
	"cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// Reachable is what is known of whether the apiserver answers, nil for nothing.
func (t *Trust) Reachable() *k8swatch.Condition {
	switch {
	case t.reach == nil:
		return nil
	case t.spec.Target.Kind == k8swatch.TargetAgent:
		return &k8swatch.Condition{Type: k8swatch.ConditionReachable, Status: k8swatch.StatusUnknown,
			Reason: k8swatch.ReasonAgentAbsent, Message: "no agent is connected"}
	}
	return t.reach.last.Load()
}

// standing is the verdicts on the current certificates, which decide over
// requests.
func (t *Trust) standing() status.TrustState {
	var state status.TrustState
	if t.gateIsCurrent() {
		s := t.frontProxy.State()
		state = status.TrustState{Trust: s.Verdict.Trust, Since: s.Since, LastProbe: s.Checked, Message: s.Verdict.Message}
	}
	if t.spec.ClientCert != nil && t.clientCert != nil {
		if v := t.clientCert.State().Verdict; v.Seen == probe.SeenIdentity {
			// The leader's status may have come without a message.
			state.ClientCertIsIdentity = cmp.Or(v.Message, "the apiserver takes the certificate of client_cert for an identity")
		}
	}
	if !t.guard.Open() && !t.guard.Refused() {
		state.Unproven = cmp.Or(t.guard.Doubt(), "the apiserver has not answered a check yet")
	}
	return state
}

// State is the verdicts that a status shows: those on the current certificates
// or, until there is one, the verdict from before a renewal (TRUST-2).
func (t *Trust) State() status.TrustState {
	state := t.standing()
	if state.Trust == "" && t.spec.Probe {
		before := t.beforeRenewal
		before.ClientCertIsIdentity = state.ClientCertIsIdentity
		if before.Trust == "" || t.spec.Mode != v1.ModeFrontProxy {
			before.Unproven = state.Unproven
		}
		return before
	}
	return state
}

// Doubted reports whether a check was made that proved nothing.
func (t *Trust) Doubted() bool { return t.guard.Doubt() != "" }

// Notices are the conditions that close nothing: UpstreamTrustUnknown where the
// probe of client_cert gave no verdict.
func (t *Trust) Notices() []k8swatch.Condition {
	if t.spec.ClientCert == nil || t.clientCert == nil {
		return nil
	}
	v := t.clientCert.State().Verdict
	if v.Seen != probe.SeenUnknown {
		return nil
	}
	return []k8swatch.Condition{{
		Type: k8swatch.NoticeUpstreamTrustUnknown, Status: k8swatch.StatusTrue,
		Reason: k8swatch.NoticeUpstreamTrustUnknown, Message: v.Message,
	}}
}

// Unsettled reports whether the first answers that the status depends on are
// about to come.
func (t *Trust) Unsettled() bool {
	s, asked := t.probeScope()
	if !asked || t.spec.Ready.Status != k8swatch.StatusTrue {
		return false
	}
	return t.Reachable() == nil || s.frontProxy != "" && t.frontProxy.State().Verdict.Trust == "" ||
		s.clientCert != "" && t.clientCert.State().Verdict.Seen == ""
}
