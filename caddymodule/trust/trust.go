package trust

import (
	"context"
	"sync/atomic"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

type (
	frontProxyVerdict = probe.Verdict
	clientCertVerdict = probe.CertVerdict
)

// Trust is what this replica knows of the apiserver of one version of a
// cluster. Its fields are never changed after New; the gates in it are shared
// with the next version for as long as their key stays the same.
type Trust struct {
	spec     *k8swatch.Cluster
	settings identity.Settings
	// requestPair is the connections of the cluster's requests, nil while the cluster
	// may not serve.
	requestPair *upstream.Pair
	// answers limits what is read of the apiserver's answers.
	answers *boundedjson.Reader

	// frontProxy is closed until the apiserver was seen to honour the front-proxy
	// certificate. After the certificate disappears the gate is kept, for the
	// status and for the return of the same certificate; see gateIsCurrent.
	frontProxy    *Gate[frontProxyVerdict]
	frontProxyKey string
	// clientCert is closed until the apiserver was seen to take client_cert for
	// no identity (CERT-9).
	clientCert    *Gate[clientCertVerdict]
	clientCertKey string

	// probePair presents the front-proxy certificate where requestPair does not: in
	// preparation, and while the cluster may not serve.
	probePair *upstream.Pair
	// beforeRenewal is the verdict on the certificate before this one, where this one
	// is its renewal. A status shows it until there is a new verdict (TRUST-2).
	beforeRenewal status.TrustState

	guard  guard
	reach  *reachability
	leader *leaderVerdict
}

// reachability is whether an apiserver answers (REC-6). The versions of a
// cluster share it while the endpoint is the same.
type reachability struct {
	endpoint string
	last     atomic.Pointer[k8swatch.Condition]
}

// New makes the Trust of a cluster. It takes over from the version before what
// is still about the same: the front-proxy verdict while the trust key is the
// same, whatever the mode (TRUST-2), the client_cert verdict while the
// credential is, and whether the apiserver answers while the endpoint is.
// Everything else begins with a closed gate.
//
// requests is the connections of the cluster's requests, nil while it may not
// serve. previous is nil for a new object. answers is shared by the whole process.
// changed, which may be nil, is called after each verdict of another kind than the
// one before.
func New(spec *k8swatch.Cluster, requests *upstream.Pair, previous *Trust, answers *boundedjson.Reader, changed func()) *Trust {
	t := &Trust{spec: spec, settings: SettingsOf(spec), requestPair: requests, answers: answers, guard: alwaysClosed}
	if !spec.Enabled {
		return t
	}
	if previous == nil {
		previous = new(Trust)
	}
	t.takeReach(previous)
	t.takeClientCert(previous, changed)
	t.takeFrontProxy(previous, changed)
	t.guard = guardOf(t)
	return t
}

// SettingsOf is how the identities of a cluster are forwarded.
func SettingsOf(spec *k8swatch.Cluster) identity.Settings {
	return identity.Settings{UserPrefix: spec.UserPrefix, GroupPrefix: spec.GroupPrefix, ForwardUID: spec.ForwardUID}
}

func (t *Trust) takeFrontProxy(previous *Trust, changed func()) {
	t.frontProxy, t.frontProxyKey, t.beforeRenewal = previous.frontProxy, previous.frontProxyKey, previous.beforeRenewal
	if !t.spec.Probe {
		return
	}
	key := t.spec.TrustKey()
	same := t.frontProxy != nil && t.frontProxyKey == key
	if !same {
		t.frontProxy, t.frontProxyKey = NewGate[frontProxyVerdict](changed), key
		t.beforeRenewal = status.TrustState{}
		if previous.spec != nil && t.spec.Renews(previous.spec) {
			t.beforeRenewal = previous.State()
		}
	}
	switch {
	case t.spec.Mode == v1.ModeFrontProxy && t.requestPair != nil:
		// The probe goes over the connections of requests.
	case same && previous.probePair != nil:
		t.probePair = previous.probePair
	default:
		t.probePair = Connect(t.spec, t.spec.FrontProxy)
	}
}

func (t *Trust) takeClientCert(previous *Trust, changed func()) {
	t.clientCert, t.clientCertKey = previous.clientCert, previous.clientCertKey
	if t.spec.ClientCert == nil {
		return
	}
	if key := t.spec.CredentialID(); t.clientCert == nil || t.clientCertKey != key {
		t.clientCert, t.clientCertKey = NewGate[clientCertVerdict](changed), key
	}
}

func (t *Trust) takeReach(previous *Trust) {
	t.leader = previous.leader
	if t.leader == nil || previous.spec.UID != t.spec.UID {
		t.leader = new(leaderVerdict)
	}
	t.reach = previous.reach
	if endpoint := t.spec.EndpointID(); t.reach == nil || t.reach.endpoint != endpoint {
		t.reach = &reachability{endpoint: endpoint}
	}
}

// Connect makes connections to the apiserver of a cluster that present a
// certificate, nil for none. It connects on first use.
func Connect(spec *k8swatch.Cluster, certificate *k8swatch.ClientCertificate) *upstream.Pair {
	c := connection(spec)
	if certificate != nil {
		c.Certificate = &certificate.TLS
	}
	return upstream.New(c)
}

// connection is what all connections to the apiserver of a cluster have in common.
func connection(spec *k8swatch.Cluster) upstream.Config {
	return upstream.Config{
		Target: spec.Target, ServerName: spec.ServerName, RootCAs: spec.CA, Dial: upstream.Direct(spec.DeniedTargets),
	}
}

// Retire closes the connections that the next version of the cluster did not
// take over; next is nil when the cluster is gone.
func (t *Trust) Retire(next *Trust) {
	if t.probePair != nil && (next == nil || next.probePair != t.probePair) {
		t.probePair.Retire()
	}
}

// gateIsCurrent reports whether the front-proxy gate belongs to the current
// certificate. After the certificate disappears the old gate is kept for the
// status only.
func (t *Trust) gateIsCurrent() bool { return t.spec.Probe && t.frontProxy != nil }

// presentsClientCert reports whether requests go out with a client_cert.
func (t *Trust) presentsClientCert() bool {
	return t.spec.ClientCert != nil && t.clientCert != nil && t.requestPair != nil
}

// Open reports whether requests may go to the apiserver. It costs one atomic
// load.
func (t *Trust) Open() bool { return t.guard.Open() }

// Reprobe probes the apiserver in the background, at most once a second.
func (t *Trust) Reprobe() { t.guard.Reprobe() }

// ClosedReason returns the reason of Ready for which a request is refused at once,
// or "" when it may go on: the gate is open, or nothing is known yet and AwaitVerdict
// finds out. An apiserver that was refused is probed again in the background.
func (t *Trust) ClosedReason() (reason string) {
	if t.guard.Open() {
		return ""
	}
	ready := status.EffectiveReady(t.spec, t.standing())
	if ready.Status == k8swatch.StatusTrue || ready.Reason == k8swatch.ReasonUpstreamTrustUnknown {
		return "" // AwaitVerdict asks the apiserver
	}
	t.guard.Reprobe()
	return ready.Reason
}

// AwaitVerdict probes the apiserver before the first request over a new certificate:
// whether it honours the proxy (TRUST-3), or takes client_cert for no identity
// (CERT-9). It returns the reason for which the request is refused, or "".
func (t *Trust) AwaitVerdict(ctx context.Context) (reason string) {
	if t.guard.Open() {
		return ""
	}
	if t.guard.Check(ctx) == nil && t.guard.Open() {
		return ""
	}
	ready := status.EffectiveReady(t.spec, t.standing())
	if ready.Status == k8swatch.StatusTrue {
		return k8swatch.ReasonUpstreamTrustUnknown
	}
	return ready.Reason
}
