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
// without static upstreams: with any beside it, each request is answered with
// 502.
type Upstreams struct {
	besideStatic bool
}

// CaddyModule returns the Caddy module information.
func (Upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.upstreams.proxyauth",
		New: func() caddy.Module { return new(Upstreams) },
	}
}

// nowhere stands for an upstream that the transport will refuse. With an error
// Caddy would go on with the static upstreams, or answer 503 without a word.
const nowhere = "misconfigured.invalid:443"

// GetUpstreams returns the one upstream of the request, and notes it in the
// decision so that the transport recognises it.
func (u *Upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	d, ok := r.Context().Value(decisionKey{}).(*decision)
	if !ok || u.besideStatic {
		return []*reverseproxy.Upstream{{Dial: nowhere}}, nil
	}
	// Caddy writes into the value, so each request needs its own.
	d.upstream = &reverseproxy.Upstream{Dial: d.cluster.spec.Target.Address}
	return []*reverseproxy.Upstream{d.upstream}, nil
}

// Interface guard.
var _ reverseproxy.UpstreamSource = (*Upstreams)(nil)
