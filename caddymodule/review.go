package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// reviewer asks the apiserver whose a token is, over the relay's own connections
// (AUTH-8). It serves all versions of the cluster that share these.
func (c *cluster) reviewer() authn.Reviewer {
	base, ok := c.address()
	pair := c.pair
	return func(ctx context.Context, token string) (*authn.Review, error) {
		if !ok {
			return nil, badGateway("upstream_failed", badAddress)
		}
		subject, code, err := probe.Review(ctx, pair, base, token)
		if err = reviewError(code, err); err != nil {
			return nil, err
		}
		return &authn.Review{Name: subject.Name, Groups: subject.Groups}, nil
	}
}

// reviewError is a 401 for a token that the apiserver refuses, and for no other
// reason: what keeps the apiserver from an answer does not make a login wrong.
func reviewError(code int, err error) error {
	switch {
	case errors.Is(err, probe.ErrAnonymous):
		return unavailable("review_anonymous", "the cluster's apiserver did not see the token: what stands in front of it removes the Authorization header")
	case errors.Is(err, probe.ErrNoReview):
		return badGateway("review_failed", "what answers as the cluster's apiserver did not answer a SelfSubjectReview with one")
	case err != nil:
		return describeFailure(err)
	}
	switch code {
	case http.StatusCreated:
		return nil
	case http.StatusUnauthorized:
		return &authn.Unauthenticated{Reason: authn.ReasonApiserver}
	case http.StatusForbidden:
		return unavailable("review_forbidden", "the cluster's apiserver does not let the caller make a SelfSubjectReview: bind the ClusterRole system:basic-user to the group system:authenticated")
	case http.StatusNotFound:
		return unavailable("review_not_served", "the cluster's apiserver does not serve selfsubjectreviews of authentication.k8s.io/v1: Kubernetes has them from 1.28 on")
	case http.StatusTooManyRequests:
		return unavailable("review_failed", "the cluster's apiserver has too many requests to make a SelfSubjectReview now")
	}
	text := fmt.Sprintf("the cluster's apiserver answered a SelfSubjectReview with %d", code)
	if code >= http.StatusInternalServerError {
		return unavailable("review_failed", "%s", text)
	}
	return badGateway("review_failed", "%s", text)
}
