package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/access"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// decision is what the handler tells the transport of one accepted request.
type decision struct {
	cluster *cluster
	// result is whom the bearer belongs to, nil with disable_validation; id is
	// the proxy identity in it.
	result *authn.Result
	id     *identity.Identity
	// fwd is the forwarded identity in FrontProxy, nil otherwise.
	fwd *identity.Forwarded
	// authorization is what goes upstream as Authorization in Passthrough.
	authorization []string
	// protocols are the subprotocols of a request that nobody validated.
	protocols []string

	target requestTarget
	// upgrade is the lower-cased protocol of an upgrade request, or empty.
	upgrade string
	// asked is the Upgrade header of such a request as the client spelled it;
	// Caddy passes it on in lower case.
	asked []string
	scrub identity.ScrubOptions
	// impersonation is what `impersonation forward` passes on, whole.
	impersonation http.Header

	// upstream is the value the dynamic source named for this request
	// (CONF-1); the transport dials for nothing else.
	upstream *reverseproxy.Upstream
}

const impersonationIgnored = "the Impersonate-* headers were ignored: the proxy does not forward impersonation to this cluster"

// decide runs the checks of section 3 in their order and stops at the first
// that refuses. It reads the snapshot once, so one request sees one version of
// its cluster.
func (h *Handler) decide(r *http.Request, a *auditor) (*decision, *refusal) {
	// What was found out when the request was decided before counts no more.
	a.served, a.decision = nil, nil
	if refused := checkMethod(r); refused != nil {
		return nil, refused
	}
	snap := h.app.runtime.load()
	if snap == nil {
		return nil, unavailable("not_synced", "the proxy has not read its clusters yet")
	}
	target := targetOf(r)
	key, rest, ok := h.clusterOf(r, target.path)
	if !ok {
		a.path = target.path
		return nil, notFound()
	}
	a.namespace, a.cluster, a.path = key.Namespace, key.Name, rest
	c := snap.clusters[key]
	if c == nil || !c.spec.Enabled {
		return nil, notFound()
	}
	a.served = c
	target.path = rest

	if c.viaLoop(r.Header["Via"]) {
		return nil, refuse(http.StatusLoopDetected, reasonLoopDetected, "loop", "the request came back to this cluster through the proxy: its apiserver address leads here")
	}
	upgrade, refused := checkRequest(r, target)
	if refused != nil {
		return nil, refused
	}
	if refused := c.notReady(); refused != nil {
		return nil, refused
	}
	d := &decision{cluster: c, target: target, upgrade: upgrade}
	if upgrade != "" {
		d.asked = r.Header["Upgrade"]
	}
	a.decision = d
	if refused := h.authenticate(r, d); refused != nil {
		return nil, refused
	}
	return d, h.authorize(r, a, d)
}

// checkMethod is rows 1 and 2 of section 3.
func checkMethod(r *http.Request) *refusal {
	switch r.Method {
	case http.MethodConnect, http.MethodTrace:
		refused := refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "method_not_allowed", "the method is not allowed")
		refused.allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
		return refused
	case http.MethodGet, http.MethodHead:
		return nil
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete {
		return refuse(http.StatusTooEarly, reasonTooEarly, "early_data", "the request came as early data and may be a replay: send it again")
	}
	return nil
}

// checkRequest is row 6: dot segments, and the protocol of an upgrade.
func checkRequest(r *http.Request, target requestTarget) (upgrade string, refused *refusal) {
	if target.hasSpace() {
		return "", refuse(http.StatusBadRequest, "BadRequest", "bad_path", "the request target has a space")
	}
	if _, err := access.ParsePath(target.path); err != nil {
		if access.IsDotSegment(err) {
			return "", refuse(http.StatusBadRequest, "BadRequest", "dot_segment", "the path has a dot segment")
		}
		return "", refuse(http.StatusBadRequest, "BadRequest", "bad_path", "the path is not well formed: %s", err)
	}
	if !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") || len(r.Header["Upgrade"]) == 0 {
		return "", nil
	}
	if len(r.Header["Upgrade"]) == 1 {
		switch upgrade = strings.ToLower(strings.TrimSpace(r.Header["Upgrade"][0])); upgrade {
		case "websocket", "spdy/3.1":
			return upgrade, nil
		}
	}
	return "", refuse(http.StatusBadRequest, "BadRequest", "upgrade_protocol", "an upgrade to this protocol is not relayed: only websocket and SPDY/3.1 are")
}

