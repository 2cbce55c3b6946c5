package trust

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

func certificate() *k8swatch.ClientCertificate { return new(k8swatch.ClientCertificate) }

// Section 3, rows 8 and 14: what a cluster's requests meet, by its mode, its
// certificates and the verdicts on them. The status says the same (REC-5). The address
// leads nowhere, so that AwaitVerdict finds out nothing.
func TestGuard(t *testing.T) {
	const unknown = k8swatch.NoticeUpstreamTrustUnknown
	for name, tt := range map[string]struct {
		mode       v1.UpstreamMode
		probe      bool // there is a front-proxy certificate
		clientCert bool
		closed     bool // the cluster may not serve
		verdict    v1.Trust
		then       v1.Trust // the verdict after it
		seen       probe.CertVerdict
		refusal    string // of row 8
		admit      string // of row 14
	}{
		"FrontProxy, nothing known":     {mode: v1.ModeFrontProxy, probe: true, admit: unknown},
		"FrontProxy, trusted":           {mode: v1.ModeFrontProxy, probe: true, verdict: v1.TrustTrusted},
		"FrontProxy, unknown":           {mode: v1.ModeFrontProxy, probe: true, verdict: v1.TrustUnknown, admit: unknown},
		"FrontProxy, trusted before":    {mode: v1.ModeFrontProxy, probe: true, verdict: v1.TrustTrusted, then: v1.TrustUnknown},
		"FrontProxy, rejected before":   {mode: v1.ModeFrontProxy, probe: true, verdict: v1.TrustRejected, then: v1.TrustUnknown, refusal: k8swatch.ReasonFrontProxyNotTrusted, admit: k8swatch.ReasonFrontProxyNotTrusted},
		"client_cert, no answer":        {mode: v1.ModePassthrough, clientCert: true, seen: probe.CertVerdict{Seen: probe.SeenUnknown, Message: "no answer"}, admit: unknown},
		"FrontProxy, rejected":          {mode: v1.ModeFrontProxy, probe: true, verdict: v1.TrustRejected, refusal: k8swatch.ReasonFrontProxyNotTrusted, admit: k8swatch.ReasonFrontProxyNotTrusted},
		"FrontProxy, not honoured":      {mode: v1.ModeFrontProxy, probe: true, verdict: v1.TrustNotHonoured, refusal: k8swatch.ReasonUpstreamIdentityNotHonoured, admit: k8swatch.ReasonUpstreamIdentityNotHonoured},
		"FrontProxy, no certificate":    {mode: v1.ModeFrontProxy, admit: unknown},
		"Passthrough":                   {mode: v1.ModePassthrough},
		"Passthrough in preparation":    {mode: v1.ModePassthrough, probe: true, verdict: v1.TrustRejected},
		"client_cert, nothing known":    {mode: v1.ModePassthrough, clientCert: true, admit: unknown},
		"client_cert is no identity":    {mode: v1.ModePassthrough, clientCert: true, seen: probe.CertVerdict{Seen: probe.SeenAnonymous}},
		"client_cert is an identity":    {mode: v1.ModePassthrough, clientCert: true, seen: probe.CertVerdict{Seen: probe.SeenIdentity}, refusal: k8swatch.ReasonClientCertIsIdentity, admit: k8swatch.ReasonClientCertIsIdentity},
		"client_cert without the relay": {mode: v1.ModePassthrough, clientCert: true, closed: true, admit: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &k8swatch.Cluster{
				Enabled: true, Mode: tt.mode, Probe: tt.probe, Target: k8swatch.Target{Address: "127.0.0.1:1", Host: "127.0.0.1:1"},
				Ready: k8swatch.Condition{Type: k8swatch.ConditionReady, Status: k8swatch.StatusTrue, Reason: k8swatch.ReasonServing},
			}
			if tt.probe {
				spec.FrontProxy = certificate()
			}
			if tt.clientCert {
				spec.ClientCert = certificate()
			}
			relay := Connect(spec, nil)
			defer relay.Retire()
			if tt.closed {
				relay = nil
			}
			c := New(spec, relay, nil, nil, nil)
			defer c.Retire(nil)
			if tt.verdict != "" {
				c.ObserveFrontProxy(probe.Verdict{Trust: tt.verdict})
			}
			if tt.then != "" {
				c.ObserveFrontProxy(probe.Verdict{Trust: tt.then, Message: "no answer"})
			}
			if tt.seen.Seen != "" {
				c.ObserveClientCert(tt.seen)
			}
			if got := c.ClosedReason(); got != tt.refusal {
				t.Errorf("refused with %q, want %q", got, tt.refusal)
			}
			if got := c.AwaitVerdict(t.Context()); got != tt.admit {
				t.Errorf("not admitted with %q, want %q", got, tt.admit)
			}
			if c.Open() != (tt.admit == "") {
				t.Errorf("open: %t", c.Open())
			}
			if ready := status.EffectiveReady(spec, c.State()); (ready.Status == k8swatch.StatusTrue) != c.Open() || tt.admit != "" && ready.Reason != tt.admit {
				t.Errorf("the status says %+v of a cluster that is open: %t", ready, c.Open())
			}
		})
	}
	if New(&k8swatch.Cluster{}, nil, nil, nil, nil).Open() {
		t.Error("a disabled cluster is open")
	}
}
