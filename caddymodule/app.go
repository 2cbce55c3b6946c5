package caddymodule

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
)

func init() {
	caddy.RegisterModule(App{})
}

// process is what all instances of the modules in this process share.
var process = serving.NewProcess(liveLog(), clientIP)

// App holds what all clusters of this proxy have in common: where their
// ProxyKubeApi objects are read from, and what the proxy admin allows their
// authors. The handler `proxyauth` relays to them.
//
// What it holds outlives a reload: clusters, connections, open streams and the election of
// the leader go on, unless an option of this app that shapes them changed. No
// change to a cluster needs a reload.
type App struct {
	// Read the objects from a Kubernetes API, the hub, and write their status
	// and Events there. While the hub cannot be reached, clusters are served as
	// they were last read; a process that starts meanwhile is not ready. Exactly one of
	// `kubernetes` and `directory` must be set.
	Kubernetes *KubernetesSource `json:"kubernetes,omitempty"`

	// Read the objects (ProxyKubeApi, Secret, ConfigMap) from the `*.yaml`,
	// `*.yml` and `*.json` files of this directory, and follow its changes. This
	// process then acts as the leader. Exactly one of `kubernetes` and
	// `directory` must be set.
	Directory string `json:"directory,omitempty"`

	// The proxy's own namespace, in which it looks for front-proxy
	// certificates and for its own, and which holds the Lease of the leader.
	// Default: the environment variable POD_NAMESPACE, else the namespace of
	// the pod, else `proxyauth`.
	Namespace string `json:"namespace,omitempty"`

	// The values of `upstream_auth.mode` that objects may use. Passthrough
	// must be among them. Default: `["Passthrough"]`.
	AllowedModes []string `json:"allowed_modes,omitempty"`

	// What happens to a token of an OidcProvider that is for another audience
	// than this cluster's, or for an audience that cannot be determined:
	// `enforce` refuses it, `warn` accepts it, counts it and logs it once a
	// minute, `off` accepts it. JwtAuthenticators always checks the audience.
	// A cluster in FrontProxy is closed unless this is `enforce`. Default: the environment variable
	// OIDC_AUDIENCE_VALIDATION, else `enforce`.
	AudienceValidation string `json:"audience_validation,omitempty"`

	// What happens to a client's `Impersonate-*` headers: `strip` removes them
	// and warns the client, `deny` refuses the request, `forward` passes
	// them in FrontProxy, where the apiserver checks the asserted user's own
	// right to impersonate. Default: `strip`.
	Impersonation string `json:"impersonation,omitempty"`

	// Whether cookies of clients and apiservers pass: `on` or `off`. In the path
	// form they never do. Default: `off`.
	ProxyCookies string `json:"proxy_cookies,omitempty"`

	// Where no object may lead the proxy: CIDRs, addresses, DNS names, names that
	// begin with `*.` for all names below, and the words `loopback`, `link-local`
	// and `unspecified`. It holds for the URLs of apiservers, issuers and token
	// endpoints, and for those that an issuer names. An address is judged when it
	// is dialled, whatever the name was; a name is compared as it is written.
	// `none` alone denies nothing. Default: with `kubernetes`
	// `["loopback", "link-local", "unspecified"]`, with `directory` `["none"]`.
	DeniedTargets []string `json:"denied_targets,omitempty"`

	// Whether objects may use `auth_config.disable_validation`, which relays any
	// bearer: `on` or `off`. With `off` such an object is refused. Default: `on`.
	DisableValidation string `json:"disable_validation,omitempty"`

	// Namespaces whose Secrets and ConfigMaps an object of any namespace
	// may refer to. Default: none; an object refers to its own namespace only.
	ReferenceNamespaces []string `json:"reference_namespaces,omitempty"`

	// How long a CA or client certificate that is read from the hub by name is
	// used before it is read again, at most 45s. It has no effect with a
	// directory, which is watched as a whole. Default: the
	// environment variable PROXY_UPSTREAM_CLIENT_TTL, else 300s.
	UpstreamClientTTL Duration `json:"upstream_client_ttl,omitempty"`

	// How long the answer of an identity provider (userinfo, introspection) or
	// of an apiserver about a token may be used again, never beyond the end of
	// the token. A revoked token is accepted for that long. JwtAuthenticators
	// needs no such answer. Default: the environment variable
	// OIDC_TOKEN_CACHE_TTL, else 30s.
	TokenCacheTTL Duration `json:"token_cache_ttl,omitempty"`

	// How often the leader asks each apiserver whether it answers and whether it
	// honours the proxy, at least 1s. Default: 60s.
	ProbeInterval Duration `json:"probe_interval,omitempty"`

	// The base of the server URLs in kubeconfigs, or a template with
	// `{namespace}` and `{name}`. This version makes no kubeconfigs.
	PublicURL string `json:"public_url,omitempty"`

	// A file with the CA of `public_url`, when it is not a public one.
	PublicCA string `json:"public_ca,omitempty"`

	logger *zap.Logger
	audit  *zap.Logger
	ctx    caddy.Context

	impersonation request.Impersonation
	keepCookies   bool

	runtime *serving.Runtime

	events *caddyevents.App
	// unsubscribe ends the events, nil while there are none.
	unsubscribe func()

	// inForce says that all apps of this configuration have started.
	inForce bool
	// lifetime tells the handlers when another configuration takes the place of this
	// one.
	lifetime *request.Lifetime
	// displaced is the logger that Start replaced.
	displaced *zap.Logger
}

