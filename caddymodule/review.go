package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// reviewer asks an apiserver whose a token is, over the relay's own connections
// (AUTH-8). It serves all versions of a cluster that share these.
type reviewer struct {
	pair   *upstream.Pair
	base   *url.URL
	limits *idp.Limiter
}

var errBadAddress = errors.New(badAddress)

func newReviewer(c *cluster) (*reviewer, error) {
	base, ok := c.address()
	if !ok {
		return nil, errBadAddress
	}
	return &reviewer{pair: c.pair, base: base, limits: idp.NewLimiter(time.Now, nil)}, nil
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
		unanswered *refusal
	)
	switch {
	case err == nil:
		return &authn.Review{Name: subject.Name, Groups: subject.Groups}, nil
	case errors.As(err, &refused):
		return nil, refused
	case errors.As(err, &unanswered):
		return nil, unanswered
	}
	return nil, unavailable("review_limited", "the cluster's apiserver is not asked whose the token is: %s", err)
}

// reviewError is nil for a review that names somebody, and a 401 for a token
// that the apiserver refuses and for no other reason: what keeps the apiserver
// from an answer does not make a login wrong. A fault of the apiserver has an
// idp.Fault in its tree.
func reviewError(code int, err error) error {
	switch {
	case errors.Is(err, probe.ErrAnonymous):
		return fault(unavailable("review_anonymous", "the cluster's apiserver did not see the token: what stands in front of it removes the Authorization header"))
	case errors.Is(err, probe.ErrNoReview):
		return fault(badGateway("review_failed", "what answers as the cluster's apiserver did not answer a SelfSubjectReview with one"))
	case errors.Is(err, boundedjson.ErrNoSlot):
		return fault(unavailable("review_failed", "the cluster's apiserver answered a SelfSubjectReview with over 64 KiB, and too many such answers are read at once"))
	case err != nil:
		return fault(describeFailure(err))
	}
	switch code {
	case http.StatusCreated:
		return nil
	case http.StatusUnauthorized:
		return &authn.Unauthenticated{Reason: authn.ReasonApiserver}
	case http.StatusForbidden:
		// No fault: it is about this caller, and others may be let.
		return unavailable("review_forbidden", "the cluster's apiserver does not let the caller make a SelfSubjectReview: bind the ClusterRole system:basic-user to the group system:authenticated")
	case http.StatusNotFound:
		return fault(unavailable("review_not_served", "the cluster's apiserver does not serve selfsubjectreviews of authentication.k8s.io/v1: Kubernetes has them from 1.28 on"))
	case http.StatusTooManyRequests:
		return fault(unavailable("review_failed", "the cluster's apiserver has too many requests to answer a SelfSubjectReview"))
	}
	text := fmt.Sprintf("the cluster's apiserver answered a SelfSubjectReview with %d", code)
	if code >= http.StatusInternalServerError {
		return fault(unavailable("review_failed", "%s", text))
	}
	failed := fault(badGateway("review_failed", "%s", text))
	if code/100 == 4 {
		// What stands in front of the apiserver may take no such long header.
		return idp.AboutToken(failed)
	}
	return failed
}

// fault marks an answer as one that the apiserver owes to everybody.
func fault(r *refusal) error { return errors.Join(r, idp.Fault(r.message)) }
