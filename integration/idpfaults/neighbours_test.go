package idpfaults

import (
	"context"
	"sync"
	"testing"
	"time"
)

// neighbour is a cluster with a provider of its own, where nothing is wrong.
type neighbour struct {
	*site
	name string
}

// newNeighbours are one for each way that asks something different.
func newNeighbours(t *testing.T) []*neighbour {
	var list []*neighbour
	for _, w := range ways {
		list = append(list, &neighbour{openSite(t, w), "near-" + w.name})
	}
	return list
}

// measure has the neighbours asked for some time. Every answer has to be good.
func (w *world) measure(t *testing.T, list []*neighbour, d time.Duration) measures {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return w.measureUntil(t, ctx, list)
}

// measureUntil is measure until ctx ends.
func (w *world) measureUntil(t *testing.T, ctx context.Context, list []*neighbour) measures {
	all := measures{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range list {
		wg.Go(func() {
			for ctx.Err() == nil {
				// A token of its own each time: no answer is remembered.
				a, err := w.ask(context.WithoutCancel(ctx), n.name, n.token(n.site))
				if err == nil {
					err = a.good(n.user)
				}
				if err != nil {
					t.Errorf("a cluster where nothing is wrong: %v", err)
					return
				}
				mu.Lock()
				all[n.name] = append(all[n.name], a.took)
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return all
}
