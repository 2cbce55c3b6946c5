package idp

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// What one endpoint is asked, separately for tokens that are known and for
// all others.
const (
	// maxCalls go on at once.
	maxCalls = 16
	// maxWaiting bounds what tokens hold that wait for their turn, in bytes.
	maxWaiting      = 16 << 20
	waitingOverhead = 4 << 10 // of a token, beside its bytes
	// So many strange tokens may be refused at once, and so many a second for
	// long. A token that is accepted counts for nothing. Known ones cannot be
	// made up; many of them end together when their sessions are ended.
	refusedBurst, refusedRate = 100, 10
	endedBurst, endedRate     = 1000, 100
	// So often an endpoint that fails is asked at once, and a second for long.
	faultBurst, faultRate = 32, 5

	// maxKnown is how many good tokens are known.
	maxKnown = 10_000
	// FaultAge is how long a fault is shown that nobody has met since.
	FaultAge = 5 * time.Minute
)

// The answers for a token that is not asked about. They are no faults of the
// provider's and not shown as such.
const (
	tooManyWait    Fault = "too many tokens wait for it"
	tooManyRefused Fault = "too many tokens were refused lately"
	outOfTime      Fault = "it did not answer in time"
)

// Limiter bounds what an endpoint is asked that is shown tokens, whoever asks
// it. It is safe for concurrent use.
type Limiter struct {
	now      func() time.Time
	onChange func()

	// quiet is for strange tokens of sources that are quiet, strange for all
	// others.
	known, quiet, strange class

	mu      sync.Mutex
	sources *simplelru.LRU[string, *source]
	// good are digests of strange tokens that turned out good.
	good    *simplelru.LRU[[sha256.Size]byte, struct{}]
	fault   Fault
	faultAt time.Time
}

// class is how tokens of one kind share the endpoint. One kind does not take
// the place of the other.
type class struct {
	calls   chan struct{}
	waiting atomic.Int64
	// These are guarded by Limiter.mu.
	refusals, faults budget
	fault            error // the last one met, for those that are not asked about
}

// NewLimiter makes a Limiter. now is the clock; onChange, if not nil, is told
// that Fault may have changed, and must not block.
func NewLimiter(now func() time.Time, onChange func()) *Limiter {
	// These fail for a size below 1.
	good, _ := simplelru.NewLRU[[sha256.Size]byte, struct{}](maxKnown, nil)
	sources, _ := simplelru.NewLRU[string, *source](maxSources, nil)
	l := &Limiter{now: now, onChange: onChange, good: good, sources: sources}
	l.known.refusals = newBudget(endedBurst, endedRate, now())
	l.quiet.refusals = newBudget(refusedBurst, refusedRate, now())
	l.strange.refusals = newBudget(refusedBurst, refusedRate, now())
	for _, c := range []*class{&l.known, &l.quiet, &l.strange} {
		c.calls = make(chan struct{}, maxCalls)
		c.faults = newBudget(faultBurst, faultRate, now())
	}
	return l
}

// Ask runs ask for a token when it is its turn, and returns what it returned:
// nil for a token that is good, an error with a Fault in its tree when the
// endpoint gave no usable answer, any other error for a token that is refused.
// A token that is not asked about gets a Fault, or the last error with one.
// verified says that the endpoint is known to have issued the token, so that it
// is no random text. It waits for its turn until ctx ends.
func (l *Limiter) Ask(ctx context.Context, token string, verified bool, ask func(context.Context) error) error {
	digest := sha256.Sum256([]byte(token))
	class, source := l.enter(verified, digest, sourceOf(ctx))
	defer l.leave(source)
	n := int64(len(token) + waitingOverhead)
	defer class.waiting.Add(-n)
	if class.waiting.Add(n) > maxWaiting {
		return tooManyWait
	}
	select {
	case class.calls <- struct{}{}:
		defer func() { <-class.calls }()
	case <-ctx.Done():
		return outOfTime
	}
	if err := l.begin(class, source); err != nil {
		return err
	}
	err := ask(ctx)
	l.end(class, source, digest, err)
	return err
}

// enter returns the class of a token, and its source if that matters.
func (l *Limiter) enter(verified bool, token [sha256.Size]byte, from string) (*class, *source) {
	if verified {
		return &l.known, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.good.Get(token); ok {
		return &l.known, nil
	}
	now := l.now()
	source := l.enterLocked(from, now)
	if source.quiet(now) {
		return &l.quiet, source
	}
	return &l.strange, source
}

func (l *Limiter) leave(s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(s)
}

// begin takes from the budgets what a refusal would cost.
func (l *Limiter) begin(c *class, s *source) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if !c.faults.has(now) {
		return c.fault
	}
	if s != nil && !s.refusals.has(now) || !c.refusals.has(now) {
		return tooManyRefused
	}
	c.refusals.take()
	if s != nil {
		s.refusals.take()
	}
	return nil
}

// end settles the account of a call.
func (l *Limiter) end(c *class, s *source, token [sha256.Size]byte, err error) {
	l.mu.Lock()
	before := l.fault
	var fault Fault
	if errors.As(err, &fault) {
		l.fault, l.faultAt, c.fault = fault, l.now(), err
		c.faults.take()
	} else {
		l.fault = ""
		c.faults.fill()
	}
	if refused := err != nil && fault == ""; refused {
		l.good.Remove(token)
		if s != nil {
			s.refusedAt = l.now()
		}
	} else {
		c.refusals.giveBack()
		if s != nil {
			s.refusals.giveBack()
		}
	}
	if err == nil && c != &l.known {
		l.good.Add(token, struct{}{})
	}
	changed := before != l.fault
	l.mu.Unlock()
	if changed && l.onChange != nil {
		l.onChange()
	}
}

// Fault is what went wrong with the last call, empty for nothing or when that
// is long ago.
func (l *Limiter) Fault() Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now().Sub(l.faultAt) >= FaultAge {
		return ""
	}
	return l.fault
}

// budget is a token bucket in which what was taken can be given back.
type budget struct {
	left, most, rate float64
	at               time.Time
}

func newBudget(burst, perSecond float64, now time.Time) budget {
	return budget{left: burst, most: burst, rate: perSecond, at: now}
}

// has reports whether there is something to take.
func (b *budget) has(now time.Time) bool {
	if since := now.Sub(b.at); since > 0 {
		b.left = min(b.most, b.left+b.rate*since.Seconds())
	}
	b.at = now
	return b.left >= 1
}

func (b *budget) take()     { b.left-- }
func (b *budget) giveBack() { b.left = min(b.most, b.left+1) }
func (b *budget) fill()     { b.left = b.most }
