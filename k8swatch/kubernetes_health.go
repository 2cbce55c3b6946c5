package k8swatch

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// hubHealth says in the log when the hub cannot be asked, and when it can be
// again: once, however many watches retry.
type hubHealth struct {
	logger *zap.Logger
	now    func() time.Time

	mu     sync.Mutex
	listed bool
	// faults holds the watches that fail now.
	faults map[string]hubFault
	// refused holds the refusals that last.
	refused map[string]refusal
	// lost says that an absent hub was told, and lostAt when that was last.
	lost   bool
	lostAt time.Time
}

// refusal is an answer of the hub that lets nothing be read or written. An
// apiserver that starts refuses everybody for a moment, and does not know the
// CRDs, so that a refusal is told when it lasts.
type refusal struct {
	fault hubFault
	// since is when it began, or was told last; zero for none.
	since time.Time
	told  bool
}

// due takes note that the refusal stands, and says whether to tell it now.
func (r *refusal) due(now time.Time) bool {
	if r.since.IsZero() {
		r.since = now
		return false
	}
	pause := refusedFor
	if r.told {
		pause = remindEvery
	}
	if now.Sub(r.since) < pause {
		return false
	}
	r.since, r.told = now, true
	return true
}

type hubFault int

const (
	faultNone hubFault = iota
	faultAway
	faultForbidden
	faultUnauthorized
	faultMissing
)

const (
	// remindEvery is how often a fault that lasts is told again.
	remindEvery = 5 * time.Minute
	// refusedFor is how long a refusal lasts before it is told.
	refusedFor = 5 * time.Second
	// flapEvery is how often a hub that comes and goes is told.
	flapEvery = time.Minute
)

func newHubHealth(logger *zap.Logger) *hubHealth {
	return &hubHealth{logger: logger, now: time.Now, faults: map[string]hubFault{}, refused: map[string]refusal{}}
}

// setListed says that the first full list is in memory.
func (h *hubHealth) setListed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listed = true
}

// report takes the result of a request for a list or a watch.
func (h *hubHealth) report(ctx context.Context, resource string, err error) {
	if ctx.Err() != nil {
		return
	}
	fault, ok := faultOf(err)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[resource] = fault
	if fault == faultAway {
		h.away(resource, err)
		return
	}
	h.answered()
	if fault == faultNone {
		h.worked(resource)
		return
	}
	h.refuse(resource, fault, err)
}

// answered ends an absence once no watch misses the hub any more.
func (h *hubHealth) answered() {
	if !h.lost {
		return
	}
	for _, fault := range h.faults {
		if fault == faultAway {
			return
		}
	}
	h.lost = false
	h.logger.Info("the hub apiserver answers again")
}

func (h *hubHealth) worked(resource string) {
	if h.refused[resource].told {
		h.logger.Info("the hub can be asked for "+resource+" again", zap.String("resource", resource))
	}
	delete(h.refused, resource)
}

func (h *hubHealth) away(resource string, err error) {
	pause := flapEvery
	if h.lost {
		pause = remindEvery
	}
	if now := h.now(); h.lostAt.IsZero() || now.Sub(h.lostAt) >= pause {
		h.lost, h.lostAt = true, now
		text := "the hub apiserver cannot be asked; going on from what was last read"
		if !h.listed {
			text = "the hub apiserver cannot be asked; no cluster is served before it was read once"
		}
		h.logger.Warn(text, zap.String("resource", resource), errorText(err))
	}
}

// refuse tells of a refusal that lasts.
func (h *hubHealth) refuse(resource string, fault hubFault, err error) {
	last := h.refused[resource]
	if last.fault != fault {
		last = refusal{fault: fault}
	}
	due := last.due(h.now())
	h.refused[resource] = last
	if !due {
		return
	}
	text := "the hub does not let the proxy list and watch " + resource
	switch fault {
	case faultUnauthorized:
		text = "the hub does not accept the credentials of the proxy"
	case faultMissing:
		text = "the hub does not know the resource: is the CRD of ProxyKubeApi installed?"
	}
	h.logger.Error(text, zap.String("resource", resource), errorText(err))
}

// errorText puts what a server said on one bounded line.
func errorText(err error) zap.Field { return zap.String("error", bounded(err.Error(), maxMessage)) }

// faultOf says what an error means for the hub; ok is false when it means
// nothing: a watch that has grown too old, a server that asks for patience or
// does not know how to stream a list.
func faultOf(err error) (fault hubFault, ok bool) {
	switch {
	case err == nil:
		return faultNone, true
	case apierrors.IsForbidden(err):
		return faultForbidden, true
	case apierrors.IsUnauthorized(err):
		return faultUnauthorized, true
	case apierrors.IsNotFound(err):
		return faultMissing, true
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsTooManyRequests(err), apierrors.HasStatusCause(err, "ResourceVersionTooLarge"):
		return faultNone, false
	}
	return faultAway, true
}
