package access

import (
	"cmp"
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
	var unread []*Entry
	for _, c := range t.callers {
		unread = append(unread, c.look(now)...)
	}
	t.count(now)
	excess, next := len(unread)-maxTenantActive, sweepQuiet
	for name, c := range t.callers {
		c.grant()
		if t.full {
			excess += len(c.waiting)
		}
		next = min(next, c.next())
		if len(c.open) == 0 && len(c.waiting) == 0 {
			delete(t.callers, name)
		}
	}
	cutOldest(unread, excess)
	if t.full {
		next = sweepContended
	}
	return next
}

// look is Backlog.look for one caller. It returns the answers that are not read.
func (c *caller) look(now time.Time) (unread []*Entry) {
	for a := range c.open {
		blocked, idle := a.since(now)
		switch {
		case blocked >= NoProgress:
			a.end()
		case blocked >= unreadAfter:
			a.place()
			unread = append(unread, a)
		case blocked == 0 && idle >= idleAfter && len(c.waiting) > 0:
			a.unplace()
		}
	}
	c.grant()
	cutOldest(unread, max(0, c.places-maxPlaces)+len(c.waiting))
	return unread
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

// cutOldest cuts as many answers as there are too many, the one first that has
// waited longest.
func cutOldest(unread []*Entry, excess int) {
	if excess <= 0 || len(unread) == 0 {
		return
	}
	slices.SortFunc(unread, func(a, b *Entry) int { return cmp.Compare(a.blocked.Load(), b.blocked.Load()) })
	for _, a := range unread[:min(excess, len(unread))] {
		a.end()
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
