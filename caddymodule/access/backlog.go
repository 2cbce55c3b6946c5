package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What one caller, and all callers of one namespace, may make this process hold
// (RELAY-7).
const (
	// HeldByAnswer is what an answer that its caller does not read holds, in
	// bytes: the window of its HTTP/2 stream from the apiserver, and the buffers
	// and goroutines of the request.
	HeldByAnswer = 640 << 10
	// heldByRequest is what a request holds that waits for a place, in bytes, with
	// headers of usualHeader.
	heldByRequest = 24 << 10
	usualHeader   = 4 << 10
	// heldByField and heldByValue are what the name and a value of a header hold
	// beside their bytes.
	heldByField, heldByValue = 128, 16
	// maxPlaces is how many answers of a caller may hold bytes at a time: 40 MiB.
	maxPlaces = 40 << 20 / HeldByAnswer
	// maxWaiting is what the requests of a caller hold that wait for a place. A
	// thousand requests that a program sends at once all find room.
	maxWaiting = 24 << 20
	// tenantShare is how many callers who do not read one namespace may have.
	tenantShare      = 4
	maxTenantActive  = tenantShare * maxPlaces
	maxTenantWaiting = tenantShare * maxWaiting
	// fewActive is how many active answers a caller may have in a namespace that
	// has too many: its callers may all be honest, each with a slow link. Only
	// beyond maxTenantCrowd do they wait as well.
	fewActive      = 4
	maxTenantCrowd = 4 * maxTenantActive

	// placeWait is how long a request waits for a place.
	placeWait = 10 * time.Second
	// unreadAfter is how long a write must take before its caller counts as one
	// who does not read, and how much longer writes must have taken than the pauses
	// between them before he counts as one who reads slowly.
	unreadAfter = 2 * time.Second
	// maxBusy bounds what a slow time leaves behind: as much of a pause ends it.
	maxBusy = 2 * unreadAfter
	// manyWriting is how many writes of answers without a place may be under way
	// before the backlog is looked at soon: quiet streams of one caller that all
	// have something to write at once.
	manyWriting = maxPlaces / 4
	// idleAfter is how long an answer must have written nothing before it counts
	// as one that has nothing to write.
	idleAfter = 100 * time.Millisecond
	// beginsWithin is how long an answer counts as active that has not begun. Most
	// apiservers answer within milliseconds, and a watch begins at once.
	beginsWithin = time.Second
	// NoProgress is how long a write of an answer may take at all.
	NoProgress = 2 * time.Minute

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
// Whoever writes the objects of a namespace can invent callers, as many as an
// identity provider of their own names. So all callers of a namespace together
// are bounded too, by the answers that are active: a write of a caller who reads
// takes microseconds, so that thousands of them are never active at once. What is
// too much is taken from the callers who hold most, so that one who has little
// under way gets in at once.
//
// It is safe for concurrent use.
type Backlog struct {
	mu      sync.Mutex
	tenants map[string]*tenant
	timer   *time.Timer
	// next is when the timer fires, zero while there is nothing to look at.
	next time.Time
}

// tenant is the callers of the clusters of one namespace.
type tenant struct {
	callers map[string]*caller
	waiting int // what requests of all callers hold that wait, in bytes
	// active is how many answers were active when they were counted, with those
	// that have begun since and without those that have left. full says that there
	// were too many; it holds until the backlog is looked at.
	active int
	full   bool
}

// caller is the answers of one caller.
type caller struct {
	tenant *tenant
	// writing counts the writes under way of answers without a place.
	writing atomic.Int64

	open    map[*Entry]struct{}
	places  int
	active  int      // as that of the namespace
	waiting []*Entry // in order of arrival
	held    int      // by those that wait, in bytes
}

// Entry is a request under way, and its answer.
type Entry struct {
	backlog *Backlog
	caller  *caller
	cut     func()

	// blocked is when the write under way began, idle when the last one ended,
	// in nanoseconds of Unix time; the other one is 0.
	blocked, idle atomic.Int64
	// busy is how much longer the earlier writes took than the pauses between them,
	// in nanoseconds: a caller who takes a little of each answer in time is not one
	// who reads. The pauses count because a busy stream of short writes is read.
	busy atomic.Int64
	// placed says that the answer has a place, and changes under the lock of the
	// backlog alone; counted says that the write under way is counted by the caller.
	placed, counted atomic.Bool

	// Guarded by the lock of the backlog.
	granted  chan struct{} // closed with placed, nil unless it waits
	held     int           // what it holds while it waits, in bytes
	admitted int64         // the value of idle when it got its first place
	active   bool          // when the active ones were counted
	left     bool
}

// NewBacklog makes an empty one.
func NewBacklog() *Backlog { return &Backlog{tenants: make(map[string]*tenant)} }

// Enter begins a request of a caller to a cluster of a namespace. It waits while
// the caller has no place free, and returns ErrBacklog when that takes too long or
// when the requests that wait already hold too much, or the error of the request's
// context. cut must end the answer, whose write may be under way; it must not
// block, and is called before Leave returns or not at all.
func (b *Backlog) Enter(r *http.Request, namespace, name string, cut func()) (*Entry, error) {
	a := &Entry{backlog: b, cut: cut}
	b.mu.Lock()
	c := b.callerOf(namespace, name)
	a.caller = c
	if c.tenant.active >= maxTenantActive && !c.tenant.full {
		c.tenant.count(time.Now())
	}
	if c.hasRoom() {
		c.admit(a)
		if c.tenant.full {
			b.lookWithin(sweepContended)
		}
		b.lookWithin(sweepQuiet)
		b.mu.Unlock()
		return a, nil
	}
	a.held = heldBy(r)
	if c.held+a.held > maxWaiting || c.tenant.waiting+a.held > maxTenantWaiting {
		b.mu.Unlock()
		return nil, ErrBacklog
	}
	a.granted = make(chan struct{})
	c.waiting = append(c.waiting, a)
	c.hold(a.held)
	b.lookWithin(sweepContended)
	b.mu.Unlock()
	return a.await(r.Context())
}

// callerOf finds a caller, or makes it. The lock is held.
func (b *Backlog) callerOf(namespace, name string) *caller {
	t := b.tenants[namespace]
	if t == nil {
		t = &tenant{callers: make(map[string]*caller)}
		b.tenants[namespace] = t
	}
	c := t.callers[name]
	if c == nil {
		c = &caller{tenant: t, open: make(map[*Entry]struct{})}
		t.callers[name] = c
	}
	return c
}

// heldBy is what a request holds that waits for a place, in bytes. How long
// headers may be is the decision of who configures the server.
func heldBy(r *http.Request) int {
	header := len(r.RequestURI)
	for name, values := range r.Header {
		header += heldByField + len(name)
		for _, value := range values {
			header += len(value) + heldByValue
		}
	}
	return heldByRequest + max(0, header-usualHeader)
}

// hasRoom reports whether a further answer of the caller may have a place.
func (c *caller) hasRoom() bool {
	t := c.tenant
	return c.places < maxPlaces && (t.active < maxTenantActive || c.active < fewActive && t.active < maxTenantCrowd)
}

// count counts the active answers.
func (t *tenant) count(now time.Time) {
	t.active = 0
	for _, c := range t.callers {
		c.active = 0
		for a := range c.open {
			if a.active = a.isActive(now); a.active {
				c.active++
			}
		}
		t.active += c.active
	}
	t.full = t.active >= maxTenantActive
}

// isActive reports whether an answer holds bytes, or may do so soon: a write is
// under way, or its request was sent a moment ago.
func (a *Entry) isActive(now time.Time) bool {
	blocked, idle := a.since(now)
	return blocked > 0 || idle < beginsWithin && a.idle.Load() == a.admitted
}

// admit gives an answer its first place.
func (c *caller) admit(a *Entry) {
	a.admitted = time.Now().UnixNano()
	a.idle.Store(a.admitted)
	a.place()
	c.open[a] = struct{}{}
	a.active = true
	c.active++
	c.tenant.active++
}

// hold counts what requests that wait hold.
func (c *caller) hold(bytes int) {
	c.held += bytes
	c.tenant.waiting += bytes
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

// Cut ends the answer of a request that has not left, whose write may be under way.
func (a *Entry) Cut() {
	a.backlog.mu.Lock()
	defer a.backlog.mu.Unlock()
	if !a.left {
		a.cut()
	}
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
	if a.active {
		c.active--
		c.tenant.active--
	}
	if i := slices.Index(c.waiting, a); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.hold(-a.held)
	}
	a.unplace()
	c.grant()
}

// Writing says that a write to the caller begins.
func (a *Entry) Writing() {
	now := time.Now().UnixNano()
	if idle := a.idle.Swap(0); idle != 0 {
		a.busy.Store(max(0, a.busy.Load()-(now-idle)))
	}
	a.blocked.Store(now)
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
	now := time.Now().UnixNano()
	if blocked := a.blocked.Swap(0); blocked != 0 {
		a.busy.Store(min(int64(maxBusy), a.busy.Load()+now-blocked))
	}
	a.idle.Store(now)
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
	for len(c.waiting) > 0 && c.hasRoom() {
		a := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.hold(-a.held)
		c.admit(a)
		close(a.granted)
	}
}
