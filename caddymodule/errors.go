package caddymodule

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
)

// describeFailure makes a 502 of a transport error. The text says what kind of
// trouble it is. An address may stand in the log; what the apiserver sent may
// not, since it could echo a credential (SIG-3).
func describeFailure(err error) *refusal {
	refused := classifyFailure(err)
	var operation *net.OpError
	if errors.As(err, &operation) {
		refused.detail = fmt.Sprintf("%.256s", operation.Error())
	} else {
		refused.detail = fmt.Sprintf("%T", err)
	}
	return refused
}

func classifyFailure(err error) *refusal {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		alert        tls.AlertError
		record       tls.RecordHeaderError
		operation    *net.OpError
		resolve      *net.DNSError
		timeout      net.Error
	)
	switch {
	case errors.Is(err, upstream.ErrNotProcessed):
		return badGateway("not_processed", "the cluster's apiserver closed the connection and did not process the request: it can be sent again")
	case errors.Is(err, upstream.ErrUnexpectedSwitch):
		return badGateway("bad_upgrade", "the cluster's apiserver switched to a protocol that was not asked for")
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid):
		return badGateway("upstream_tls", "the certificate of the cluster's apiserver cannot be verified")
	case errors.As(err, &alert), errors.As(err, &record):
		return badGateway("upstream_tls", "the TLS handshake with the cluster's apiserver failed")
	case errors.As(err, &resolve):
		return badGateway("upstream_unreachable", "the address of the cluster's apiserver cannot be resolved")
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return badGateway("upstream_timeout", "the cluster's apiserver did not answer in time")
	case errors.As(err, &operation) && operation.Op == "dial":
		return badGateway("upstream_unreachable", "the cluster's apiserver cannot be reached")
	}
	return badGateway("upstream_failed", "the connection to the cluster's apiserver failed")
}

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
		return bodyTooLarge().write(w, r)
	}
	var (
		refused *refusal
		handled caddyhttp.HandlerError
	)
	if e.logger != nil && (!errors.As(err, &handled) || handled.StatusCode >= http.StatusInternalServerError) {
		e.logger.Error("handling a request", zap.Error(err), zap.String("method", r.Method), zap.String("host", r.Host))
	}
	if errors.As(err, &refused) {
		return refused.write(w, r)
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
