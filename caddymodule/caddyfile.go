package caddymodule

import (
	"encoding/json"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
)

// defaultStreamCloseDelay is how long an upgraded stream outlives the
// configuration that accepted it. An exec session of a working day survives any
// number of reloads; the proxy itself ends the streams that must end (STREAM-1).
const defaultStreamCloseDelay = "24h"

// One init registers all directives: their order can only be given relative
// to Caddy's own, so each goes directly before the anchor in turn (CONF-2).
func init() {
	httpcaddyfile.RegisterGlobalOption("proxyauth", parseGlobalOption)
	httpcaddyfile.RegisterHandlerDirective("proxyauth_health", parseHealth)
	httpcaddyfile.RegisterHandlerDirective("proxyauth_authenticate", parseAuthenticate)
	httpcaddyfile.RegisterDirective("proxyauth", parseProxyauth)
	for _, directive := range []string{"proxyauth_health", "proxyauth_authenticate", "proxyauth"} {
		httpcaddyfile.RegisterDirectiveOrder(directive, httpcaddyfile.Before, "abort")
	}
}

// parseGlobalOption parses the global option proxyauth, a block with the options
// of App.table. Caddyfile.examples/options.Caddyfile has them all.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next() // so that the error names the line
		return nil, d.Err("the global option proxyauth is given twice")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "proxyauth", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from the global option. Values that can
// be checked here are, so that an error names its line.
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := unmarshalBlock(d, a.table(new(serving.Options))); err != nil {
		return err
	}
	if a.Kubernetes != nil && a.Directory != "" {
		return d.WrapErr(errTwoSources)
	}
	return nil
}

// parseAuthenticate parses the handler alone, for a composed route:
//
//	proxyauth_authenticate [<matcher>] {
//	    cluster <namespace>/<name>
//	}
func parseAuthenticate(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return unmarshalBlock(d, h.table())
}

// table lists the options of the handler.
func (h *Handler) table() []option {
	return []option{{name: "cluster", value: asText[string](&h.Cluster, nil), check: func(string, []string) error { return h.Validate() }}}
}

// parseProxyauth parses the directive that stands for the handler and the
// reverse_proxy behind it:
//
//	proxyauth [<matcher>] {
//	    cluster            <namespace>/<name>
//	    stream_close_delay <duration>
//	}
//
// It expands to what the composed form gives:
//
//	route [<matcher>] {
//	    proxyauth_authenticate
//	    reverse_proxy {
//	        dynamic            proxyauth
//	        transport          proxyauth
//	        stream_close_delay 24h
//	        flush_interval     -1
//	    }
//	}
func parseProxyauth(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	handler, given, delay := new(Handler), Duration(""), time.Duration(0)
	options := append(handler.table(), option{
		name: "stream_close_delay", value: asDuration(&given, &delay, minTTL), fallback: defaultStreamCloseDelay,
	})
	if err := unmarshalBlock(h.Dispenser, options); err != nil {
		return nil, err
	}
	if err := fillOptions(options); err != nil {
		return nil, err
	}
	proxy := &reverseproxy.Handler{
		TransportRaw:        caddyconfig.JSONModuleObject(new(Transport), "protocol", "proxyauth", nil),
		DynamicUpstreamsRaw: caddyconfig.JSONModuleObject(new(Upstreams), "source", "proxyauth", nil),
		FlushInterval:       -1,
		StreamCloseDelay:    caddy.Duration(delay),
	}
	subroute := &caddyhttp.Subroute{Routes: caddyhttp.RouteList{{
		HandlersRaw: []json.RawMessage{
			caddyconfig.JSONModuleObject(handler, "handler", "proxyauth", nil),
			caddyconfig.JSONModuleObject(proxy, "handler", "reverse_proxy", nil),
		},
	}}}
	return h.NewRoute(matcher, subroute), nil
}

// UnmarshalCaddyfile reads `transport proxyauth`, which has no options.
func (*Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return unmarshalBlock(d, nil) }

// UnmarshalCaddyfile reads `dynamic proxyauth`, which has no options.
func (*Upstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return unmarshalBlock(d, nil) }

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddyfile.Unmarshaler = (*Transport)(nil)
	_ caddyfile.Unmarshaler = (*Upstreams)(nil)
)
