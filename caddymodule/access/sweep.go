package access

import (
	"cmp"
	"math"
	"slices"
	"time"
)

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
	for namespace, t := range b.tenants {
		next := t.look(now)
		if len(t.callers) == 0 {
			delete(b.tenants, namespace)
			continue
		}
		b.lookWithin(next)
	}
}

// look is Backlog.look for the callers of one namespace. It returns when to look
// again.
func (t *tenant) look(now time.Time) time.Duration {
	cuts := cuts{left: maxTenantActive}
	total, stuck, next := 0, 0, sweepQuiet
	for _, c := range t.callers {
		if u := c.look(now); len(u.answers) > 0 {
			cuts.held = append(cuts.held, u)
			total += len(u.answers)
			stuck += u.stuck
		}
	}
	t.count(now)
	// Of what is too much, answers that make no progress go first, down to the last one
	// of a caller. Only then do answers go that are read slowly, and each caller keeps
	// a few.
	tooStuck := max(0, stuck-maxTenantActive)
	cuts.cut(tooStuck, 0, math.MaxInt)
	cuts.cut(total-tooStuck-maxTenantActive, fewActive, fewActive)
	for name, c := range t.callers {
		c.grant()
		if t.full {
			// An answer that is read goes only if its caller has more than who waits.
			cuts.cut(len(c.waiting), 0, max(fewActive, c.active))
		}
		next = min(next, c.next())
		if len(c.open) == 0 && len(c.waiting) == 0 {
			delete(t.callers, name)
		}
	}
	if t.full {
		next = sweepContended
	}
	return next
}

// look is Backlog.look for one caller. It returns the answers that are not read, or
// slowly.
func (c *caller) look(now time.Time) unread {
	u := unread{}
	var slow []*Entry
	for a := range c.open {
		blocked, idle := a.since(now)
		switch {
		case blocked >= NoProgress:
			a.end()
		case blocked >= unreadAfter:
			a.place()
			u.answers = append(u.answers, a)
		case time.Duration(a.busy.Load())+blocked-idle >= unreadAfter:
			a.place()
			slow = append(slow, a)
		case blocked == 0 && idle >= idleAfter && len(c.waiting) > 0:
			a.unplace()
		}
	}
	c.grant()
	slices.SortFunc(u.answers, func(a, b *Entry) int { return cmp.Compare(a.blocked.Load(), b.blocked.Load()) })
	slices.SortFunc(slow, func(a, b *Entry) int { return cmp.Compare(a.admitted, b.admitted) })
	u.stuck = len(u.answers)
	u.answers = append(u.answers, slow...)
	// Answers beyond the places are cut, and for each request that waits one more that
	// makes no progress.
	excess := max(0, c.places-maxPlaces)
	for i, a := range u.answers {
		if i < excess || i < u.stuck && i < excess+len(c.waiting) {
			a.end()
		}
	}
	return u
}

// next is when to look at a caller again.
func (c *caller) next() time.Duration {
	switch {
	case len(c.waiting) > 0, c.writing.Load() > manyWriting:
		return sweepContended
	case len(c.open) > c.places:
		return sweepCrowded
	}
	return sweepQuiet
}

// unread is the answers of a caller in the order in which they are cut: first those
// that make no progress, the one before that has waited longest, as many as stuck
// says; then those that are read slowly, the oldest before.
type unread struct {
	answers []*Entry
	stuck   int
}

// cuts is what may be cut in a namespace.
type cuts struct {
	held []unread
	// left is how many more answers may be cut in this look, which holds the lock.
	left int
}

// cut cuts n answers, each of the caller who has most of them, so that one who has few
// loses none to the crowd of another. A caller keeps so many when the next one to go
// makes no progress, and so many when it is read slowly.
func (c *cuts) cut(n, keepsStuck, keepsSlow int) {
	for ; n > 0 && c.left > 0; n, c.left = n-1, c.left-1 {
		var most *unread
		for i := range c.held {
			u, keeps := &c.held[i], keepsSlow
			if u.stuck > 0 {
				keeps = keepsStuck
			}
			if len(u.answers) > keeps && (most == nil || len(u.answers) > len(most.answers)) {
				most = u
			}
		}
		if most == nil {
			return
		}
		most.answers[0].end()
		most.answers, most.stuck = most.answers[1:], max(0, most.stuck-1)
	}
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
