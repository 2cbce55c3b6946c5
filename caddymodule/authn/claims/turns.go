package claims

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// dearAfter is how long an evaluation takes that is dear. Ordinary expressions take
	// less than a millisecond.
	dearAfter = 20 * time.Millisecond

	// maxWaiting bounds what the tokens of one cluster hold that wait for their turn, in
	// bytes. Ordinary tokens are a few KiB, and it is the turn of a thousand within a
	// second.
	maxWaiting      = 16 << 20
	waitingOverhead = 8 << 10 // of a token, beside its bytes
)

// Turns decides of how many tokens, and of which, the expressions are evaluated at
// once in a process. A turn goes to the cluster that will have used least time when it
// ends. So any number of clusters with costly expressions keep the token of another
// waiting for one evaluation at most. Clusters with dear evaluations leave half of the
// turns to the others.
type Turns struct {
	total int

	mu            sync.Mutex
	running, dear int // turns that are taken, and those by clusters with dear evaluations
	// level is the least that a cluster had used which waited when a turn was given
	// away. A cluster that comes back after a pause begins there: what it left unused is
	// not saved up.
	level time.Duration
	// waiting are the clusters with tokens that wait, in the order they came.
	waiting []*ClusterTurns
}

// NewTurns makes the turns of a process, of which each cluster takes a part with
// ForCluster.
func NewTurns() *Turns {
	// Two at least, so that there are halves.
	return &Turns{total: max(2, runtime.GOMAXPROCS(0))}
}

// ForCluster is the part of one cluster: half of the turns at most.
func (t *Turns) ForCluster() *ClusterTurns { return &ClusterTurns{all: t} }

// ClusterTurns are the turns of one cluster. All is guarded by Turns.mu.
type ClusterTurns struct {
	all     *Turns
	running int
	// used is the time of all evaluations, raised to Turns.level after a pause.
	used time.Duration
	// longest is how long an evaluation took of late.
	longest time.Duration
	tokens  []*turn // that wait, in the order they came
	waiting int     // what these tokens hold, in bytes
}

// turn is that of one token.
type turn struct {
	bytes   int
	granted chan struct{} // closed when the turn has come
	dear    bool
	began   time.Time
}

// take waits for the turn of a token with a payload of so many bytes, until ctx ends.
// The error is ErrBusy.
func (c *ClusterTurns) take(ctx context.Context, bytes int) (done func(), err error) {
	// As sent, its parts, its claims.
	t := &turn{bytes: 3*bytes + waitingOverhead, granted: make(chan struct{})}
	if ctx.Err() != nil || !c.enter(t) {
		return nil, ErrBusy
	}
	select {
	case <-t.granted:
	case <-ctx.Done():
		if !c.leave(t) {
			c.end(t) // its turn came in the meantime
		}
		return nil, ErrBusy
	}
	return func() { c.end(t) }, nil
}

// enter reports whether there is room for a token to wait.
func (c *ClusterTurns) enter(t *turn) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.waiting+t.bytes > maxWaiting {
		return false
	}
	c.waiting += t.bytes
	if len(c.tokens) == 0 {
		c.all.waiting = append(c.all.waiting, c)
		if c.running == 0 {
			c.used = max(c.used, c.all.level)
		}
	}
	c.tokens = append(c.tokens, t)
	c.all.grantLocked()
	return true
}

// leave gives up a turn, and reports whether it had not come.
func (c *ClusterTurns) leave(t *turn) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	i := slices.Index(c.tokens, t)
	if i < 0 {
		return false
	}
	c.removeLocked(i)
	return true
}

// removeLocked takes a token out of those that wait.
func (c *ClusterTurns) removeLocked(i int) {
	c.waiting -= c.tokens[i].bytes
	c.tokens = slices.Delete(c.tokens, i, i+1)
	if len(c.tokens) == 0 {
		i := slices.Index(c.all.waiting, c)
		c.all.waiting = slices.Delete(c.all.waiting, i, i+1)
	}
}

// end gives a turn back.
func (c *ClusterTurns) end(t *turn) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	took := time.Since(t.began)
	c.used += took
	c.longest = max(took, c.longest*7/8) // some cheap ones later it is forgotten
	c.running--
	c.all.running--
	if t.dear {
		c.all.dear--
	}
	c.all.grantLocked()
}

// grantLocked gives the free turns away.
func (t *Turns) grantLocked() {
	for t.running < t.total {
		var next *ClusterTurns
		least := time.Duration(math.MaxInt64)
		for _, c := range t.waiting {
			least = min(least, c.used)
			if c.mayRunLocked() && (next == nil || c.used+c.longest < next.used+next.longest) {
				next = c
			}
		}
		if next == nil {
			return
		}
		granted := next.tokens[0]
		next.removeLocked(0)
		granted.began, granted.dear = time.Now(), next.isDear()
		t.level = max(t.level, least)
		next.running++
		t.running++
		if granted.dear {
			t.dear++
		}
		close(granted.granted)
	}
}

func (c *ClusterTurns) mayRunLocked() bool {
	return c.running < c.all.total/2 && (!c.isDear() || c.all.dear < c.all.total/2)
}

func (c *ClusterTurns) isDear() bool { return c.longest >= dearAfter }
