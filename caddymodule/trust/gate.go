package trust

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

const (
	// ownCheck bounds the replica's own check of a set (TRUST-3, CERT-9).
	ownCheck = 5 * time.Second
	// askAgain is how long a closed gate waits before it asks again.
	askAgain = time.Second
)

// Verdict is what a check found out, as far as a Gate cares. The zero value is
// one that is not there yet.
type Verdict interface {
	// Effect is what it means to the requests that wait.
	Effect() probe.Effect
	// Kind tells verdicts apart whose texts may differ.
	Kind() string
}

// Gate keeps requests from an apiserver until a check has shown that they may
// pass: that it honours the proxy (TRUST-3), or that a client certificate is
// nobody's there (CERT-9). It belongs to one set and is never handed to
// another. The zero value is not usable; see NewGate.
//
// An open gate costs one atomic load. What it has learned decides who may
// change it (TRUST-4):
//
//	so far      Passes   Refuses        Believed       Inconclusive
//	nothing     opens    stays closed   opens          stays closed
//	Believed    stays    closes         stays open     closes
//	Passes      stays    closes         stays open     stays open
//	Refuses     opens    stays closed   stays closed   stays closed
//
// Age changes nothing.
type Gate[V Verdict] struct {
	open    atomic.Bool
	changed func()

	mu sync.Mutex
	// state is what a status says. Nothing inconclusive replaces a refusal.
	state State[V]
	// passed says that the set has once passed, refused that it was refused
	// since.
	passed, refused bool
	// asked is when the last check ended.
	asked time.Time
	// flight is closed when the check under way ends, nil while there is none.
	flight chan struct{}
}

// State is the verdict that stands, for a status.
type State[V Verdict] struct {
	Verdict V
	// Since is when the verdict became one of this kind, Checked when a check
	// last confirmed it; zero while there was none.
	Since, Checked time.Time
}

// NewGate returns a closed gate. changed is called after each verdict of
// another kind than the one before; nil is nobody.
func NewGate[V Verdict](changed func()) *Gate[V] { return &Gate[V]{changed: changed} }

// Open reports whether requests may pass.
func (g *Gate[V]) Open() bool { return g.open.Load() }

// Check asks, for a request that found the gate closed: look at Open again
// afterwards. Requests that come together share one check; after one that left
// the gate closed, the next is made a second later at the earliest, and until
// then its verdict stands. The error is that of ctx: the request went away.
//
// A check does not end with the request that caused it, since others wait for
// it too. It is given 5 s.
func (g *Gate[V]) Check(ctx context.Context, check func(context.Context) V) error {
	g.mu.Lock()
	if g.open.Load() || g.justAsked() {
		g.mu.Unlock()
		return nil
	}
	if g.flight == nil {
		g.start(check)
	}
	flight := g.flight
	g.mu.Unlock()
	select {
	case <-flight:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Recheck asks again behind a request, without keeping it waiting: one that
// the standing verdict refused, or one that casts doubt on it. It asks at most
// once a second, like Check.
func (g *Gate[V]) Recheck(check func(context.Context) V) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flight == nil && !g.justAsked() {
		g.start(check)
	}
}

// justAsked reports whether it is too early to ask again.
func (g *Gate[V]) justAsked() bool {
	return g.flight == nil && !g.asked.IsZero() && time.Since(g.asked) < askAgain
}

// start asks, with the lock held.
func (g *Gate[V]) start(check func(context.Context) V) {
	g.flight = make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), ownCheck)
		defer cancel()
		g.Observe(check(ctx))
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asked = time.Now()
		close(g.flight)
		g.flight = nil
	}()
}

// Observe takes in a verdict, wherever it was reached. A set that was refused
// stays so until one that passes, and one that has passed is not closed by a
// check that did not conclude (TRUST-4).
func (g *Gate[V]) Observe(v V) {
	if g.learn(v) && g.changed != nil {
		g.changed()
	}
}

// learn reports whether the verdict is of another kind than the one before.
func (g *Gate[V]) learn(v V) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch effect := v.Effect(); effect {
	case probe.Passes:
		g.open.Store(true)
		g.passed, g.refused = true, false
	case probe.Refuses:
		g.refuse()
	default:
		if g.refused {
			return false
		}
		if !g.passed {
			g.open.Store(effect == probe.Believed)
		}
	}
	now := time.Now()
	news = g.put(v, now)
	g.state.Checked = now
	return news
}

// Refuse closes the gate on the word of somebody else, which is no check: it is
// opened by one that passes only, as after a refusal of its own.
func (g *Gate[V]) Refuse(v V) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse()
	g.put(v, time.Now())
}

func (g *Gate[V]) refuse() {
	g.open.Store(false)
	g.refused = true
}

func (g *Gate[V]) put(v V, now time.Time) (news bool) {
	news = g.state.Since.IsZero() || g.state.Verdict.Kind() != v.Kind()
	if news {
		g.state.Since = now
	}
	g.state.Verdict = v
	return news
}

// Refused reports whether the gate was closed by a refusal.
func (g *Gate[V]) Refused() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// State returns the verdict that stands, for a status.
func (g *Gate[V]) State() State[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}
