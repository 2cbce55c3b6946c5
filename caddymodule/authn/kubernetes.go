package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// Reviewer asks the cluster's apiserver about the bearer of a token, over the
// connections of the relay (AUTH-8). It is probe.Review without the parameters
// that say which apiserver.
type Reviewer func(ctx context.Context, token string) (subject probe.Subject, code int, err error)

// kubernetes leaves the verdict on a token to the apiserver that it is meant for
// (Kubernetes, AUTH-8).
type kubernetes struct {
	review Reviewer
	limits *idp.Limiter
	now    func() time.Time
	// ttl is how long an answer is remembered.
	ttl time.Duration
}

func (f *Factory) newKubernetes(review Reviewer) *kubernetes {
	return &kubernetes{
		review: review,
		limits: idp.NewLimiter(f.cache.now, nil),
		now:    f.cache.now,
		ttl:    f.options.TokenCacheTTL,
	}
}

// Authenticate implements Validator: it has the apiserver review a token. Whether
// the token has expired, and whether it is a token at all, is for the apiserver to
// say.
func (k *kubernetes) Authenticate(ctx context.Context, token string) (*Result, error) {
	subject, err := k.ask(ctx, token)
	if err != nil {
		return nil, err
	}
	until := k.now().Add(k.ttl)
	// The apiserver takes the token for a good one: its exp may shorten that.
	if exp, ok := claimedExpiry(token); ok && exp.Before(until) {
		until = exp
	}
	return &Result{Identity: claims.Plain(subject.Name, subject.Groups), Expires: until, until: until}, nil
}

// ask asks the apiserver within the bounds that identity providers have too, so
// that strange tokens do not become a flood there.
func (k *kubernetes) ask(ctx context.Context, token string) (subject probe.Subject, err error) {
	err = k.limits.Ask(ctx, token, false, func(ctx context.Context) error {
		answer, code, err := k.review(ctx, token)
		subject = answer
		return reviewError(code, err)
	})
	var (
		refused *Unauthenticated
		failed  *ReviewFailure
	)
	switch {
	case err == nil:
		return subject, nil
	case errors.As(err, &refused):
		return subject, refused
	case errors.As(err, &failed):
		return subject, failed
	}
	return subject, notServed("review_limited", "the cluster's apiserver is not asked whose the token is: %s", err)
}

// reviewError is nil for a review that names a user, and an *Unauthenticated for
// a token that the apiserver refuses and for no other reason: what keeps the
// apiserver from an answer does not make a login wrong. A failure that would meet
// every caller has an idp.Fault in its tree.
func reviewError(code int, err error) error {
	switch {
	case errors.Is(err, probe.ErrAnonymous):
		return everyCaller(notServed("review_anonymous", "the cluster's apiserver did not see the token: what stands in front of it removes the Authorization header"))
	case errors.Is(err, probe.ErrNoReview):
		return everyCaller(badAnswer("what answers as the cluster's apiserver did not answer a SelfSubjectReview with one"))
	case errors.Is(err, boundedjson.ErrNoSlot):
		return everyCaller(notServed("review_failed", "the cluster's apiserver answered a SelfSubjectReview with over 64 KiB, and too many such answers are read at once"))
	case err != nil:
		return everyCaller(&ReviewFailure{Err: err})
	}
	switch code {
	case http.StatusCreated:
		return nil
	case http.StatusUnauthorized:
		return errApiserver
	case http.StatusForbidden:
		// It is about this caller, and others may be let.
		return notServed("review_forbidden", "the cluster's apiserver does not let the caller make a SelfSubjectReview: bind the ClusterRole system:basic-user to the group system:authenticated")
	case http.StatusNotFound:
		return everyCaller(notServed("review_not_served", "the cluster's apiserver does not serve selfsubjectreviews of authentication.k8s.io/v1: Kubernetes has them from 1.28 on"))
	case http.StatusTooManyRequests:
		return everyCaller(notServed("review_failed", "the cluster's apiserver has too many requests to answer a SelfSubjectReview"))
	}
	text := fmt.Sprintf("the cluster's apiserver answered a SelfSubjectReview with %d", code)
	if code >= http.StatusInternalServerError {
		return everyCaller(notServed("review_failed", "%s", text))
	}
	failed := everyCaller(badAnswer(text))
	if code/100 == 4 {
		// What stands in front of the apiserver may take no such long header.
		return idp.AboutToken(failed)
	}
	return failed
}

func notServed(reason, format string, args ...any) *ReviewFailure {
	return &ReviewFailure{Status: http.StatusServiceUnavailable, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func badAnswer(message string) *ReviewFailure {
	return &ReviewFailure{Status: http.StatusBadGateway, Reason: "review_failed", Message: message}
}

// everyCaller marks a failure that is not about one caller.
func everyCaller(f *ReviewFailure) error { return errors.Join(f, idp.Fault(f.Error())) }

// Refresh implements Validator: an apiserver is asked with a token only.
func (k *kubernetes) Refresh() {}

// Faults implements Validator: whether the apiserver answers is the condition
// Reachable (REC-6).
func (k *kubernetes) Faults() []string { return nil }

// AsksApiserver implements Validator.
func (k *kubernetes) AsksApiserver() bool { return true }

// Close implements Validator.
func (k *kubernetes) Close() {}

// Interface guard.
var _ Validator = (*kubernetes)(nil)
