package idp

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/semaphore"
)

// What one endpoint is asked, for each class of tokens.
const (
	// maxCalls go on at once.
	maxCalls = 16
	// maxWaiting bounds what tokens hold that wait for their turn, in bytes.
	maxWaiting      = 16 << 20
	waitingOverhead = 4 << 10 // of a token, beside its bytes
	// So many tokens may be refused at once, and so many a second for long. A
	// token that is accepted counts for nothing, and ordinary use does not come
	// near it. An endpoint refuses 6,000 tokens at once and 300 a second at most,
	// of all three classes together, in no more than 48 calls at a time. Tokens
	// that are known cannot be made up, so that an attacker has two of the
	// classes, and one with a single address only sourceBurst and sourceRate.
	// Refusals cost an apiserver most: with each it closes its HTTP/2 connection,
	// and the next call needs a handshake.
	refusedBurst, refusedRate = 2000, 100
	// budgetWait is how long a token waits for its budget when that is used up,
	// so that a client that sends few at a time is slowed down and not turned
	// away: 10 of a source wait at most, and 40 of a class.
	budgetWait = 400 * time.Millisecond
	// So often an endpoint that fails is asked at once, and a second for long. A
	// token that met it faultTries times is not shown to it again for faultPause:
	// one client that repeats itself does not use up what all have.
	faultBurst, faultRate = 32, 5
	faultTries            = 3
	faultPause            = time.Second

	// maxKnown is how many good tokens are known.
	maxKnown = 10_000
)

// The answers for a token that is not asked about. They are no faults of the
// provider's and not shown as such.
const (
	TooManyWait    Fault = "too many tokens wait for it"
	tooManyRefused Fault = "too many tokens were refused lately"
	outOfTime      Fault = "it did not answer in time"
)

// IsLimit reports whether the endpoint was not asked because of the bounds of a
// Limiter.
func (f Fault) IsLimit() bool { return f == TooManyWait || f == tooManyRefused }

// Limiter bounds what an endpoint is asked that is shown tokens. It is safe for
// concurrent use.
type Limiter struct {
	now   func() time.Time
	sleep func(context.Context, time.Duration) (ok bool)
	last  LastFault

	// known is for tokens that were good before, quiet for strange tokens of
	// quiet sources, strange for all others.
	known, quiet, strange class

	mu      sync.Mutex
	sources *simplelru.LRU[string, *source]
	// good are strange tokens that turned out good, failed those that met a fault.
	good   *simplelru.LRU[tokenDigest, struct{}]
	failed *simplelru.LRU[tokenDigest, failure]
}

type tokenDigest = [sha256.Size]byte

// class is what tokens of one kind have of the endpoint. They take nothing of
// another kind's.
type class struct {
	calls, waiting *semaphore.Weighted
	// These are guarded by Limiter.mu.
	refusals, faults bucket
	fault            error // the last one met, for tokens that are not asked about
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

// NewLimiter makes a Limiter. now is the clock; onChange, if not nil, is told
// that Fault may have changed, and must not block.
func NewLimiter(now func() time.Time, onChange func()) *Limiter {
	l := &Limiter{
		now: now, sleep: sleep, last: LastFault{OnChange: onChange},
		sources: newLRU[string, *source](maxSources),
		good:    newLRU[tokenDigest, struct{}](maxKnown),
		failed:  newLRU[tokenDigest, failure](maxKnown),
	}
	for _, c := range []*class{&l.known, &l.quiet, &l.strange} {
		c.calls, c.waiting = semaphore.NewWeighted(maxCalls), semaphore.NewWeighted(maxWaiting)
		c.refusals = newBucket(refusedBurst, refusedRate, now())
		c.faults = newBucket(faultBurst, faultRate, now())
	}
	return l
}

func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	lru, _ := simplelru.NewLRU[K, V](size, nil) // it fails for a size below 1
	return lru
}