// authenticate is row 9. It takes the credential out of the request, so that
// nothing after it can pass it on by accident.
func (h *Handler) authenticate(r *http.Request, d *decision) *refusal {
	if d.cluster.spec.Auth.DisableValidation {
		d.authorization = r.Header["Authorization"]
		// A token among the subprotocols must not come into Caddy's own logs
		// (SIG-3).
		d.protocols = r.Header["Sec-Websocket-Protocol"]
		delete(r.Header, "Sec-Websocket-Protocol")
		return nil
	}
	token, err := authn.Bearer(r.Header, d.upgrade == "websocket")
	if err != nil {
		return unauthorized("no_credential", err.Error())
	}
	if d.cluster.spec.Auth.ValidateAgainst == v1.ValidateKubernetes {
		// The apiserver is about to be asked over the connections of the relay,
		// where a certificate that is an identity outranks the token (CERT-9).
		if refused := d.cluster.admit(r.Context()); refused != nil {
			return refused
		}
	}
	result, err := h.whose(r.Context(), d.cluster, token)
	if err != nil {
		return d.cluster.notAuthenticated(r.Context(), err)
	}
	d.cluster.authenticated(result)
	d.result, d.id = result, result.Identity
	if d.cluster.spec.Mode != v1.ModeFrontProxy {
		// What the caller's token was exchanged for takes its place (ID-4).
		d.authorization = []string{"Bearer " + cmp.Or(result.Bearer, token)}
	}
	return nil
}

// whose finds out whom a token belongs to. A panic over it refuses the token: in
// the log of net/http it would stand with its value, which may quote it (SIG-3).
func (h *Handler) whose(ctx context.Context, c *cluster, token string) (result *authn.Result, err error) {
	defer func() {
		if recover() != nil {
			h.logger.Error("the validation of a token panicked; the token was refused",
				zap.Stringer("cluster", c.spec.Key), zap.ByteString("stack", debug.Stack()))
			result, err = nil, &authn.Unauthenticated{Reason: authn.ReasonInternal}
		}
	}()
	return c.auth.Authenticate(ctx, token)
}

// authenticated counts a token that was accepted, and warns of one for another
// audience (AUTH-7).
func (c *cluster) authenticated(result *authn.Result) {
	method, outcome := string(c.spec.Auth.ValidateAgainst), "ok"
	if result.WrongAudience {
		outcome = "wrong_audience"
		c.audience.warn("a token that is not for the audience of the cluster was accepted: audience_validation is warn", zap.Stringer("cluster", c.spec.Key))
	}
	authentications.WithLabelValues(method, outcome).Inc()
}

// notAuthenticated keeps apart a credential at fault, which is a 401, and a
// provider that cannot be asked, which never is (AUTH-13).
func (c *cluster) notAuthenticated(ctx context.Context, err error) *refusal {
	method := string(c.spec.Auth.ValidateAgainst)
	var refused *authn.Unauthenticated
	if errors.As(err, &refused) {
		authentications.WithLabelValues(method, "refused").Inc()
		return unauthorized("unauthenticated", refused.Error())
	}
	if ctx.Err() != nil {
		// The client left: that says nothing about the provider.
		authentications.WithLabelValues(method, "canceled").Inc()
		return refuse(statusClientClosedRequest, "ClientClosedRequest", "client_closed", "the client closed the request")
	}
	authentications.WithLabelValues(method, "unavailable").Inc()
	var unanswered *refusal
	if errors.As(err, &unanswered) {
		return unanswered
	}
	// The status tells what the leader met; this replica may meet another.
	c.idpFault.warn("a token could not be judged", zap.Stringer("cluster", c.spec.Key), zap.Error(err))
	var unjudged *authn.Unavailable
	if errors.As(err, &unjudged) && unjudged.Limit != "" {
		return unavailable("idp_limited", "the identity provider cannot be asked about this token now: %s", unjudged.Limit)
	}
	return unavailable("idp_unavailable", "the identity provider cannot be asked")
}

// authorize is rows 10 to 12.
func (h *Handler) authorize(r *http.Request, a *auditor, d *decision) *refusal {
	c := d.cluster
	if refused := c.forward(d); refused != nil {
		identityRefused.WithLabelValues(string(refused.Reason)).Inc()
		// What is refused is written nowhere, the audit line included.
		d.id = nil
		return forbidden("upstream_identity_refused", "%s", refused.Message())
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok && d.id != nil {
		repl.Set("http.auth.user.id", d.id.Name)
	}
	frontProxy := c.spec.Mode == v1.ModeFrontProxy
	if identity.HasImpersonation(r.Header) {
		switch {
		case h.app.impersonation == impersonationDeny:
			return forbidden("impersonation_denied", "impersonation is not allowed through this proxy")
		case h.app.impersonation == impersonationForward && frontProxy:
			d.scrub.KeepImpersonation = true
			d.impersonation = identity.Impersonation(r.Header)
		default:
			a.stripped = true
		}
	}
	d.scrub.KeepCookies = h.app.keepCookies && h.Cluster != ""
	if group := c.spec.RequiredGroup; group != "" && (d.id == nil || !access.InGroup(d.id.Groups, group)) {
		return forbidden("not_in_group", "not a member of group %s", group)
	}
	return nil
}
