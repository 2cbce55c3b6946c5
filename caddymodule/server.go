package caddymodule

import (
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// Sizes of the request line and the headers together.
const (
	// caddyMaxHeader is Caddy's default, which it has filled in by the time that
	// handlers are provisioned.
	caddyMaxHeader = 16 << 10
	// wantedMaxHeader has room for a token with many groups, or for a `kubectl
	// exec` with a long command. kube-apiserver takes more than both.
	wantedMaxHeader = 64 << 10
)

// raiseMaxHeader gives a server with Caddy's default room for what Kubernetes
// clients send: they do not understand the empty 431 that the default gives them.
// Another value is the administrator's choice.
func raiseMaxHeader(server *caddyhttp.Server, logger *zap.Logger) {
	switch {
	case server.MaxHeaderBytes == caddyMaxHeader:
		server.MaxHeaderBytes = wantedMaxHeader
	case server.MaxHeaderBytes < wantedMaxHeader:
		logger.Warn("max_header_size is under 64 KiB: tokens with many groups and long exec commands get an empty 431",
			zap.Strings("listen", server.Listen), zap.Int("max_header_size", server.MaxHeaderBytes))
	}
}

// warnOfWriteTimeout warns of a limit on the time of a whole answer. A watch and a
// followed log are one answer each (RELAY-3).
func warnOfWriteTimeout(server *caddyhttp.Server, logger *zap.Logger) {
	if server.WriteTimeout > 0 {
		logger.Warn("the timeout `write` ends every watch and every followed log after this time: leave it out, `write_idle` is enough",
			zap.Strings("listen", server.Listen), zap.Duration("write", time.Duration(server.WriteTimeout)))
	}
}

// warnOfGaps warns of sites where a request that the matcher of proxyauth does not
// match gets Caddy's empty 200: a wrong URL then looks right to a client.
func (a *App) warnOfGaps() {
	mod, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return // without it there are no sites
	}
	app, ok := mod.(*caddyhttp.App)
	if !ok {
		return
	}
	for _, server := range app.Servers {
		for _, site := range gaps(server.Routes, false, strings.Join(server.Listen, " ")) {
			a.logger.Warn("requests that proxyauth does not match get an empty 200: leave its matcher out, or end the site with `respond 404`",
				zap.String("site", site))
		}
	}
}

// gaps returns the sites of a list of routes in which proxyauth has a matcher and
// no other route takes the rest. covered says that the routes behind the list do.
func gaps(routes caddyhttp.RouteList, covered bool, site string) (found []string) {
	covered = covered || answersAll(routes)
	for _, route := range routes {
		name, matched := site, len(route.MatcherSets) > 0
		if hosts := hostsOf(route); hosts != "" {
			name, matched = hosts, false
		}
		if !slices.ContainsFunc(route.Handlers, isOrHoldsHandler) {
			continue
		}
		if matched && !covered {
			found = append(found, name)
			continue
		}
		for _, h := range route.Handlers {
			if inner, ok := h.(*caddyhttp.Subroute); ok {
				found = append(found, gaps(inner.Routes, covered && !route.Terminal, name)...)
			}
		}
	}
	return found
}

// hostsOf returns the hosts of a route that matches hosts and nothing else.
func hostsOf(route caddyhttp.Route) string {
	var hosts []string
	for _, set := range route.MatcherSets {
		if len(set) != 1 {
			return ""
		}
		host, ok := set[0].(*caddyhttp.MatchHost)
		if !ok {
			return ""
		}
		hosts = append(hosts, *host...)
	}
	return strings.Join(hosts, " ")
}

// isOrHoldsHandler reports whether a handler is proxyauth, or has it inside.
func isOrHoldsHandler(h caddyhttp.MiddlewareHandler) bool {
	switch h := h.(type) {
	case *Handler:
		return true
	case *caddyhttp.Subroute:
		return slices.ContainsFunc(h.Routes, func(r caddyhttp.Route) bool { return slices.ContainsFunc(r.Handlers, isOrHoldsHandler) })
	}
	return false
}

// answersAll reports whether a list has a route that answers every request.
func answersAll(routes caddyhttp.RouteList) bool {
	return slices.ContainsFunc(routes, func(r caddyhttp.Route) bool {
		return len(r.MatcherSets) == 0 && slices.ContainsFunc(r.Handlers, answers)
	})
}

// answers reports whether a handler answers requests itself. One that this
// product does not know is taken to do so: a warning must be right.
func answers(h caddyhttp.MiddlewareHandler) bool {
	if inner, ok := h.(*caddyhttp.Subroute); ok {
		return answersAll(inner.Routes)
	}
	module, ok := h.(caddy.Module)
	if !ok {
		return true
	}
	switch module.CaddyModule().ID.Name() {
	case "authentication", "encode", "headers", "intercept", "log_append", "map", "push", "request_body", "rewrite", "templates", "tracing", "vars":
		return false
	}
	return true
}