// Ask runs ask for a token when it is its turn, and returns what it returned: nil
// for a token that is good, an error with a Fault in its tree when the endpoint
// gave no usable answer, any other error for a token that is refused. A token that
// is not asked about gets a Fault, or the last error with one. verified says that
// the endpoint is known to have issued the token, so that it is no random text. It
// waits for its turn until ctx ends.
func (l *Limiter) Ask(ctx context.Context, token string, verified bool, ask func(context.Context) error) error {
	digest := sha256.Sum256([]byte(token))
	c, s, err := l.enter(verified, digest, SourceOf(ctx))
	if err != nil {
		return err
	}
	defer l.leave(s)
	n := int64(len(token) + waitingOverhead)
	if !c.waiting.TryAcquire(n) {
		return TooManyWait
	}
	defer c.waiting.Release(n)
	if err := l.turn(ctx, c, s); err != nil {
		return err
	}
	defer c.calls.Release(1)
	err = ask(ctx)
	l.settle(c, s, digest, err)
	return err
}

// enter returns the class of a token, and its source where the source matters. The
// error is the fault that the token met too often within faultPause.
func (l *Limiter) enter(verified bool, token tokenDigest, from string) (*class, *source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if f, ok := l.failed.Peek(token); ok && f.times >= faultTries && f.counts(now) {
		return nil, nil, f.err
	}
	if _, known := l.good.Get(token); known || verified {
		return &l.known, nil, nil
	}
	c, s := &l.strange, l.sourceLocked(from, now)
	if s.isQuiet(now) {
		c = &l.quiet
	}
	if s != nil {
		s.open++
	}
	return c, s, nil
}

func (l *Limiter) leave(s *source) {
	if s == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.open--
}

// turn waits for the turn of a token. If there is no error, its call has begun,
// and the budgets are without what a refusal would cost.
func (l *Limiter) turn(ctx context.Context, c *class, s *source) error {
	if c.calls.Acquire(ctx, 1) != nil {
		return outOfTime
	}
	wait, err := l.take(c, s)
	if err == nil && wait == 0 {
		return nil
	}
	c.calls.Release(1) // tokens that need not wait go on meanwhile
	if err != nil {
		return err
	}
	if !l.sleep(ctx, wait) || c.calls.Acquire(ctx, 1) != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.putBackLocked(c, s)
		return outOfTime
	}
	return nil
}

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

// take takes from the budgets what a refusal would cost, and returns how long to
// wait for that.
func (l *Limiter) take(c *class, s *source) (wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if c.faults.wait(now) > 0 {
		return 0, c.fault
	}
	wait = c.refusals.wait(now)
	if s != nil {
		wait = max(wait, s.refusals.wait(now))
	}
	if wait > budgetWait {
		return 0, tooManyRefused
	}
	c.refusals.take()
	if s != nil {
		s.refusals.take()
	}
	return wait, nil
}

func (l *Limiter) putBackLocked(c *class, s *source) {
	c.refusals.putBack()
	if s != nil {
		s.refusals.putBack()
	}
}

// settle counts what a call ended with.
func (l *Limiter) settle(c *class, s *source, token tokenDigest, err error) {
	var (
		fault Fault
		about tokenFault
		now   = l.now()
	)
	failed := errors.As(err, &fault)
	defer func() { l.last.Set(fault, now) }() // without the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if failed {
		l.failedLocked(token, err, now)
		if !errors.As(err, &about) {
			c.fault = err
			c.faults.take()
			l.putBackLocked(c, s)
		}
	} else {
		c.faults.fill()
	}
	switch {
	case err == nil:
		l.putBackLocked(c, s)
		if c != &l.known {
			l.good.Add(token, struct{}{})
		}
	case !failed:
		l.good.Remove(token)
	}
	if err != nil && s != nil {
		// A source that has an endpoint fail by what it shows is not quiet either.
		s.refusedAt = now
	}
}

// failedLocked notes a fault that a token met.
func (l *Limiter) failedLocked(token tokenDigest, err error, now time.Time) {
	f, ok := l.failed.Peek(token)
	if !ok || !f.counts(now) {
		f = failure{since: now}
	}
	f.err = err
	f.times++
	l.failed.Add(token, f)
}

// counts reports whether faultPause has not passed yet.
func (f *failure) counts(now time.Time) bool {
	since := now.Sub(f.since)
	return 0 <= since && since < faultPause
}

// Fault is what went wrong with the last call, empty for nothing or when that is
// long ago.
func (l *Limiter) Fault() Fault { return l.last.Get(l.now()) }
