package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// Unreviewed says why an apiserver gave no verdict on a token: a 503, or a 502
// where it answered with nonsense or not at all.
type Unreviewed struct {
	BadGateway bool
	upstream.Failure
}

// Error is a sentence that callers may see.
func (u *Unreviewed) Error() string { return u.Message }

func unreviewed(reason, format string, args ...any) *Unreviewed {
	return &Unreviewed{Failure: upstream.Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

func badReview(reason, format string, args ...any) *Unreviewed {
	u := unreviewed(reason, format, args...)
	u.BadGateway = true
	return u
}

// reviewer asks an apiserver to which user a token belongs, over the relay's own connections
// (AUTH-8). It serves all versions of a cluster that share these.
type reviewer struct {
	pair   *upstream.Pair
	base   *url.URL
	limits *idp.Limiter
}

var errBadAddress = errors.New(trust.BadAddress)

func newReviewer(c *Cluster) (*reviewer, error) {
	base, ok := trust.Address(c.Spec)
	if !ok {
		return nil, errBadAddress
	}
	return &reviewer{pair: c.Relay.Pair, base: base, limits: idp.NewLimiter(time.Now, nil)}, nil
}

// review is an authn.Reviewer. Strange tokens do not become a flood at the
// apiserver: it is asked about them as an identity provider is.
func (r *reviewer) review(ctx context.Context, token string) (*authn.Review, error) {
	var subject probe.Subject
	err := r.limits.Ask(ctx, token, false, func(ctx context.Context) error {
		answer, code, err := probe.Review(ctx, r.pair, r.base, token)
		subject = answer
		return reviewError(code, err)
	})
	var (
		refused    *authn.Unauthenticated
		unanswered *Unreviewed
	)
	switch {
	case err == nil:
		return &authn.Review{Name: subject.Name, Groups: subject.Groups}, nil
	case errors.As(err, &refused):
		return nil, refused
	case errors.As(err, &unanswered):
		return nil, unanswered
	}
	return nil, unreviewed("review_limited", "the cluster's apiserver is not asked whose the token is: %s", err)
}

// reviewError is nil for a review that names somebody, and a 401 for a token
// that the apiserver refuses and for no other reason: what keeps the apiserver
// from an answer does not make a login wrong. A fault of the apiserver has an
// idp.Fault in its tree.
func reviewError(code int, err error) error {
	switch {
	case errors.Is(err, probe.ErrAnonymous):
		return fault(unreviewed("review_anonymous", "the cluster's apiserver did not see the token: what stands in front of it removes the Authorization header"))
	case errors.Is(err, probe.ErrNoReview):
		return fault(badReview("review_failed", "what answers as the cluster's apiserver did not answer a SelfSubjectReview with one"))
	case errors.Is(err, boundedjson.ErrNoSlot):
		return fault(unreviewed("review_failed", "the cluster's apiserver answered a SelfSubjectReview with over 64 KiB, and too many such answers are read at once"))
	case err != nil:
		return fault(&Unreviewed{BadGateway: true, Failure: upstream.Describe(err)})
	}
	switch code {
	case http.StatusCreated:
		return nil
	case http.StatusUnauthorized:
		return &authn.Unauthenticated{Reason: authn.ReasonApiserver}
	case http.StatusForbidden:
		// No fault: it is about this caller, and others may be let.
		return unreviewed("review_forbidden", "the cluster's apiserver does not let the caller make a SelfSubjectReview: bind the ClusterRole system:basic-user to the group system:authenticated")
	case http.StatusNotFound:
		return fault(unreviewed("review_not_served", "the cluster's apiserver does not serve selfsubjectreviews of authentication.k8s.io/v1: Kubernetes has them from 1.28 on"))
	case http.StatusTooManyRequests:
		return fault(unreviewed("review_failed", "the cluster's apiserver has too many requests to answer a SelfSubjectReview"))
	}
	text := fmt.Sprintf("the cluster's apiserver answered a SelfSubjectReview with %d", code)
	if code >= http.StatusInternalServerError {
		return fault(unreviewed("review_failed", "%s", text))
	}
	failed := fault(badReview("review_failed", "%s", text))
	if code/100 == 4 {
		// What stands in front of the apiserver may take no such long header.
		return idp.AboutToken(failed)
	}
	return failed
}

// fault marks an answer as one that the apiserver owes to everybody.
func fault(r *Unreviewed) error { return errors.Join(r, idp.Fault(r.Message)) }
