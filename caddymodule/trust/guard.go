package trust

import (
	"context"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// guard is the gate that the requests of a cluster pass, together with the
// probe that opens it.
type guard interface {
	Open() bool
	// Refused reports whether a probe, or the leader's verdict, closed it.
	Refused() bool
	// Doubt is why the last probe proved nothing, empty if it proved something.
	Doubt() string
	// Check probes the apiserver while a request waits.
	Check(context.Context) error
	// Reprobe probes it in the background.
	Reprobe()
}

// guardOf chooses the guard of a cluster: the front-proxy gate in FrontProxy
// (TRUST-3), the client_cert gate where requests go out with client_cert (CERT-9),
// and otherwise none.
func guardOf(t *Trust) guard {
	switch frontProxy := t.spec.Mode == v1.ModeFrontProxy; {
	case frontProxy && t.gateIsCurrent():
		return probedGate[frontProxyVerdict]{t.frontProxy, t.probe}
	case !frontProxy && t.spec.ClientCert == nil:
		return alwaysOpen
	case !frontProxy && t.presentsClientCert():
		return probedGate[clientCertVerdict]{t.clientCert, t.probeClientCert}
	}
	return alwaysClosed
}

// probedGate is a gate with the probe that opens it.
type probedGate[V Verdict] struct {
	*Gate[V]
	ask func(context.Context) V
}

func (g probedGate[V]) Check(ctx context.Context) error { return g.Gate.Check(ctx, g.ask) }

func (g probedGate[V]) Reprobe() { g.Gate.Reprobe(g.ask) }

func (g probedGate[V]) Doubt() string { return g.State().Verdict.Doubt() }

// fixedGuard is the guard of a cluster that nothing is asked about.
type fixedGuard bool

const (
	// alwaysOpen lets every request pass: the proxy presents no certificate.
	alwaysOpen fixedGuard = true
	// alwaysClosed lets no request pass: the cluster is disabled, or lacks the
	// certificate that its requests have to present.
	alwaysClosed fixedGuard = false
)

func (g fixedGuard) Open() bool                { return bool(g) }
func (fixedGuard) Refused() bool               { return false }
func (fixedGuard) Doubt() string               { return "" }
func (fixedGuard) Check(context.Context) error { return nil }
func (fixedGuard) Reprobe()                    {}
