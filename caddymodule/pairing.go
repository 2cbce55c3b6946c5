package caddymodule

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// How handler, dynamic upstreams and transport are put together is the proxy
// admin's to choose (CONF-1). What can be seen here of a wrong choice is either
// refused with the configuration, or answered with a 502 on each request.

var errOtherTransport = errors.New("dynamic upstreams proxyauth need transport proxyauth: another one would send what clients say of their identity")

// Provision looks at the reverse_proxy around it.
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

// Provision makes refusals a Status where no handler of ours stands before.
func (t *Transport) Provision(ctx caddy.Context) error {
	app, err := findApp(ctx)
	if err != nil {
		return err
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		installErrorRoute(server, app.logger.Named("error"))
	}
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

// Interface guards.
var (
	_ caddy.Provisioner = (*Upstreams)(nil)
	_ caddy.Provisioner = (*Transport)(nil)
)
