package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

const (
	// ownCheck bounds the replica's own check of a set (TRUST-3).
	ownCheck = 5 * time.Second
	// askAgain is how long a closed gate waits before it asks again.
	askAgain = time.Second
)

// Gate keeps requests from an apiserver until a probe has shown that it
// honours the proxy (TRUST-3). It belongs to one set and is never handed to
// another. The zero value is not usable; see NewGate.
//
// An open gate costs one atomic load. What it has learned decides who may
// change it (TRUST-4):
//
//	so far                    Trusted   Rejected, NotHonoured   Unknown, user named   Unknown
//	nothing                   opens     stays closed            opens                 stays closed
//	Unknown, user named       stays     closes                  stays open            closes
//	Trusted                   stays     closes                  stays open            stays open
//	Rejected, NotHonoured     opens     stays closed            stays closed          stays closed
//
// Age changes nothing.
type Gate struct {
	open atomic.Bool

	mu sync.Mutex
	// state is what a status says. An Unknown does not replace a refusal.
	state k8swatch.TrustState
	last  probe.Verdict // as in state
	// trusted says that the set was once seen Trusted, refused that it was
	// refused since.
	trusted, refused bool
	// asked is when the last check ended.
	asked time.Time
	// flight is closed when the check under way ends, nil while there is none.
	flight chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate { return new(Gate) }

// Open reports whether requests may pass.
func (g *Gate) Open() bool { return g.open.Load() }

// Check returns the verdict that stands after a request found the gate closed:
// look at Open again before refusing. Requests that come together share one
// check; after one that left the gate closed, the next is made a second later
// at the earliest, and until then its verdict stands. The error is that of
// ctx: the request went away.
//
// A check does not end with the request that caused it, since others wait for
// it too. It is given 5 s.
func (g *Gate) Check(ctx context.Context, check func(context.Context) probe.Verdict) (probe.Verdict, error) {
	g.mu.Lock()
	if g.open.Load() || g.flight == nil && !g.asked.IsZero() && time.Since(g.asked) < askAgain {
		defer g.mu.Unlock()
		return g.last, nil
	}
	if g.flight == nil {
		g.flight = make(chan struct{})
		go g.run(check)
	}
	flight := g.flight
	g.mu.Unlock()
	select {
	case <-flight:
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.last, nil
	case <-ctx.Done():
		return probe.Verdict{}, ctx.Err()
	}
}

// Recheck asks again behind a request, without keeping it waiting: one that
// the standing verdict refused, or one that casts doubt on it. It asks at most
// once a second, like Check.
func (g *Gate) Recheck(check func(context.Context) probe.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flight != nil || !g.asked.IsZero() && time.Since(g.asked) < askAgain {
		return
	}
	g.flight = make(chan struct{})
	go g.run(check)
}

func (g *Gate) run(check func(context.Context) probe.Verdict) {
	ctx, cancel := context.WithTimeout(context.Background(), ownCheck)
	defer cancel()
	verdict := probe.Verdict{Trust: v1.TrustUnknown, Message: "the probe ended without a verdict"}
	// A check that panics must not leave everybody waiting for it.
	defer func() {
		g.Observe(verdict)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asked = time.Now()
		close(g.flight)
		g.flight = nil
	}()
	verdict = check(ctx)
}

// Observe takes in a verdict, wherever it was reached. A set that was refused
// stays so until Trusted, and one that was Trusted is not closed by a probe
// that did not conclude (TRUST-4).
func (g *Gate) Observe(v probe.Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch v.Trust {
	case v1.TrustTrusted:
		g.open.Store(true)
		g.trusted, g.refused = true, false
	case v1.TrustRejected, v1.TrustNotHonoured:
		g.open.Store(false)
		g.refused = true
	default:
		if g.refused {
			return
		}
		if !g.trusted {
			// An apiserver that forbids the review itself, to the user we
			// asserted, has believed the proxy (TRUST-3).
			g.open.Store(v.NamesAssertedUser)
		}
	}
	g.last = v
	now := time.Now()
	if g.state.Trust != v.Trust {
		g.state.Since = now
	}
	g.state.Trust, g.state.Message, g.state.LastProbe = v.Trust, v.Message, now
}

// State returns the verdict that stands, for a status.
func (g *Gate) State() k8swatch.TrustState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}
