package idp

import "time"

// budget is a token bucket in which what was taken can be given back. It may be
// overdrawn for lateLimit: who takes then has to wait until that is made up for.
type budget struct {
	left, most, rate float64 // rate is a second's
	at               time.Time
}

func newBudget(burst, perSecond float64, now time.Time) budget {
	return budget{left: burst, most: burst, rate: perSecond, at: now}
}

// wait is how long somebody who takes now has to wait, 0 for not at all.
func (b *budget) wait(now time.Time) time.Duration {
	if since := now.Sub(b.at); since > 0 {
		b.left = min(b.most, b.left+b.rate*since.Seconds())
	}
	b.at = now
	if b.left >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) / b.rate * float64(time.Second))
}

func (b *budget) take()     { b.left-- }
func (b *budget) giveBack() { b.left = min(b.most, b.left+1) }
func (b *budget) fill()     { b.left = b.most }
