package faults

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// The addresses of clients: the one that all bad tokens of a storm come from, and
// one where nothing is wrong.
const noisy, distant = "127.0.0.1", "127.0.0.2"

// from is what new tokens that a provider is asked about are counted under.
func from(address string) string { return ", new from " + address }

// serveMeanwhile sends good tokens during a storm until stop is called, which
// returns how many of which were served.
func (w *world) serveMeanwhile(t *testing.T, targets []*target, known []bearer) (stop func() tally) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	until := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
				f(i)
			}
		})
	}
	served, other := newTally(), w.from(t, distant)
	until(func(i int) {
		b, kind := known[i*7%len(known)], "known"
		if i%4 == 0 {
			g := targets[i/4%len(targets)]
			b, kind = g.good[0](g.site, i), "signed"
			b.cluster = g.name
		}
		w.mustServe(t, &b)
		served.add(b.cluster + ", " + kind)
	})
	for _, g := range targets {
		if !g.asks {
			continue
		}
		newcomer := func(i int) *bearer {
			b := g.good[1](g.site, i)
			b.cluster = g.name
			return &b
		}
		until(func(i int) {
			other.mustServe(t, newcomer(i))
			served.add(g.name + from(distant))
			time.Sleep(100 * time.Millisecond)
		})
		until(func(i int) { w.serveInTheEnd(ctx, t, newcomer(i), served) })
	}
	return func() tally {
		cancel()
		wg.Wait()
		return served
	}
}

// serveInTheEnd sends a good token from the noisy address until it is accepted.
func (w *world) serveInTheEnd(ctx context.Context, t *testing.T, b *bearer, served tally) {
	for ctx.Err() == nil {
		a, err := w.ask(context.WithoutCancel(ctx), b.cluster, b.token)
		switch {
		case err != nil:
			t.Error(err)
			return
		case a.good(b.user) == nil:
			served.add(b.cluster + from(noisy))
			return
		}
		if err := a.limited(); err != nil {
			t.Errorf("a good %s from the noisy address: %v", b.kind, err)
			return
		}
		served.add(b.cluster + from(noisy) + ", not asked about")
		time.Sleep(100 * time.Millisecond)
	}
}

// wantRefusals holds the answers for bad tokens that a provider is asked about
// against what it may refuse: as long as there is some of that, they are 401.
func wantRefusals(t *testing.T, g *target, took time.Duration, codes tally) {
	var refused, limited int
	for _, k := range bad {
		if slices.Contains(k.asked, g.name) {
			b := &bearer{cluster: g.name, kind: k.kind}
			refused += codes.of[outcome(b, http.StatusUnauthorized)]
			limited += codes.of[outcome(b, http.StatusServiceUnavailable)]
		}
	}
	t.Logf("%s: of %d bad tokens that only the provider knows %d were refused", g.name, refused+limited, refused)
	if least := refusedBurst + int(refusedRate*took.Seconds()/2); limited > 0 && refused < least {
		t.Errorf("%s: %d were not asked about, though less than %d were refused in %v", g.name, limited, least, took)
	}
}
