package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
)

func init() {
	caddy.RegisterModule(AdminAPI{})
}

// AdminAPI adds two lists to Caddy's admin API, in JSON: `GET /proxyauth/clusters`
// has the clusters this process knows, with their status, and `GET /proxyauth/files`
// the files of the directory that are refused.
type AdminAPI struct{}

// CaddyModule returns the Caddy module information.
func (AdminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.proxyauth",
		New: func() caddy.Module { return new(AdminAPI) },
	}
}

// The paths of the lists.
const (
	adminPath      = "/proxyauth/clusters"
	adminFilesPath = "/proxyauth/files"
)

// Routes returns the route of the list. Caddy builds admin routers without
// configuration and never cleans them up, so the handler finds the running
// clusters when it is asked.
func (AdminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{
		{Pattern: adminPath, Handler: caddy.AdminHandlerFunc(listed(func(rt *serving.Runtime) (any, bool) { return rt.Statuses() }))},
		{Pattern: adminFilesPath, Handler: caddy.AdminHandlerFunc(listed(func(rt *serving.Runtime) (any, bool) {
			return append([]directory.RefusedFile{}, rt.RefusedFiles()...), rt.Snapshot() != nil
		}))},
	}
}

// listed answers with a list of the running configuration.
func listed(list func(*serving.Runtime) (all any, synced bool)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error { return answerList(w, r, list) }
}

func answerList(w http.ResponseWriter, r *http.Request, all func(*serving.Runtime) (any, bool)) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("method not allowed")}
	}
	rt := process.Current()
	if rt == nil {
		return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: errors.New("proxyauth is not running")}
	}
	list, synced := all(rt)
	if !synced {
		return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: errors.New("the proxy has not read its clusters yet")}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(list)
}

// Interface guard.
var _ caddy.AdminRouter = (*AdminAPI)(nil)
