package request

import (
	"context"
	"net/http"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Decision is what the checks found out about a request. The handler leaves it
// in the request's context for the transport.
type Decision struct {
	// Key is the cluster that the URL names; it may not exist. Cluster is the
	// one that serves the request, nil for none.
	Key     k8swatch.Key
	Cluster *serving.Cluster
	// Path is what goes upstream behind the path base, byte for byte.
	Path string
	// Identity is the proxy identity of the caller, nil while there is none and
	// with disable_validation; Forwarded is what the apiserver is told of it in
	// FrontProxy, nil otherwise.
	Identity  *identity.Identity
	Forwarded *identity.Forwarded
	// Upstream is the value that the dynamic upstreams named for this request
	// (CONF-1). The transport sends to no other.
	Upstream any

	// body is that of the answer, without a ReadCloser while there is none.
	body answerBody
	// subject names the caller among all callers of this process: the same name on
	// two clusters may be two people. Without an identity it is the client's
	// network.
	subject string
	// entry is the request in the backlog, nil for none.
	entry *access.Entry
	// inPath says that the path of the URL names the cluster.
	inPath bool

	snapshot *serving.Snapshot
	query    string
	parsed   access.Path
	result   *authn.Result
	// authorization is what goes upstream as Authorization in Passthrough.
	authorization []string
	// protocols are the subprotocols of a request that is not validated.
	protocols []string
	// upgrade is the lower-cased protocol of an upgrade request, or empty;
	// upgradeHeader is its Upgrade header as the client spelled it: Caddy passes it on
	// in lower case.
	upgrade       string
	upgradeHeader []string
	scrub         identity.ScrubOptions
	// impersonation is what `impersonation forward` passes on, whole; stripped
	// says that Impersonate-* headers were removed (ID-6).
	impersonation http.Header
	stripped      bool

	// What commit counts: the result of an authentication, why the provider
	// could not be asked, and why the identity is not forwarded.
	authentication  string
	providerError   error
	identityRefused string
}

type decisionKey struct{}

// WithDecision returns a request that carries a decision to the transport.
func WithDecision(r *http.Request, d *Decision) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), decisionKey{}, d))
}

// DecisionOf returns the decision on a request, nil when there is none.
func DecisionOf(ctx context.Context) *Decision {
	d, _ := ctx.Value(decisionKey{}).(*Decision)
	return d
}
