package trust

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

const (
	// ownCheck bounds the replica's own check of a certificate (TRUST-3, CERT-9).
	ownCheck = 5 * time.Second
	// askAgain is how long a closed gate waits before the next probe.
	askAgain = time.Second
)

// Verdict is the result of a probe. The zero value says that there is none yet.
type Verdict interface {
	// Effect says whether requests may pass.
	Effect() probe.Effect
	// Kind tells verdicts apart; two of one kind may have different messages.
	Kind() string
	// Doubt is why the verdict proves nothing, empty if it proves something.
	Doubt() string
}

// Gate keeps requests from an apiserver until a probe has shown that they may
// pass: that the apiserver honours the proxy (TRUST-3), or takes a client
// certificate for no identity (CERT-9). A gate belongs to one trust key and is
// never used for another. The zero value cannot be used; see NewGate.
//
// An open gate costs one atomic load. What a verdict does depends on the verdicts
// before it (TRUST-4):
//
//	before       Passes   Refuses        Provisional    Inconclusive
//	none         opens    stays closed   opens          stays closed
//	Provisional  stays    closes         stays open     closes
//	Passes       stays    closes         stays open     stays open
//	Refuses      opens    stays closed   stays closed   stays closed
//
// A verdict does not age.
type Gate[V Verdict] struct {
	open    atomic.Bool
	changed func()

	mu sync.Mutex
	// state is what a status shows. An inconclusive verdict does not replace a
	// refusal.
	state State[V]
	// passed: a probe has once passed. refused: one has refused since then.
	passed, refused bool
	// asked is when the last check ended.
	asked time.Time
	// flight is closed when the check under way ends, nil while there is none.
	flight chan struct{}
}

// State is the current verdict, as a status shows it.
type State[V Verdict] struct {
	Verdict V
	// Since is when the verdict became one of this kind, Checked when a check
	// last confirmed it; zero while there was none.
	Since, Checked time.Time
}

// NewGate returns a closed gate. changed, which may be nil, is called after each
// verdict of another kind than the one before.
func NewGate[V Verdict](changed func()) *Gate[V] { return &Gate[V]{changed: changed} }

// Open reports whether requests may pass.
func (g *Gate[V]) Open() bool { return g.open.Load() }

// Check probes the apiserver for a request that found the gate closed; the caller
// looks at Open afterwards. Requests that come together share one probe. After a
// probe that left the gate closed the next one is made a second later at the
// earliest, and until then its verdict holds. The error is that of ctx: the
// request was canceled.
//
// A probe goes on when the request that caused it is canceled, since others wait
// for it too. It may take 5 s.
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

// Reprobe probes the apiserver in the background, because the gate refused a
// request or because a response casts doubt on the verdict. It probes at most
// once a second, like Check.
func (g *Gate[V]) Reprobe(check func(context.Context) V) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flight == nil && !g.justAsked() {
		g.start(check)
	}
}

// justAsked reports whether it is too early for the next probe.
func (g *Gate[V]) justAsked() bool {
	return g.flight == nil && !g.asked.IsZero() && time.Since(g.asked) < askAgain
}

// start begins a probe. The lock is held.
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

// Observe takes in the verdict of a probe that ran on schedule. After a refusal only
// a verdict that passes opens the gate, and an inconclusive verdict does not
// close a gate that has passed (TRUST-4).
func (g *Gate[V]) Observe(v V) {
	if g.learn(v) && g.changed != nil {
		g.changed()
	}
}

// learn reports whether the verdict is of another kind than the one before.
func (g *Gate[V]) learn(v V) (changed bool) {
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
			g.open.Store(effect == probe.Provisional)
		}
	}
	now := time.Now()
	changed = g.put(v, now)
	g.state.Checked = now
	return changed
}

// Refuse closes the gate because the leader's status says so. No time of a probe
// is noted. As after a refusal by a probe, only a probe that passes opens it.
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

func (g *Gate[V]) put(v V, now time.Time) (changed bool) {
	changed = g.state.Since.IsZero() || g.state.Verdict.Kind() != v.Kind()
	if changed {
		g.state.Since = now
	}
	g.state.Verdict = v
	return changed
}

// Refused reports whether the gate was closed by a refusal.
func (g *Gate[V]) Refused() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// State returns the current verdict, for a status.
func (g *Gate[V]) State() State[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}