// KubernetesSource says how the hub's API is reached. An empty one suits a pod.
type KubernetesSource struct {
	// A kubeconfig file. Default: the configuration of the pod, then the files
	// that the environment variable KUBECONFIG names.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// The namespaces whose ProxyKubeApis are served, and whose Services are
	// watched. Default: all.
	WatchNamespaces []string `json:"watch_namespaces,omitempty"`

	// A label selector, such as `proxy=edge,tier!=test`: only ProxyKubeApis with
	// these labels are served, and have their status written. It tells several
	// installations on one hub apart. Default: all.
	ObjectSelector string `json:"object_selector,omitempty"`

	// The name of the Lease, in the proxy's own namespace, by which the
	// replicas elect the one that writes status and probes on schedule. `off`:
	// this process acts as the leader; with several replicas all would.
	// Default: `proxyauthk8s`.
	LeaderElection string `json:"leader_election,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "proxyauth",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision checks the options and takes a reference on the runtime, which
// outlives this configuration. It does no network I/O.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.logger = ctx.Logger()
	a.audit = a.logger.Named("audit")
	a.lifetime = new(request.Lifetime)
	options, err := a.options()
	if err != nil {
		return err
	}
	if err := registerMetrics(ctx); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := a.followEvents(ctx); err != nil {
		return err
	}
	a.runtime, err = process.Acquire(options)
	return err
}

// Start lets the runtime read its clusters. An origin that cannot be read is an
// error here; later it changes nothing. Whatever is in force stays so: another
// app of this configuration may yet fail to start.
func (a *App) Start() error {
	a.displaced = process.Log.Swap(a.logger)
	return a.runtime.Start()
}

// started hears that all apps have started: from now on this configuration is
// in force.
func (a *App) started() {
	a.inForce = true
	a.unsubscribe = process.Events.Subscribe(a.emit)
	a.runtime.TakeOver()
	a.warnOfGaps()
}

// Stop does nothing: the runtime goes on for the configuration that replaces
// this one, and Cleanup releases it.
func (a *App) Stop() error { return nil }

// Cleanup gives the reference on the runtime back. It runs after a failed
// Provision or Start too.
func (a *App) Cleanup() error {
	if !a.inForce {
		process.Log.Restore(a.displaced, a.logger)
	}
	if a.unsubscribe != nil {
		a.unsubscribe()
	}
	if a.runtime != nil {
		process.Release(a.runtime)
	}
	return nil
}

// followEvents takes part in the life of the process. Caddy emits "started"
// when all apps of this configuration have started, and "stopping" before it
// stops anything, on a reload too.
func (a *App) followEvents(ctx caddy.Context) error {
	mod, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	a.events = mod.(*caddyevents.App)
	return errors.Join(a.events.On("started", eventHandler{a.started}), a.events.On("stopping", eventHandler{a.stopping}))
}

// emit hands an event to Caddy. A configuration that has ended takes no more.
func (a *App) emit(name string, data map[string]any) {
	if a.ctx.Err() == nil {
		a.events.Emit(a.ctx, name, data)
	}
}

// shutdownTimes are Caddy's own two: how long the listeners stay after the
// signal, and how long requests may then take.
func (a *App) shutdownTimes() (delay, grace time.Duration) {
	grace = defaultGrace
	mod, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return 0, grace
	}
	if app, ok := mod.(*caddyhttp.App); ok {
		delay = time.Duration(app.ShutdownDelay)
		if app.GracePeriod > 0 {
			grace = time.Duration(app.GracePeriod)
		}
	}
	return delay, grace
}

// findApp returns the configured app. Unlike ctx.App alone it does not make
// one from nothing.
func findApp(ctx caddy.Context) (*App, error) {
	mod, err := ctx.AppIfConfigured("proxyauth")
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, errors.New("the global option proxyauth is missing: it says where the clusters are read from")
	}
	if err != nil {
		return nil, err
	}
	return mod.(*App), nil
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
