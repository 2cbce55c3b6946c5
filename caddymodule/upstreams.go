package caddymodule

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
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

var errOtherTransport = errors.New("dynamic upstreams proxyauth need transport proxyauth: another one would send what clients say of their identity")

// Provision looks at the reverse_proxy around it (CONF-1). A wrong transport is
// refused with the configuration, static upstreams are refused with a 502 on each
// request.
func (u *Upstreams) Provision(ctx caddy.Context) error {
	parent := parentProxy(ctx)
	if parent == nil {
		return nil
	}
	if _, ok := parent.Transport.(*Transport); !ok {
		return errOtherTransport
	}
	u.besideStatic = len(parent.Upstreams) > 0
	return nil
}

// parentProxy is the reverse_proxy that is being provisioned.
func parentProxy(ctx caddy.Context) *reverseproxy.Handler {
	modules := ctx.Modules()
	for i := len(modules) - 1; i >= 0; i-- {
		if h, ok := modules[i].(*reverseproxy.Handler); ok {
			return h
		}
	}
	return nil
}

// nowhere stands for an upstream that the transport will refuse. With an error
// Caddy would go on with the static upstreams, or answer an empty 503.
const nowhere = "misconfigured.invalid:443"

// GetUpstreams returns the one upstream of the request, and notes it in the
// decision so that the transport recognises it.
func (u *Upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	d := request.DecisionOf(r.Context())
	if d == nil || u.besideStatic {
		return []*reverseproxy.Upstream{{Dial: nowhere}}, nil
	}
	// Caddy writes into the value, so each request needs its own.
	named := &reverseproxy.Upstream{Dial: d.Cluster.Spec.Target.Address}
	d.Upstream = named
	return []*reverseproxy.Upstream{named}, nil
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Upstreams)(nil)
	_ reverseproxy.UpstreamSource = (*Upstreams)(nil)
)
