package hub

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/apifault"
)

// health says in the log when the hub cannot be asked, and when it can be
// again: once, however many watches retry.
type health struct {
	logger *zap.Logger
	now    func() time.Time

	mu     sync.Mutex
	listed bool
	// faults holds the watches that fail now.
	faults map[string]apifault.Class
	// refused holds the refusals that last.
	refused map[string]apifault.Refusal
	// lost says that the absence of the hub was logged; lostAt is when that was
	// last.
	lost   bool
	lostAt time.Time
}

// flapEvery is how often a hub that comes and goes is logged.
const flapEvery = time.Minute

func newHealth(logger *zap.Logger) *health {
	return &health{logger: logger, now: time.Now, faults: map[string]apifault.Class{}, refused: map[string]apifault.Refusal{}}
}

// setListed says that the first full list is in memory.
func (h *health) setListed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listed = true
}

// report takes the result of a request for a list or a watch.
func (h *health) report(ctx context.Context, resource string, err error) {
	if ctx.Err() != nil {
		return
	}
	fault, ok := apifault.Of(err)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[resource] = fault
	if fault == apifault.Away {
		h.away(resource, err)
		return
	}
	h.answered()
	if fault == apifault.None {
		h.worked(resource)
		return
	}
	h.refuse(resource, fault, err)
}

// answered ends an absence once no watch misses the hub any more.
func (h *health) answered() {
	if !h.lost {
		return
	}
	for _, fault := range h.faults {
		if fault == apifault.Away {
			return
		}
	}
	h.lost = false
	h.logger.Info("the hub apiserver answers again")
}

func (h *health) worked(resource string) {
	if h.refused[resource].Logged() {
		h.logger.Info("the hub can be asked for "+resource+" again", zap.String("resource", resource))
	}
	delete(h.refused, resource)
}

func (h *health) away(resource string, err error) {
	pause := flapEvery
	if h.lost {
		pause = apifault.RemindEvery
	}
	if now := h.now(); h.lostAt.IsZero() || now.Sub(h.lostAt) >= pause {
		h.lost, h.lostAt = true, now
		text := "the hub apiserver cannot be asked; going on from what was last read"
		if !h.listed {
			text = "the hub apiserver cannot be asked; no cluster is served before it was read once"
		}
		h.logger.Warn(text, zap.String("resource", resource), apifault.Field(err))
	}
}

// refuse logs a refusal that lasts.
func (h *health) refuse(resource string, fault apifault.Class, err error) {
	last := h.refused[resource]
	if last.Class != fault {
		last = apifault.Refusal{Class: fault}
	}
	due := last.Due(h.now())
	h.refused[resource] = last
	if !due {
		return
	}
	text := "the hub does not let the proxy list and watch " + resource
	switch fault {
	case apifault.Unauthorized:
		text = "the hub does not accept the credentials of the proxy"
	case apifault.Missing:
		text = "the hub does not know the resource: is the CRD of ProxyKubeApi installed?"
	}
	h.logger.Error(text, zap.String("resource", resource), apifault.Field(err))
}
