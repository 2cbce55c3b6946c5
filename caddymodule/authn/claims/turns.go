package claims

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"
)

// Turns bounds of how many tokens the expressions are evaluated at once: nothing
// interrupts an evaluation before its budget is used up. There is one bound for
// the tokens of all clusters and another, of half as many, for those of each. So
// a cluster with costly expressions leaves room for the others.
type Turns struct{ all, cluster *semaphore.Weighted }

// NewTurns makes the bound of a process, of which each cluster takes a part with
// ForCluster.
func NewTurns() *Turns {
	return &Turns{all: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0))))}
}

// ForCluster is the part of one cluster.
func (t *Turns) ForCluster() *Turns {
	return &Turns{all: t.all, cluster: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2)))}
}

// take waits for the turn of a token until ctx ends. The error is ErrBusy.
func (t *Turns) take(ctx context.Context) (done func(), err error) {
	if t.cluster.Acquire(ctx, 1) != nil {
		return nil, ErrBusy
	}
	if t.all.Acquire(ctx, 1) != nil {
		t.cluster.Release(1)
		return nil, ErrBusy
	}
	return func() {
		t.all.Release(1)
		t.cluster.Release(1)
	}, nil
}
