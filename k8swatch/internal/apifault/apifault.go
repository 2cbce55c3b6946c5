package apifault

import (
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Refusal is an answer of the hub that refuses reads or writes. An apiserver that
// starts refuses all clients for a moment, and does not know the CRDs yet. So a
// refusal is logged only when it lasts.
type Refusal struct {
	Fault Class
	// since is when it began, or was told last; zero for none.
	since time.Time
	Told  bool
}

// Due takes note that the refusal stands, and says whether to tell it now.
func (r *Refusal) Due(now time.Time) bool {
	if r.since.IsZero() {
		r.since = now
		return false
	}
	pause := RefusedFor
	if r.Told {
		pause = RemindEvery
	}
	if now.Sub(r.since) < pause {
		return false
	}
	r.since, r.Told = now, true
	return true
}

type Class int

const (
	None Class = iota
	Away
	Forbidden
	Unauthorized
	Missing
)

const (
	// RemindEvery is how often a fault that lasts is logged again.
	RemindEvery = 5 * time.Minute
	// RefusedFor is how long a refusal lasts before it is logged.
	RefusedFor = 5 * time.Second
)

// Field puts what a server said on one bounded line.
func Field(err error) zap.Field {
	return zap.String("error", text.OneLine(err.Error(), k8swatch.MaxMessage))
}

// Of says what an error means for the hub; ok is false when it means
// nothing: a watch that has grown too old, a server that asks for patience or
// does not know how to stream a list.
func Of(err error) (fault Class, ok bool) {
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
