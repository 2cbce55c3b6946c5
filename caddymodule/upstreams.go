package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	caddy.RegisterModule(Upstreams{})
}

// Upstreams names the apiserver of the cluster on which the `proxyauth` handler
// decided. It belongs to a `reverse_proxy` with the `proxyauth` transport and
// without static upstreams.
type Upstreams struct{}

// CaddyModule returns the Caddy module information.
func (Upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.upstreams.proxyauth",
		New: func() caddy.Module { return new(Upstreams) },
	}
}

// GetUpstreams returns the one upstream of the request, and notes it in the
// decision so that the transport recognises it.
func (Upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	d, ok := r.Context().Value(decisionKey{}).(*decision)
	if !ok {
		return nil, errNoDecision
	}
	// Caddy writes into the value, so each request needs its own.
	d.upstream = &reverseproxy.Upstream{Dial: d.cluster.spec.Target.Address}
	return []*reverseproxy.Upstream{d.upstream}, nil
}

// Interface guard.
var _ reverseproxy.UpstreamSource = (*Upstreams)(nil)
