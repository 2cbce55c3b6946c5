package caddymodule

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
)

// errorStatus answers with a Status what no handler of ours could: Caddy's own
// 413, since request_body stands in front of the handler and refuses a declared
// length before it runs (RELAY-6), and the refusals of a transport without a
// handler before it (CONF-1).
type errorStatus struct {
	// logger is set where the server had no error routes: Caddy logs an error
	// at debug level once any error route ran.
	logger *zap.Logger
}

// ServeHTTP answers these and leaves every other error as it is.
func (e *errorStatus) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	err, _ := r.Context().Value(caddyhttp.ErrorCtxKey).(error)
	if err != nil && isBodyTooLarge(err) {
		return request.BodyTooLarge.Write(w, r)
	}
	var (
		refused *request.Refusal
		handled caddyhttp.HandlerError
	)
	if e.logger != nil && (!errors.As(err, &handled) || handled.StatusCode >= http.StatusInternalServerError) {
		e.logger.Error("handling a request", zap.Error(err), zap.String("method", r.Method), zap.String("host", r.Host))
	}
	if errors.As(err, &refused) {
		return refused.Write(w, r)
	}
	return next.ServeHTTP(w, r)
}

// installErrorRoute adds errorStatus behind the error routes that the
// configuration has, once a server. It must run while the server's routes are
// provisioned, before Caddy compiles its error routes.
func installErrorRoute(server *caddyhttp.Server, logger *zap.Logger) {
	e := new(errorStatus)
	if server.Errors == nil {
		server.Errors = new(caddyhttp.HTTPErrorConfig)
	}
	for _, route := range server.Errors.Routes {
		for _, h := range route.Handlers {
			if _, ok := h.(*errorStatus); ok {
				return
			}
		}
	}
	if len(server.Errors.Routes) == 0 {
		e.logger = logger
	}
	server.Errors.Routes = append(server.Errors.Routes, caddyhttp.Route{
		Handlers: []caddyhttp.MiddlewareHandler{e},
	})
}
