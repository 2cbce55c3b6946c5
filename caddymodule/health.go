package caddymodule

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func init() {
	caddy.RegisterModule(Health{})
}

// Health answers `/livez`, `/readyz` and `/metrics`, for kubelets, load balancers
// and Prometheus. It belongs on a listener of its own. Every other path is a 404.
//
// `/readyz` is 200 from when the clusters have been read once until the process
// is told to end. It stays 200 while an apiserver or an identity provider is down:
// no other replica could do better.
type Health struct {
	app     *App
	metrics http.Handler
}

// CaddyModule returns the Caddy module information.
func (Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.proxyauth_health",
		New: func() caddy.Module { return new(Health) },
	}
}

// Provision finds the app and the metrics of this configuration.
func (h *Health) Provision(ctx caddy.Context) error {
	app, err := findApp(ctx)
	if err != nil {
		return err
	}
	h.app = app
	h.metrics = promhttp.HandlerFor(ctx.GetMetricsRegistry(), promhttp.HandlerOpts{})
	return nil
}

// ServeHTTP answers the probes.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch r.URL.Path {
	case "/metrics":
		h.metrics.ServeHTTP(w, r)
		return nil
	case "/livez":
		return plain(w, http.StatusOK, "ok")
	case "/readyz":
		switch {
		case caddy.Exiting():
			return plain(w, http.StatusServiceUnavailable, "stopping")
		case h.app.runtime.Snapshot() == nil:
			return plain(w, http.StatusServiceUnavailable, "the first list of clusters has not been read")
		}
		return plain(w, http.StatusOK, "ok")
	}
	return plain(w, http.StatusNotFound, "not found")
}

func plain(w http.ResponseWriter, code int, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, err := fmt.Fprintln(w, text)
	return err
}

// parseHealth parses the directive, which has no options:
//
//	proxyauth_health [<matcher>]
func parseHealth(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Health)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile reads the directive's name and nothing more.
func (*Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return unmarshalBlock(d, nil) }

// Interface guards.
var (
	_ caddy.Provisioner           = (*Health)(nil)
	_ caddyhttp.MiddlewareHandler = (*Health)(nil)
	_ caddyfile.Unmarshaler       = (*Health)(nil)
)
