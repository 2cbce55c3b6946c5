package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

func init() {
	caddy.RegisterModule(Handler{})
}

// Handler decides whether a request may go to a Kubernetes apiserver, and with
// which identity. It finds the cluster that the request names, authenticates the bearer,
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
//
// Later handlers and the access log have these placeholders. In names of users
// and groups everything that is not printable and `%` are percent-encoded.
//
// Placeholder | Description
// ------------|------------
// `{http.auth.user.id}` | the caller, as the proxy knows it, without prefix
// `{http.auth.user.groups}` | the caller's groups, separated by commas; a comma in a group is `%2C`
// `{http.proxyauth.cluster}` | `<namespace>/<name>` of the cluster, empty for an unknown one
// `{http.proxyauth.mode}` | the mode of the cluster
// `{http.proxyauth.upstream_user}` | the user that the apiserver is told, in FrontProxy
// `{http.proxyauth.reason}` | why the proxy refused the request, as in the audit log; else empty
type Handler struct {
	// The cluster of every request that comes here, as `<namespace>/<name>`.
	// Placeholders may be used, such as `team-a/{http.request.host.labels.3}`.
	// An empty or unknown name is answered with 404. By default the path of
	// the request names the cluster.
	Cluster string `json:"cluster,omitempty"`

	app    *App
	config request.Config
	// name is the cluster where Cluster has no placeholder.
	name request.Name
}

// CaddyModule returns the Caddy module information.
func (Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.proxyauth",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision finds the app, makes Caddy's own 413 a Status (RELAY-6), follows
// the connections of the server (STREAM-2), gives it room for long headers and warns
// of a timeout that ends streams.
func (h *Handler) Provision(ctx caddy.Context) error {
	app, err := findApp(ctx)
	if err != nil {
		return err
	}
	if err := fillOptions(h.table()); err != nil {
		return err
	}
	h.app = app
	h.config = request.Config{
		Clusters:      app.runtime,
		Impersonation: app.impersonation,
		// Cookies pass in the host form alone: all clusters of the path form share
		// one origin.
		KeepCookies: app.keepCookies && h.Cluster != "",
		Backlog:     process.Backlog,
		Lifetime:    app.lifetime,
		Logger:      ctx.Logger(),
		Audit:       app.audit,
	}
	h.name = constantName(h.Cluster)
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		installErrorRoute(server, app.logger.Named("error"))
		server.RegisterConnState(process.Connections.Observe)
		raiseMaxHeader(server, app.logger)
		warnOfWriteTimeout(server, app.logger)
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

// ServeHTTP decides, and hands an accepted request to next.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.ProtoMajor == 1 && request.HasBody(r) {
		// Without this the server reads the rest of the body before it sends
		// an answer, and a client that waits for "100 Continue" waits in vain.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	q := request.New(w, r, &h.config, h.nameOf(r), clientIP(r.Context()))
	defer q.Finish()
	repl := replacerOf(r)
	if repl != nil {
		repl.Map(q.Placeholder)
	}
	for {
		d, refused := q.Decide()
		if d.Identity != nil && repl != nil {
			// What another handler knew of the user would come first.
			repl.Delete(request.PlaceholderUser)
			repl.Delete(request.PlaceholderGroups)
		}
		if refused != nil {
			return q.Refuse(refused)
		}
		if refused := q.Enter(); refused != nil {
			return q.Refuse(refused)
		}
		err := handOn(q, r, d, next)
		if q.DecideAgain(err) {
			continue
		}
		if isBodyTooLarge(err) {
			err = request.BodyTooLarge
		}
		return q.Fail(err)
	}
}

// handOn gives an accepted request to next.
func handOn(q *request.Request, r *http.Request, d *request.Decision, next caddyhttp.Handler) error {
	growStack(0)
	r = request.WithDecision(r, d)
	// reverse_proxy logs it at debug level, and a query can hold a token (SIG-3).
	// The query itself is sent from the URL.
	r.RequestURI, _, _ = strings.Cut(r.RequestURI, "?")
	return next.ServeHTTP(q, r)
}

// stackRoom is what reverse_proxy and its log take of a goroutine's stack, in
// bytes.
const stackRoom = 20 << 10

// growStack makes the stack large enough for the rest of a request, at once.
// HTTP/2 starts a goroutine for each request, with a small stack that doubles
// when it is full. Each time the runtime walks and copies all frames, and deep
// in reverse_proxy there are many.
//
//go:noinline
func growStack(at int) byte {
	var room [stackRoom]byte
	room[at] = 1
	return room[len(room)-1-at]
}

// nameOf finds the cluster a request is for.
func (h *Handler) nameOf(r *http.Request) request.Name {
	if !strings.Contains(h.Cluster, "{") {
		return h.name
	}
	repl := replacerOf(r)
	if repl == nil {
		return request.Name{}
	}
	key, _ := parseClusterName(repl.ReplaceAll(h.Cluster, ""))
	return request.Name{Key: key}
}

// constantName reads a cluster without placeholders; without one at all, the
// path names it.
func constantName(cluster string) request.Name {
	key, _ := parseClusterName(cluster)
	return request.Name{InPath: cluster == "", Key: key}
}

func replacerOf(r *http.Request) *caddy.Replacer {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return repl
}

// clientIP is the address Caddy settled on from the peer and trusted_proxies,
// without the zone of an IPv6 address.
func clientIP(ctx context.Context) string {
	ip, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	ip, _, _ = strings.Cut(ip, "%")
	return ip
}

// isBodyTooLarge recognises the limit of Caddy's request_body handler.
func isBodyTooLarge(err error) bool {
	if request.IsBodyTooLarge(err) {
		return true
	}
	var herr caddyhttp.HandlerError
	return errors.As(err, &herr) && herr.StatusCode == http.StatusRequestEntityTooLarge
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
