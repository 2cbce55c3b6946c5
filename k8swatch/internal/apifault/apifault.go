package apifault

import (
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Class is what the result of a request means for the proxy.
type Class int

// The classes of results.
const (
	// None: the request succeeded.
	None Class = iota
	// Away: the apiserver cannot be reached, or fails.
	Away
	// Forbidden: the proxy lacks a right.
	Forbidden
	// Unauthorized: the apiserver does not accept the proxy's credentials.
	Unauthorized
	// Missing: the apiserver does not know the resource.
	Missing
)

// Of classifies the error of a request. It is not ok for errors that mean
// nothing about the apiserver: a watch that has grown too old, a server that asks
// for patience or does not know how to stream a list.
func Of(err error) (class Class, ok bool) {
	switch {
	case err == nil:
		return None, true
	case apierrors.IsForbidden(err):
		return Forbidden, true
	case apierrors.IsUnauthorized(err):
		return Unauthorized, true
	case apierrors.IsNotFound(err):
		return Missing, true
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsTooManyRequests(err), apierrors.HasStatusCause(err, "ResourceVersionTooLarge"):
		return None, false
	}
	return Away, true
}

const (
	// RemindEvery is how often a fault that lasts is logged again.
	RemindEvery = 5 * time.Minute
	// RefusedFor is how long a refusal lasts before it is logged: an apiserver that
	// starts refuses everything for a moment, and does not know the CRDs yet.
	RefusedFor = 5 * time.Second
)

// Refusal follows one refusal (any class but None and Away) from its first
// occurrence on. The zero value is a refusal that has not occurred.
type Refusal struct {
	// Class is what the apiserver answered.
	Class Class
	// since is when the refusal began, or was logged last; zero for neither.
	since  time.Time
	logged bool
}

// Due notes that the refusal occurred, and reports whether to log it now.
func (r *Refusal) Due(now time.Time) bool {
	if r.since.IsZero() {
		r.since = now
		return false
	}
	pause := RefusedFor
	if r.logged {
		pause = RemindEvery
	}
	if now.Sub(r.since) < pause {
		return false
	}
	r.since, r.logged = now, true
	return true
}

// Logged reports whether the refusal was logged, so that its end is worth a line
// too.
func (r Refusal) Logged() bool { return r.logged }

// Field is the text of an error as a log field, on one line of bounded length.
func Field(err error) zap.Field {
	return zap.String("error", text.OneLine(err.Error(), k8swatch.MaxMessage))
}
