package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterModule(AdminAPI{})
}

// AdminAPI adds `GET /proxyauth/clusters` to Caddy's admin API: a JSON list of
// the clusters this process knows, with their status.
type AdminAPI struct{}

// CaddyModule returns the Caddy module information.
func (AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.proxyauth",
		New: func() caddy.Module { return new(AdminAPI) },
	}
}

// adminPath is where the clusters are listed.
const adminPath = "/proxyauth/clusters"

// Routes returns the route of the list. Caddy builds admin routers without
// configuration and never cleans them up, so the handler finds the running
// clusters when it is asked.
func (AdminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: adminPath, Handler: caddy.AdminHandlerFunc(listClusters)}}
}

func listClusters(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	rt := process.Current()
	if rt == nil {
		return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: errors.New("proxyauth is not running")}
	}
	list, synced := rt.Statuses()
	if !synced {
		return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: errors.New("the proxy has not read its clusters yet")}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(list)
}

// Interface guard.
var _ caddy.AdminRouter = (*AdminAPI)(nil)
