package claims

import (
	"cmp"
	"context"
	"maps"
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

	// forgottenAfter is how long the account of a namespace is kept that evaluates
	// nothing.
	forgottenAfter = 10 * time.Minute

	// maxWaiting bounds what the tokens of one cluster hold that wait for their turn, in
	// bytes. Ordinary tokens are a few KiB, and it is the turn of a thousand within a
	// second.
	maxWaiting      = 16 << 20
	waitingOverhead = 8 << 10 // of a token, beside its bytes
)

// Turns decides of how many tokens, and of which, the expressions are evaluated at
// once in a process. A turn goes to the namespace that will have used least time when
// it ends, and in it to the cluster of which that holds. So any number of clusters with
// costly expressions in a namespace, new ones too, keep the token of another waiting for
// one evaluation at most. Clusters with dear evaluations leave half of the turns to the
// others.
type Turns struct {
	total int

	mu            sync.Mutex
	running, dear int // turns that are taken, and those by clusters with dear evaluations
	// level is where a namespace begins that comes back (account.level).
	level time.Duration
	// newWasLast says that the last turn went to a namespace of which nothing is known.
	newWasLast bool
	namespaces map[string]*account
	// waiting are the clusters with tokens that wait, in the order they came.
	waiting []*ClusterTurns
}

// NewTurns makes the turns of a process, of which each cluster takes a part with
// ForCluster.
func NewTurns() *Turns {
	// Two at least, so that there are halves.
	return newTurns(max(2, runtime.GOMAXPROCS(0)))
}

func newTurns(total int) *Turns {
	return &Turns{total: total, namespaces: map[string]*account{}}
}

// ForCluster is the part of one cluster: half of the turns at most.
func (t *Turns) ForCluster(namespace string) *ClusterTurns {
	return &ClusterTurns{all: t, namespace: namespace}
}

// account is the time of a namespace or of a cluster. A namespace's outlives its
// clusters: whoever makes new ones, or changes them, does not begin anew.
type account struct {
	// used is the time of all evaluations, raised to the level after a pause.
	used time.Duration
	// longest is how long an evaluation took of late.
	longest time.Duration
	known   bool // an evaluation has ended
	busy    int  // tokens that wait or are evaluated
	last    time.Time
	// level, of a namespace, is the least that a cluster of it had used which waited
	// when a turn was given away. A cluster that comes back after a pause begins there:
	// what it left unused is not saved up.
	level time.Duration
}

// enter begins the stay of a token.
func (a *account) enter(level time.Duration) {
	if a.busy == 0 {
		a.used = max(a.used, level)
	}
	a.busy++
}

// leave ends it.
func (a *account) leave() {
	a.busy--
	a.last = time.Now()
}

// add accounts for an evaluation.
func (a *account) add(took time.Duration) {
	a.used += took
	a.longest = max(took, a.longest*7/8) // some cheap ones later it is forgotten
	a.known = true
}

// accountLocked is that of a namespace. Those not used for long are forgotten.
func (t *Turns) accountLocked(namespace string) *account {
	a := t.namespaces[namespace]
	if a == nil {
		maps.DeleteFunc(t.namespaces, func(_ string, a *account) bool {
			return a.busy == 0 && time.Since(a.last) > forgottenAfter
		})
		a = &account{}
		t.namespaces[namespace] = a
	}
	return a
}

// ClusterTurns are the turns of one cluster. All is guarded by Turns.mu.
type ClusterTurns struct {
	all       *Turns
	namespace string
	author    *account // of the namespace, while tokens wait or are evaluated
	account
	running int
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
	}
	c.author = c.all.accountLocked(c.namespace)
	c.author.enter(c.all.level)
	c.account.enter(c.author.level)
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
	c.author.leave()
	c.account.leave()
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
	for _, a := range []*account{c.author, &c.account} {
		a.add(took)
		a.leave()
	}
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
		next := t.nextLocked()
		if next == nil {
			return
		}
		t.raiseLevelsLocked(next.author)
		granted := next.tokens[0]
		next.removeLocked(0)
		granted.began, granted.dear = time.Now(), next.isDear()
		t.newWasLast = !next.author.known
		next.running++
		t.running++
		if granted.dear {
			t.dear++
		}
		close(granted.granted)
	}
}

// nextLocked is the cluster with the next turn, or nil. Namespaces of which nothing is
// known go in the order they came, and have every other turn at most: nobody's tokens
// wait for all those that somebody makes.
func (t *Turns) nextLocked() *ClusterTurns {
	var unknown, known *ClusterTurns
	for _, c := range t.waiting {
		switch {
		case !c.mayRunLocked():
		case !c.author.known:
			unknown = cmp.Or(unknown, c)
		case known == nil || c.isBefore(known):
			known = c
		}
	}
	if t.newWasLast {
		return cmp.Or(known, unknown)
	}
	return cmp.Or(unknown, known)
}

// raiseLevelsLocked notes from where clusters and namespaces begin that come while a
// turn goes to a namespace.
func (t *Turns) raiseLevelsLocked(author *account) {
	namespaces, clusters := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for _, c := range t.waiting {
		namespaces = min(namespaces, c.author.used)
		if c.author == author {
			clusters = min(clusters, c.used)
		}
	}
	t.level = max(t.level, namespaces)
	author.level = max(author.level, clusters)
}

// isBefore compares the namespaces of two clusters, and within one the clusters.
func (c *ClusterTurns) isBefore(other *ClusterTurns) bool {
	if c.author != other.author {
		return c.author.used+c.author.longest < other.author.used+other.author.longest
	}
	return c.used+c.longest < other.used+other.longest
}

func (c *ClusterTurns) mayRunLocked() bool {
	return c.running < c.all.total/2 && (!c.isDear() || c.all.dear < c.all.total/2)
}

// isDear reports of a cluster of which nothing is known what is true of its namespace.
func (c *ClusterTurns) isDear() bool {
	if !c.known {
		return c.author.longest >= dearAfter
	}
	return c.longest >= dearAfter
}
