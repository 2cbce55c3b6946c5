package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

func init() {
	caddy.RegisterModule(Handler{})
}

// Handler decides whether a request may go to a Kubernetes apiserver, and as
// whom. It finds the cluster that the request names, authenticates the bearer,
// and checks what the ProxyKubeApi demands. A refused request is answered with
// a Kubernetes `v1` Status; any other is passed on, to a `reverse_proxy` whose
// `transport` and dynamic upstreams are `proxyauth`.
//
// Without `cluster` a request names its cluster by its path:
// `/clusters/<namespace>/<name>/<apiserver path>`, and whatever else it asks
// for is a 404.
//
// In a Caddyfile, the directive `proxyauth` writes this handler and the
// `reverse_proxy` behind it at once.
type Handler struct {
	// The cluster of every request that comes here, as `<namespace>/<name>`.
	// Placeholders may be used, such as `team-a/{http.request.host.labels.3}`.
	// An empty or unknown name is answered with 404. By default the path of
	// the request names the cluster.
	Cluster string `json:"cluster,omitempty"`

	app    *App
	logger *zap.Logger
	audit  *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.proxyauth",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision finds the app, makes Caddy's own 413 a Status (RELAY-6) and follows
// the connections of the server (STREAM-2).
func (h *Handler) Provision(ctx caddy.Context) error {
	app, err := findApp(ctx)
	if err != nil {
		return err
	}
	h.app = app
	h.logger = ctx.Logger()
	h.audit = app.audit
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		installErrorRoute(server, app.logger.Named("error"))
		server.RegisterConnState(clientConns.observe)
	}
	return nil
}

// Validate refuses a cluster name that can never be one.
func (h *Handler) Validate() error {
	if h.Cluster == "" || strings.Contains(h.Cluster, "{") {
		return nil
	}
	if _, ok := parseClusterName(h.Cluster); !ok {
		return errors.New("cluster must be <namespace>/<name>, with names of a-z, 0-9, '-' and '.'")
	}
	return nil
}

type decisionKey struct{}

// ServeHTTP decides, and hands an accepted request to next.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.ProtoMajor == 1 && hasBody(r) {
		// Without this the server reads the rest of the body before it sends
		// an answer, and a client that waits for "100 Continue" waits in vain.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	a := newAuditor(w, r, h.app.runtime, h.audit)
	defer a.finish()

	credential := credentialOf(r)
	for decided := 1; ; decided++ {
		d, refused := h.decide(r, a)
		if refused != nil {
			h.logDetail("refusing the request", a.served, refused)
			return a.refuse(refused, r)
		}
		err := h.relay(a, r, d, next)
		if !a.sent && decided < maxDecisions && isMoved(err) {
			credential.restore(r)
			continue
		}
		if a.sent {
			// Headers are out: an error can only be logged.
			if entry := h.logger.Check(zapcore.DebugLevel, "relaying the response"); err != nil && entry != nil {
				entry.Write(zap.Error(err), zap.Stringer("cluster", d.cluster.spec.Key))
			}
			return nil
		}
		return h.answerFailure(a, r, d, err)
	}
}

// relay hands an accepted request to next.
func (h *Handler) relay(a *auditor, r *http.Request, d *decision, next caddyhttp.Handler) error {
	r = r.WithContext(context.WithValue(r.Context(), decisionKey{}, d))
	// What reverse_proxy logs at debug level is this, and a query can hold a
	// token (SIG-3). The query itself is sent from the URL.
	r.RequestURI, _, _ = strings.Cut(r.RequestURI, "?")
	return next.ServeHTTP(a, r)
}

// maxDecisions bounds how often a request is decided whose cluster moves each
// time before the request is on its way.
const maxDecisions = 3

// isMoved reports whether nothing was sent because the cluster that the request
// was decided on had ended by then. What is in force now decides again: a change
// of service fails no request (CERT-8), and one that was removed is a 404.
func isMoved(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused == clusterMoved
}

// sentCredential is what a decision takes out of a request.
type sentCredential struct{ authorization, protocols []string }

func credentialOf(r *http.Request) sentCredential {
	return sentCredential{r.Header["Authorization"], r.Header["Sec-Websocket-Protocol"]}
}

func (c sentCredential) restore(r *http.Request) {
	if c.authorization != nil {
		r.Header["Authorization"] = c.authorization
	}
	if c.protocols != nil {
		r.Header["Sec-Websocket-Protocol"] = c.protocols
	}
}

// answerFailure turns what next returned instead of a response into a Status.
func (h *Handler) answerFailure(a *auditor, r *http.Request, d *decision, err error) error {
	var refused *refusal
	switch {
	case err == nil:
		refused = badGateway("not_relayed", "the proxy is not configured to relay this request: a reverse_proxy with the proxyauth transport must follow")
	case isBodyTooLarge(err):
		refused = bodyTooLarge()
	case r.Context().Err() != nil:
		a.WriteHeader(statusClientClosedRequest)
		return nil
	case !errors.As(err, &refused):
		// Not from the transport of this project: another handler stands between.
		refused = describeFailure(err)
	}
	h.logDetail("relaying the request", d.cluster, refused)
	return a.refuse(refused, r)
}

// logDetail logs what the client is not told: addresses of the proxy's network.
func (h *Handler) logDetail(doing string, c *cluster, refused *refusal) {
	if refused.detail != "" {
		h.logger.Warn(doing, zap.Stringer("cluster", c.spec.Key),
			zap.String("reason", refused.audit), zap.String("detail", refused.detail))
	}
}

// statusClientClosedRequest is what Caddy records when the client left.
const statusClientClosedRequest = 499

// isBodyTooLarge recognises the limit of Caddy's request_body handler.
func isBodyTooLarge(err error) bool {
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		return true
	}
	var herr caddyhttp.HandlerError
	return errors.As(err, &herr) && herr.StatusCode == http.StatusRequestEntityTooLarge
}

// clusterOf finds the cluster a request names and what is left of its path,
// both from the bytes the client sent (URL-1, URL-2).
func (h *Handler) clusterOf(r *http.Request, rawPath string) (key k8swatch.Key, rest string, ok bool) {
	if h.Cluster == "" {
		return splitClusterPath(rawPath)
	}
	name := h.Cluster
	if strings.Contains(name, "{") {
		repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		if repl == nil {
			return key, "", false
		}
		name = repl.ReplaceAll(name, "")
	}
	key, ok = parseClusterName(name)
	if rawPath == "" {
		rawPath = "/"
	}
	return key, rawPath, ok
}

// parseClusterName reads <namespace>/<name>.
func parseClusterName(s string) (k8swatch.Key, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || !validClusterPart(namespace) || !validClusterPart(name) {
		return k8swatch.Key{}, false
	}
	return k8swatch.Key{Namespace: namespace, Name: name}, true
}

func validClusterPart(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return true
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
