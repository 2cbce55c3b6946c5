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
	var held []holder
	total, next := 0, sweepQuiet
	for _, c := range t.callers {
		if unread := c.look(now); len(unread) > 0 {
			held = append(held, holder{c, unread})
			total += len(unread)
		}
	}
	t.count(now)
	wanted := max(0, total-maxTenantActive)
	for name, c := range t.callers {
		c.grant()
		if t.full {
			wanted += len(c.waiting)
		}
		next = min(next, c.next())
		if len(c.open) == 0 && len(c.waiting) == 0 {
			delete(t.callers, name)
		}
	}
	cutLargest(held, min(wanted, maxTenantActive))
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

// holder is a caller with answers that are not read.
type holder struct {
	caller *caller
	unread []*Entry
}

// cutLargest cuts as many answers as there are too many, each of the caller who
// has most of them, so that one who has few loses none to the crowd of another.
func cutLargest(held []holder, excess int) {
	for _, h := range held {
		sortOldest(h.unread)
	}
	for range excess {
		if len(held) == 0 {
			return
		}
		most := 0
		for i, h := range held {
			if len(h.unread) > len(held[most].unread) {
				most = i
			}
		}
		h := &held[most]
		h.unread[0].end()
		if h.unread = h.unread[1:]; len(h.unread) == 0 {
			held = slices.Delete(held, most, most+1)
		}
	}
}

// cutOldest cuts as many answers as there are too many, the one first that has
// waited longest.
func cutOldest(unread []*Entry, excess int) {
	if excess <= 0 {
		return
	}
	sortOldest(unread)
	for _, a := range unread[:min(excess, len(unread))] {
		a.end()
	}
}

func sortOldest(unread []*Entry) {
	slices.SortFunc(unread, func(a, b *Entry) int { return cmp.Compare(a.blocked.Load(), b.blocked.Load()) })
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
