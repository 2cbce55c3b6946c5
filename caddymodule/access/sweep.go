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
	var held []unread
	total, stuck, next := 0, 0, sweepQuiet
	for _, c := range t.callers {
		if u := c.look(now); len(u.answers) > 0 {
			held = append(held, u)
			total += len(u.answers)
			stuck += u.stuck
		}
	}
	t.count(now)
	excess := max(0, stuck-maxTenantActive)
	wants := slices.Repeat([]want{{0, math.MaxInt}}, excess)
	wants = append(wants, slices.Repeat([]want{{fewActive, fewActive}}, max(0, total-maxTenantActive-excess))...)
	for name, c := range t.callers {
		c.grant()
		if t.full {
			wants = append(wants, slices.Repeat([]want{{0, max(fewActive, c.active)}}, len(c.waiting))...)
		}
		next = min(next, c.next())
		if len(c.open) == 0 && len(c.waiting) == 0 {
			delete(t.callers, name)
		}
	}
	cutLargest(held, wants[:min(len(wants), maxTenantActive)])
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
	excess := max(0, c.places-maxPlaces)
	for _, a := range u.answers[:min(max(excess, min(excess+len(c.waiting), u.stuck)), len(u.answers))] {
		a.end()
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

// want is an answer too many: what a caller must have more of to lose one that
// makes no progress, and one that is read slowly.
type want struct{ stuck, slow int }

// cutLargest cuts an answer for each want, of the caller who has most of them, so
// that one who has few loses none to the crowd of another.
func cutLargest(held []unread, wants []want) {
	for _, w := range wants {
		var most *unread
		for i := range held {
			u, least := &held[i], w.slow
			if u.stuck > 0 {
				least = w.stuck
			}
			if len(u.answers) > least && (most == nil || len(u.answers) > len(most.answers)) {
				most = u
			}
		}
		if most == nil {
			continue
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
