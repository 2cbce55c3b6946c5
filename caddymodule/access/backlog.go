package access

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What one caller may make this process hold (RELAY-7).
const (
	// HeldByAnswer is what an answer that its caller does not read holds, in
	// bytes: the window of its HTTP/2 stream from the apiserver, and the buffers
	// and goroutines of the request.
	HeldByAnswer = 640 << 10
	// heldByRequest is what a request holds that waits for a place, in bytes.
	heldByRequest = 24 << 10
	// maxPlaces is how many answers of a caller may hold bytes at a time: 40 MiB.
	maxPlaces = 40 << 20 / HeldByAnswer
	// maxWaiting is how many requests of a caller wait for a place: 24 MiB. A
	// thousand requests that a program sends at once all find room.
	maxWaiting = 24 << 20 / heldByRequest

	// placeWait is how long a request waits for a place.
	placeWait = 10 * time.Second
	// unreadAfter is how long a write must take before its caller counts as one
	// who does not read.
	unreadAfter = 2 * time.Second
	// manyWriting is how many writes of answers without a place may be under way
	// before the backlog is looked at soon: quiet streams of one caller that all
	// have something to write at once.
	manyWriting = maxPlaces / 4
	// idleAfter is how long an answer must have written nothing before it counts
	// as one that has nothing to write.
	idleAfter = 100 * time.Millisecond
	// noProgress is how long a write may take at all.
	noProgress = 2 * time.Minute

	// The backlog is looked at this often while requests wait, while answers
	// without a place are open, and otherwise.
	sweepContended = 50 * time.Millisecond
	sweepCrowded   = time.Second
	sweepQuiet     = 10 * time.Second
)

// ErrBacklog says that a caller has so many answers under way that it does not
// read, or so many requests that wait behind them, that no further one is sent.
var ErrBacklog = errors.New("too many requests: answers to earlier ones are not read")

// Backlog bounds what callers who do not read their answers make this process
// hold. An answer that may hold bytes has one of the places of its caller. A
// request without a place waits for one; meanwhile an answer that has nothing to
// write, such as a quiet watch, gives its place up, and one that is not read is
// cut, the one that has waited longest first. So a caller who reads never
// notices the places, and one who does not read loses the oldest answers.
//
// It is safe for concurrent use.
type Backlog struct {
	mu      sync.Mutex
	callers map[string]*caller
	timer   *time.Timer
	// next is when the timer fires, zero while there is nothing to look at.
	next time.Time
}

// caller is the answers of one caller.
type caller struct {
	// writing counts the writes under way of answers without a place.
	writing atomic.Int64

	open    map[*Entry]struct{}
	places  int
	waiting []*Entry // in order of arrival
}

// Entry is a request under way, and its answer.
type Entry struct {
	backlog *Backlog
	name    string
	caller  *caller
	cut     func()

	// blocked is when the write under way began, idle when the last one ended,
	// in nanoseconds of Unix time; the other one is 0.
	blocked, idle atomic.Int64
	// placed says that the answer has a place, and changes under the lock of the
	// backlog alone; counted says that the write under way is counted by the caller.
	placed, counted atomic.Bool

	// Guarded by the lock of the backlog.
	granted chan struct{} // closed with placed, nil unless it waits
	left    bool
}

// NewBacklog makes an empty one.
func NewBacklog() *Backlog { return &Backlog{callers: make(map[string]*caller)} }

// Enter begins a request of a caller. It waits while the caller has no place
// free, and returns ErrBacklog when that takes too long or too many requests wait
// already, or the error of ctx. cut must end the answer, whose write may be under
// way; it must not block, and is called before Leave returns or not at all.
func (b *Backlog) Enter(ctx context.Context, name string, cut func()) (*Entry, error) {
	a := &Entry{backlog: b, name: name, cut: cut}
	a.idle.Store(time.Now().UnixNano())
	b.mu.Lock()
	c := b.callers[name]
	if c == nil {
		c = &caller{open: make(map[*Entry]struct{})}
		b.callers[name] = c
	}
	a.caller = c
	switch {
	case c.places < maxPlaces:
		a.place()
		c.open[a] = struct{}{}
		b.lookWithin(sweepQuiet)
		b.mu.Unlock()
		return a, nil
	case len(c.waiting) >= maxWaiting:
		b.mu.Unlock()
		return nil, ErrBacklog
	}
	a.granted = make(chan struct{})
	c.waiting = append(c.waiting, a)
	b.lookWithin(sweepContended)
	b.mu.Unlock()
	return a.await(ctx)
}

