package faults

import (
	"context"
	"maps"
	"slices"
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
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return all
}

// measures are the times of answers by cluster.
type measures map[string][]time.Duration

// part is the time within which that part of the answers came.
func (m measures) part(name string, part float64) time.Duration {
	times := slices.Sorted(slices.Values(m[name]))
	return times[int(part*float64(len(times)-1))]
}

// hold holds the answers during the faults of others against those before. Who
// waits for the provider of another does so for its limits, five seconds and
// ten, and not once; a single answer may be late because the machine is busy, and
// all of them because it was so before.
func (m measures) hold(t *testing.T, before measures) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if len(before[name]) == 0 {
			t.Errorf("%s: nothing was measured before the faults", name)
			continue
		}
		t.Logf("%s: %d answers, half of them within %v (%v before), 95 %% within %v (%v before), all within %v", name, len(m[name]),
			m.part(name, 0.5), before.part(name, 0.5), m.part(name, 0.95), before.part(name, 0.95), m.part(name, 1))
		m.within(t, name, before, 0.5, time.Second)
		m.within(t, name, before, 0.95, 2*time.Second)
	}
	if len(m) == 0 {
		t.Error("nothing was measured")
	}
}

// within is an error when part of the answers took both longer than most and more
// than four times what they took before, or as long as only a mute provider takes.
func (m measures) within(t *testing.T, name string, before measures, part float64, most time.Duration) {
	t.Helper()
	if was, is := before.part(name, part), m.part(name, part); is > min(max(most, 4*was), answerLimit/2) {
		t.Errorf("%s: the faults of other clusters slow it down: %.0f %% within %v, and %v before", name, 100*part, is, was)
	}
}
