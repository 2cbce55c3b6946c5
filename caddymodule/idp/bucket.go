package idp

import "time"

// bucket is a token bucket that can be overdrawn, and into which can be put back
// what was taken. golang.org/x/time/rate takes nothing back once its time has
// come, and here it is known only after a call whether it costs anything.
type bucket struct {
	left, most, rate float64 // rate is a second's
	at               time.Time
}

func newBucket(burst, perSecond float64, now time.Time) bucket {
	return bucket{left: burst, most: burst, rate: perSecond, at: now}
}

// wait is how long a caller who takes now has to wait until the bucket is not
// overdrawn, 0 for not at all.
func (b *bucket) wait(now time.Time) time.Duration {
	if since := now.Sub(b.at); since > 0 {
		b.left = min(b.most, b.left+b.rate*since.Seconds())
	}
	b.at = now
	if b.left >= 1 {
		return 0
	}
	return time.Duration((1 - b.left) / b.rate * float64(time.Second))
}

func (b *bucket) take()    { b.left-- }
func (b *bucket) putBack() { b.left = min(b.most, b.left+1) }
func (b *bucket) fill()    { b.left = b.most }