// await waits for a place.
func (a *Entry) await(ctx context.Context) (*Entry, error) {
	timer := time.NewTimer(placeWait)
	defer timer.Stop()
	var err error
	select {
	case <-a.granted:
		return a, nil
	case <-timer.C:
		err = ErrBacklog
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	a.Leave()
	return nil, err
}

// Leave ends a request. It may be called again.
func (a *Entry) Leave() {
	b := a.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.left {
		return
	}
	a.left = true
	c := a.caller
	delete(c.open, a)
	c.waiting = slices.DeleteFunc(c.waiting, func(other *Entry) bool { return other == a })
	a.unplace()
	c.grant()
	if len(c.open) == 0 && len(c.waiting) == 0 {
		delete(b.callers, a.name)
	}
}

// Writing says that a write to the caller begins.
func (a *Entry) Writing() {
	a.idle.Store(0)
	a.blocked.Store(time.Now().UnixNano())
	if a.placed.Load() {
		return
	}
	a.counted.Store(true)
	if a.caller.writing.Add(1) > manyWriting {
		b := a.backlog
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lookWithin(sweepContended)
	}
}

// Written says that it has ended.
func (a *Entry) Written() {
	if a.counted.CompareAndSwap(true, false) {
		a.caller.writing.Add(-1)
	}
	a.blocked.Store(0)
	a.idle.Store(time.Now().UnixNano())
}

func (a *Entry) place() {
	if a.placed.CompareAndSwap(false, true) {
		a.caller.places++
	}
}

func (a *Entry) unplace() {
	if a.placed.CompareAndSwap(true, false) {
		a.caller.places--
	}
}

// grant gives free places to those that wait.
func (c *caller) grant() {
	for len(c.waiting) > 0 && c.places < maxPlaces {
		a := c.waiting[0]
		c.waiting = c.waiting[1:]
		a.place()
		a.idle.Store(time.Now().UnixNano())
		c.open[a] = struct{}{}
		close(a.granted)
	}
}

// lookWithin has the backlog looked at soon. The lock is held.
func (b *Backlog) lookWithin(d time.Duration) {
	next := time.Now().Add(d)
	if !b.next.IsZero() && !next.Before(b.next) {
		return
	}
	b.next = next
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.look)
		return
	}
	b.timer.Reset(d)
}

// look cuts what must not go on, and finds places for what waits.
func (b *Backlog) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = time.Time{}
	now := time.Now()
	for _, c := range b.callers {
		b.lookWithin(c.look(now))
	}
}

// look is Backlog.look for one caller. It returns when to look again.
func (c *caller) look(now time.Time) time.Duration {
	var unread []*Entry
	withoutPlace := 0
	for a := range c.open {
		blocked, idle := a.since(now)
		switch {
		case blocked >= noProgress:
			a.end()
		case blocked >= unreadAfter:
			a.place()
			unread = append(unread, a)
		case blocked == 0 && idle >= idleAfter && len(c.waiting) > 0:
			a.unplace()
		}
		if !a.placed.Load() {
			withoutPlace++
		}
	}
	c.grant()
	slices.SortFunc(unread, func(a, b *Entry) int { return cmp.Compare(a.blocked.Load(), b.blocked.Load()) })
	excess := max(0, c.places-maxPlaces)
	if len(c.waiting) > 0 {
		excess += len(c.waiting)
	}
	for _, a := range unread[:min(excess, len(unread))] {
		a.end()
	}
	switch {
	case len(c.waiting) > 0, c.writing.Load() > manyWriting:
		return sweepContended
	case withoutPlace > 0:
		return sweepCrowded
	}
	return sweepQuiet
}

// since is how long the write under way has taken, or how long none has been.
func (a *Entry) since(now time.Time) (blocked, idle time.Duration) {
	if at := a.blocked.Load(); at != 0 {
		return max(1, now.Sub(time.Unix(0, at))), 0
	}
	if at := a.idle.Load(); at != 0 {
		return 0, now.Sub(time.Unix(0, at))
	}
	return 1, 0 // between two writes
}

// end cuts an answer that has not left. Its place is free when it leaves.
func (a *Entry) end() {
	if !a.left {
		a.cut()
	}
}
