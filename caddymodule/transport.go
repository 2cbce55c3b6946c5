package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
)

func init() {
	caddy.RegisterModule(Transport{})
}

// Transport sends a request that the `proxyauth` handler accepted to the
// apiserver of its cluster, over a connection that verifies the apiserver's
// certificate and presents the certificate of this cluster alone. In FrontProxy
// it asserts the identity in `X-Remote-*` headers; in Passthrough it sends the
// caller's bearer.
//
// It refuses, with a 502, a request on which the handler did not decide and a
// request for any upstream but the one that the `proxyauth` dynamic upstreams
// named.
type Transport struct{}

// CaddyModule returns the Caddy module information.
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.proxyauth",
		New: func() caddy.Module { return new(Transport) },
	}
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

// RoundTrip is the last code before the wire; see request.Decision.Send.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	d := request.DecisionOf(r.Context())
	if d == nil {
		return nil, request.NotDecided
	}
	dial, ok := reverseproxy.GetDialInfo(r.Context())
	if !ok || d.Upstream == nil || d.Upstream != any(dial.Upstream) {
		return nil, request.ForeignUpstream
	}
	return d.Send(r, process.Metrics)
}

// Interface guards.
var (
	_ http.RoundTripper = (*Transport)(nil)
	_ caddy.Provisioner = (*Transport)(nil)
)
