package caddymodule

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// defaultStreamCloseDelay is how long an upgraded stream outlives the
// configuration that accepted it. A working day's exec session survives any
// number of reloads; the proxy itself ends streams where it must (STREAM-1).
const defaultStreamCloseDelay = 24 * time.Hour

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

// parseGlobalOption parses the global option:
//
//	proxyauth {
//	    kubernetes {
//	        kubeconfig       <path>
//	        watch_namespaces <namespaces...>
//	        leader_election  <lease>|off
//	    }
//	    directory            <path>
//	    namespace            <namespace>
//	    allowed_modes        Passthrough [FrontProxy]
//	    audience_validation  enforce|warn|off
//	    impersonation        strip|deny|forward
//	    proxy_cookies        on|off
//	    reference_namespaces <namespaces...>
//	    upstream_client_ttl  <duration>
//	    token_cache_ttl      <duration>
//	    probe_interval       <duration>
//	    public_url           <url>
//	    public_ca            <file>
//	}
//
// Exactly one of kubernetes, whose block may be left out, and directory is given.
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
	d.Next() // the option's name
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := map[string]bool{}
	for d.NextBlock(0) {
		option := d.Val()
		if seen[option] {
			return d.Errf("%s is given twice", option)
		}
		seen[option] = true
		if err := a.unmarshalOption(d, option); err != nil {
			return err
		}
	}
	if a.Kubernetes != nil && a.Directory != "" {
		return d.Err("kubernetes and directory exclude each other: set exactly one")
	}
	return nil
}

func (a *App) unmarshalOption(d *caddyfile.Dispenser, option string) error {
	texts := map[string]*string{
		"directory":           &a.Directory,
		"namespace":           &a.Namespace,
		"audience_validation": &a.AudienceValidation,
		"impersonation":       &a.Impersonation,
		"proxy_cookies":       &a.ProxyCookies,
		"public_url":          &a.PublicURL,
		"public_ca":           &a.PublicCA,
	}
	durations := map[string]*Duration{
		"upstream_client_ttl": &a.UpstreamClientTTL,
		"token_cache_ttl":     &a.TokenCacheTTL,
		"probe_interval":      &a.ProbeInterval,
	}
	if into, ok := texts[option]; ok {
		return a.unmarshalText(d, option, into)
	}
	if into, ok := durations[option]; ok {
		value, err := unmarshalDuration(d, option)
		*into = Duration(value.String())
		return err
	}
	switch option {
	case "allowed_modes":
		if a.AllowedModes = d.RemainingArgs(); len(a.AllowedModes) == 0 {
			return d.ArgErr()
		}
		if err := a.readModes(new(runtimeOptions)); err != nil {
			return d.WrapErr(err)
		}
	case "reference_namespaces":
		if a.ReferenceNamespaces = d.RemainingArgs(); len(a.ReferenceNamespaces) == 0 {
			return d.ArgErr()
		}
	case "kubernetes":
		return a.unmarshalKubernetes(d)
	case "redis", "portal", "vault":
		return d.Errf("%s is not supported by this version", option)
	case "kubeconfig", "watch_namespaces", "leader_election":
		return d.Errf("%s belongs in kubernetes { }", option)
	default:
		known := slices.Concat(slices.Collect(maps.Keys(texts)), slices.Collect(maps.Keys(durations)),
			[]string{"allowed_modes", "reference_namespaces", "kubernetes"})
		slices.Sort(known)
		return unknownOption(d, known...)
	}
	return nil
}

// unknownOption tells what the current token could have been.
func unknownOption(d *caddyfile.Dispenser, known ...string) error {
	return d.Errf("unknown option %s: must be one of %s", d.Val(), strings.Join(known, ", "))
}

func (a *App) unmarshalText(d *caddyfile.Dispenser, option string, into *string) error {
	if !d.AllArgs(into) || *into == "" {
		return d.ArgErr()
	}
	var err error
	switch option {
	case "audience_validation":
		err = oneOf(option, *into, audienceEnforce, audienceWarn, audienceOff)
	case "impersonation", "proxy_cookies":
		err = a.readPolicies()
	case "public_url":
		err = checkPublicURL(*into)
	}
	if err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func unmarshalDuration(d *caddyfile.Dispenser, option string) (time.Duration, error) {
	var text string
	if !d.AllArgs(&text) {
		return 0, d.ArgErr()
	}
	value, err := parseDuration(text)
	if err == nil && option == "probe_interval" {
		err = checkProbeInterval(value)
	}
	if err != nil {
		return 0, d.WrapErr(fmt.Errorf("%s: %w", option, err))
	}
	return value, nil
}

func (a *App) unmarshalKubernetes(d *caddyfile.Dispenser) error {
	a.Kubernetes = new(KubernetesSource)
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch option := d.Val(); option {
		case "kubeconfig", "leader_election":
			into := &a.Kubernetes.Kubeconfig
			if option == "leader_election" {
				into = &a.Kubernetes.LeaderElection
			}
			if !d.AllArgs(into) {
				return d.ArgErr()
			}
		case "watch_namespaces":
			if a.Kubernetes.WatchNamespaces = d.RemainingArgs(); len(a.Kubernetes.WatchNamespaces) == 0 {
				return d.ArgErr()
			}
		default:
			return unknownOption(d, "kubeconfig", "watch_namespaces", "leader_election")
		}
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
	d.Next() // the directive's name
	if d.NextArg() {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		if d.Val() != "cluster" {
			return unknownOption(d, "cluster")
		}
		if err := h.unmarshalCluster(d); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) unmarshalCluster(d *caddyfile.Dispenser) error {
	if h.Cluster != "" {
		return d.Err("cluster is given twice")
	}
	if !d.AllArgs(&h.Cluster) || h.Cluster == "" {
		return d.ArgErr()
	}
	if err := h.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
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
	handler, delay := new(Handler), defaultStreamCloseDelay
	d := h.Dispenser
	d.Next() // the directive's name
	if d.NextArg() {
		return nil, d.ArgErr()
	}
	for d.NextBlock(0) {
		switch d.Val() {
		case "cluster":
			err = handler.unmarshalCluster(d)
		case "stream_close_delay":
			delay, err = unmarshalDuration(d, "stream_close_delay")
		default:
			err = unknownOption(d, "cluster", "stream_close_delay")
		}
		if err != nil {
			return nil, err
		}
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
func (*Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return nameOnly(d) }

// UnmarshalCaddyfile reads `dynamic proxyauth`, which has no options.
func (*Upstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return nameOnly(d) }

func nameOnly(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		return d.ArgErr()
	}
	if d.NextBlock(d.Nesting()) {
		return d.Errf("unknown option %s", strings.TrimSpace(d.Val()))
	}
	return nil
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddyfile.Unmarshaler = (*Transport)(nil)
	_ caddyfile.Unmarshaler = (*Upstreams)(nil)
)
