package caddymodule

import (
	"context"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// entrance is the gate that requests of a cluster meet on their way to the
// apiserver: TRUST-3 in FrontProxy, CERT-9 for a client_cert, none otherwise.
type entrance interface {
	Open() bool
	Refused() bool
	// Check asks the apiserver for a request that waits, Recheck behind one.
	Check(context.Context) error
	Recheck()
}

// entranceOf is computed once for each version of a cluster.
func entranceOf(c *cluster) entrance {
	switch frontProxy := c.spec.Mode == v1.ModeFrontProxy; {
	case frontProxy && c.gated():
		return guarded(c.gate, c.probe)
	case !frontProxy && c.spec.ClientCert == nil:
		return wayIn{}
	case !frontProxy && c.asksAboutClientCert():
		return guarded(c.certGate, c.checkClientCert)
	}
	return wall{}
}

func guarded[V upstream.Verdict](gate *upstream.Gate[V], ask func(context.Context) V) entrance {
	return guard[V]{gate, ask}
}

// guard is a gate with the question that opens it.
type guard[V upstream.Verdict] struct {
	*upstream.Gate[V]
	ask func(context.Context) V
}

func (g guard[V]) Check(ctx context.Context) error { return g.Gate.Check(ctx, g.ask) }

func (g guard[V]) Recheck() { g.Gate.Recheck(g.ask) }

// wayIn is where nothing has to be shown first.
type wayIn struct{}

func (wayIn) Open() bool                  { return true }
func (wayIn) Refused() bool               { return false }
func (wayIn) Check(context.Context) error { return nil }
func (wayIn) Recheck()                    {}

// wall is where there is nothing to ask with, such as a certificate that is
// missing: a gate that is kept for it is about a set that is not.
type wall struct{}

func (wall) Open() bool                  { return false }
func (wall) Refused() bool               { return false }
func (wall) Check(context.Context) error { return nil }
func (wall) Recheck()                    {}
