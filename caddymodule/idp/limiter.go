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
	// So many tokens may be refused at once, and so many a second for long. A
	// token that is accepted counts for nothing, and ordinary use does not come
	// near it. What an endpoint has to refuse in all, of all three classes
	// together, is 6,000 tokens at once and 300 a second, in no more than 48 calls
	// at a time. Tokens that are known cannot be made up, so that an attacker has
	// two of the classes, and one with a single address only sourceBurst and
	// sourceRate. Refusals cost an apiserver most: with each it closes its HTTP/2
	// connection, and the next call needs a handshake.
	refusedBurst, refusedRate = 2000, 100
	// lateLimit is how long a token waits for its budget when that is used up,
	// so that one who sends few at a time is slowed down and not turned away:
	// 10 of a source wait at most, and 40 of a class.
	lateLimit = 400 * time.Millisecond
	// So often an endpoint that fails is asked at once, and a second for long.
	// A token that met it faultTries times is not shown to it again for
	// faultPause: one client that repeats itself does not use up what all have.
	faultBurst, faultRate = 32, 5
	faultTries            = 3
	faultPause            = time.Second

	// maxKnown is how many good tokens are known.
	maxKnown = 10_000
	// FaultAge is how long a fault is shown that nobody has met since.
	FaultAge = 5 * time.Minute
)

// The answers for a token that is not asked about. They are no faults of the
// provider's and not shown as such.
const (
	TooManyWait    Fault = "too many tokens wait for it"
	tooManyRefused Fault = "too many tokens were refused lately"
	outOfTime      Fault = "it did not answer in time"
)

// IsLimit reports whether nobody was asked because of the bounds of a Limiter.
func (f Fault) IsLimit() bool { return f == TooManyWait || f == tooManyRefused }

// Limiter bounds what an endpoint is asked that is shown tokens, whoever asks
// it. It is safe for concurrent use.
type Limiter struct {
	now      func() time.Time
	sleep    func(context.Context, time.Duration) (ok bool)
	onChange func()

	// quiet is for strange tokens of sources that are quiet, strange for all
	// others.
	known, quiet, strange class

	mu      sync.Mutex
	sources *simplelru.LRU[string, *source]
	// good are digests of strange tokens that turned out good.
	good *simplelru.LRU[[sha256.Size]byte, struct{}]
	// failed are digests of tokens that met a fault.
	failed  *simplelru.LRU[[sha256.Size]byte, failure]
	fault   Fault
	faultAt time.Time
}

// failure is what a token met, since when and how often.
type failure struct {
	err   error
	since time.Time
	times int
}

// AboutToken marks a fault that may lie with the token which the endpoint was
// asked about, such as an answer with another content than it should have: it
// counts as a refusal does, and keeps no other token from being asked about. nil
// stays nil.
func AboutToken(err error) error {
	if err == nil {
		return nil
	}
	return tokenFault{err}
}

type tokenFault struct{ error }

func (t tokenFault) Unwrap() error { return t.error }

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
	failed, _ := simplelru.NewLRU[[sha256.Size]byte, failure](maxKnown, nil)
	sources, _ := simplelru.NewLRU[string, *source](maxSources, nil)
	l := &Limiter{now: now, sleep: sleep, onChange: onChange, good: good, failed: failed, sources: sources}
	for _, c := range []*class{&l.known, &l.quiet, &l.strange} {
		c.calls = make(chan struct{}, maxCalls)
		c.refusals = newBudget(refusedBurst, refusedRate, now())
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
	if err := l.failedLately(digest); err != nil {
		return err
	}
	class, source := l.enter(verified, digest, sourceOf(ctx))
	defer l.leave(source)
	n := int64(len(token) + waitingOverhead)
	defer class.waiting.Add(-n)
	if class.waiting.Add(n) > maxWaiting {
		return TooManyWait
	}
	if err := l.turn(ctx, class, source); err != nil {
		return err
	}
	defer class.finish()
	err := ask(ctx)
	l.end(class, source, digest, err)
	return err
}

// failedLately is the fault that a token met too often within faultPause.
func (l *Limiter) failedLately(token [sha256.Size]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.failed.Peek(token)
	if !ok || f.times < faultTries || !f.counts(l.now()) {
		return nil
	}
	return f.err
}

// counts reports whether that time has not passed yet.
func (f *failure) counts(now time.Time) bool {
	since := now.Sub(f.since)
	return 0 <= since && since < faultPause
}

// failedLocked notes a fault.
func (l *Limiter) failedLocked(token [sha256.Size]byte, err error, now time.Time) {
	f, ok := l.failed.Peek(token)
	if !ok || !f.counts(now) {
		f = failure{since: now}
	}
	f.err = err
	f.times++
	l.failed.Add(token, f)
}

// turn waits for the turn of a token. If there is no error, its call has begun,
// and the budgets are without what a refusal would cost.
func (l *Limiter) turn(ctx context.Context, c *class, s *source) error {
	if !c.start(ctx) {
		return outOfTime
	}
	late, err := l.take(c, s)
	if err != nil {
		c.finish()
		return err
	}
	if late == 0 {
		return nil
	}
	// Those who are not late go on meanwhile.
	c.finish()
	if !l.sleep(ctx, late) || !c.start(ctx) {
		l.giveBack(c, s)
		return outOfTime
	}
	return nil
}

// start begins a call when fewer than maxCalls go on. ok is false when ctx ends
// before that.
func (c *class) start(ctx context.Context) (ok bool) {
	select {
	case c.calls <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *class) finish() { <-c.calls }

// sleep reports whether ctx lasted as long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
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

// take takes from the budgets what a refusal would cost, and returns how long
// to wait for that.
func (l *Limiter) take(c *class, s *source) (late time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if c.faults.wait(now) > 0 {
		return 0, c.fault
	}
	late = c.refusals.wait(now)
	if s != nil {
		late = max(late, s.refusals.wait(now))
	}
	if late > lateLimit {
		return 0, tooManyRefused
	}
	c.refusals.take()
	if s != nil {
		s.refusals.take()
	}
	return late, nil
}

func (l *Limiter) giveBack(c *class, s *source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBackLocked(c, s)
}

func (l *Limiter) giveBackLocked(c *class, s *source) {
	c.refusals.giveBack()
	if s != nil {
		s.refusals.giveBack()
	}
}

// end settles the account of a call.
func (l *Limiter) end(c *class, s *source, token [sha256.Size]byte, err error) {
	l.mu.Lock()
	before, now := l.fault, l.now()
	var (
		fault Fault
		about tokenFault
	)
	switch failed := errors.As(err, &fault); {
	case failed:
		l.fault, l.faultAt = fault, now
		l.failedLocked(token, err, now)
		if !errors.As(err, &about) {
			c.fault = err
			c.faults.take()
			l.giveBackLocked(c, s)
		}
	case err != nil:
		l.fault = ""
		c.faults.fill()
		l.good.Remove(token)
	default:
		l.fault = ""
		c.faults.fill()
		l.giveBackLocked(c, s)
		if c != &l.known {
			l.good.Add(token, struct{}{})
		}
	}
	if err != nil && s != nil {
		// Whoever has an endpoint fail by what he shows it is not quiet either.
		s.refusedAt = now
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
