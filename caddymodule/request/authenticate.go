package request

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// authenticate validates the bearer. It takes the credential out of the request,
// so that nothing after it can pass it on by accident.
func authenticate(q *Request, d *Decision) *Refusal {
	header := q.r.Header
	if d.Cluster.Spec.Auth.DisableValidation {
		d.authorization = header["Authorization"]
		// A token among the subprotocols must not come into Caddy's own logs
		// (SIG-3).
		d.protocols = header["Sec-Websocket-Protocol"]
		delete(header, "Sec-Websocket-Protocol")
		return nil
	}
	token, err := authn.Bearer(header, d.upgrade == "websocket")
	if err != nil {
		return refuse(http.StatusUnauthorized, unauthorizedReason, "no_credential", err.Error())
	}
	identity.RemoveBearer(header, token)
	ctx := q.r.Context()
	if d.Cluster.Auth.AsksApiserver() {
		// The apiserver is about to be asked over the connections of the relay,
		// where a certificate that is an identity outranks the token (CERT-9).
		if reason := d.Cluster.Trust.AwaitVerdict(ctx); reason != "" {
			return notTrusted(d.Cluster.Spec.Mode, reason)
		}
	}
	result, err := d.Cluster.Auth.Authenticate(ctx, token)
	if err != nil {
		return notAuthenticated(q, d, err)
	}
	d.authentication = "ok"
	if result.WrongAudience {
		d.authentication = "wrong_audience"
	}
	d.result, d.Identity = result, result.Identity
	if d.Cluster.Spec.Mode != v1.ModeFrontProxy {
		// The exchanged token takes the place of the caller's (ID-4).
		d.authorization = []string{"Bearer " + cmp.Or(result.Bearer, token)}
	}
	return nil
}

// notAuthenticated keeps apart a credential at fault, which is a 401, and a
// provider that cannot be asked, which never is (AUTH-13).
func notAuthenticated(q *Request, d *Decision, err error) *Refusal {
	var refused *authn.Unauthenticated
	if errors.As(err, &refused) {
		d.authentication = "refused"
		r := refuse(http.StatusUnauthorized, unauthorizedReason, "unauthenticated", refused.Error())
		r.Audited = refused.Audited
		return r
	}
	if q.r.Context().Err() != nil {
		// The client left: that says nothing about the provider.
		d.authentication = "canceled"
		return clientClosedRequest
	}
	d.authentication = "unavailable"
	var unreviewed *authn.ReviewFailure
	if errors.As(err, &unreviewed) {
		return ofReview(unreviewed)
	}
	if errors.Is(err, authn.ErrSlow) {
		return unavailable("expressions_slow", authn.ErrSlow.Limit)
	}
	d.providerError = err
	var unjudged *authn.Unavailable
	if errors.As(err, &unjudged) && unjudged.Limit != "" {
		return unavailable("idp_limited", "the identity provider cannot be asked about this token now: "+unjudged.Limit)
	}
	return providerUnavailable
}
