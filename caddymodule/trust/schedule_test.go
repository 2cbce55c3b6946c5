package trust

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// asked is the rounds of each cluster, by name.
type asked struct {
	mu    sync.Mutex
	began map[string][]time.Time
}

func (a *asked) note(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began[name] = append(a.began[name], time.Now())
}

func (a *asked) of(name string) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.began[name])
}

// timetable is a schedule of fake targets, running in a bubble.
type timetable struct {
	*schedule
	asked
	// takes is how long a round of a cluster takes.
	takes func(name string) time.Duration
}

const testInterval = time.Minute

func newTimetable(t *testing.T, takes func(name string) time.Duration) *timetable {
	tt := &timetable{takes: takes, asked: asked{began: map[string][]time.Time{}}}
	tt.schedule = newSchedule(testInterval, func(ctx context.Context, _ k8swatch.Key, c *Trust) {
		tt.note(c.spec.Key.Name)
		select {
		case <-time.After(tt.takes(c.spec.Key.Name)):
		case <-ctx.Done():
		}
	})
	tt.leads = true
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { tt.run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return tt
}

// set replaces all clusters.
func (tt *timetable) set(clusters ...*Trust) {
	all := map[k8swatch.Key]*Trust{}
	for _, c := range clusters {
		all[c.spec.Key] = c
	}
	tt.schedule.set(all)
}

func target(name, endpoint, key string) *Trust {
	return &Trust{
		spec:          &k8swatch.Cluster{Key: k8swatch.Key{Namespace: "n", Name: name}, TargetKnown: true, Probe: key != ""},
		reach:         &reachability{endpoint: endpoint},
		frontProxyKey: key,
	}
}

func targets(prefix string, n int) (all []*Trust) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		all = append(all, target(name, name, ""))
	}
	return all
}

func prompt(string) time.Duration { return 10 * time.Millisecond }

// TRUST-1: once an interval, a tenth more or less, spread; a new cluster at once.
func TestScheduleInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTimetable(t, prompt)
		start := time.Now()
		all := targets("a", 50)
		tt.set(all...)
		time.Sleep(10 * testInterval)
		gaps := map[time.Duration]bool{}
		for _, c := range all {
			began := tt.of(c.spec.Key.Name)
			if began[0].Sub(start) > time.Second {
				t.Errorf("first after %v", began[0].Sub(start))
			}
			for i := 1; i < len(began); i++ {
				gap := began[i].Sub(began[i-1])
				least := testInterval * 9 / 10
				if i == 1 {
					least = testInterval / 2
				}
				if gap < least || gap > testInterval*11/10+time.Second {
					t.Errorf("round %d after %v", i, gap)
				}
				gaps[gap] = true
			}
			if n := len(began); n < 9 || n > 12 {
				t.Errorf("%d rounds in ten intervals", n)
			}
		}
		if len(gaps) < 100 {
			t.Errorf("only %d different gaps", len(gaps))
		}
		tt.set()
		before := len(tt.of("a-0"))
		time.Sleep(2 * testInterval)
		if len(tt.of("a-0")) != before {
			t.Error("a cluster that is gone is asked")
		}
	})
}

// Targets that do not answer do not keep waiting those that do: not those that
// are new with them, not those that were there, not when all fail at once.
func TestScheduleDeadTargets(t *testing.T) {
	const dead, alive = 500, 100
	synctest.Test(t, func(t *testing.T) {
		var outage atomic.Bool
		tt := newTimetable(t, func(name string) time.Duration {
			switch {
			case strings.HasPrefix(name, "dead"), strings.HasPrefix(name, "frail") && outage.Load():
				return 10 * time.Second
			}
			return 50 * time.Millisecond
		})
		start := time.Now()
		all := slices.Concat(targets("dead", dead), targets("alive", alive), targets("frail", dead))
		tt.set(all...)
		time.Sleep(5 * testInterval)
		for i := range alive {
			began := tt.of(fmt.Sprintf("alive-%d", i))
			if late := began[0].Sub(start); late > testInterval*3/4 {
				t.Errorf("first after %v", late)
			}
			checkPunctual(t, began)
		}
		outage.Store(true)
		time.Sleep(5 * testInterval)
		for i := range alive {
			checkPunctual(t, tt.of(fmt.Sprintf("alive-%d", i)))
		}
		for i := range dead {
			if n := len(tt.of(fmt.Sprintf("dead-%d", i))); n < 2 {
				t.Errorf("a dead target was asked %d times", n)
			}
		}
		// A new cluster goes before those that are known not to answer.
		began := time.Now()
		tt.set(append(all, target("new", "new", ""))...)
		time.Sleep(testInterval)
		if late := tt.of("new")[0].Sub(began); late > time.Second {
			t.Errorf("a new cluster is first asked after %v", late)
		}
	})
}

// checkPunctual wants rounds of an answering target to be late by a fraction of
// the interval at most.
func checkPunctual(t *testing.T, began []time.Time) {
	t.Helper()
	for i := 1; i < len(began); i++ {
		if gap := began[i].Sub(began[i-1]); gap > testInterval*5/4 {
			t.Errorf("round %d after %v", i, gap)
		}
	}
}

// However slow all are, no more are asked at a time than there are slots.
func TestScheduleBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most = max(most, now)
		}
		tt := newTimetable(t, nil)
		tt.ask = func(context.Context, k8swatch.Key, *Trust) {
			count(1)
			defer count(-1)
			time.Sleep(10 * time.Second)
		}
		tt.set(targets("a", 2*maxRounds)...)
		time.Sleep(5 * testInterval)
		tt.set()
		time.Sleep(testInterval)
		mu.Lock()
		defer mu.Unlock()
		if most != maxRounds || now != 0 {
			t.Errorf("%d at a time, %d now", most, now)
		}
	})
}

// TRUST-2: what is about something else than the last round is asked at once,
// also when it changed during a round; what is about the same is not.
func TestScheduleNewSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTimetable(t, func(string) time.Duration { return time.Second })
		rounds := func(want int, what string) {
			t.Helper()
			time.Sleep(1500 * time.Millisecond)
			if n := len(tt.of("a")); n != want {
				t.Errorf("%s: %d rounds, want %d", what, n, want)
			}
		}
		tt.set(target("a", "e", ""))
		rounds(1, "new")
		tt.set(target("a", "e", ""))
		rounds(1, "nothing new")
		tt.set(target("a", "e", "s"))
		rounds(2, "a set")
		tt.set(target("a", "e", "s2"))
		rounds(3, "another set")
		tt.set(target("a", "e2", "s2"))
		rounds(4, "another endpoint")
		tt.set(target("a", "e2", "s3"))
		time.Sleep(500 * time.Millisecond)
		tt.set(target("a", "e2", "s4"))
		rounds(6, "another set during a round")
		unknown := target("a", "e2", "s4")
		unknown.spec.TargetKnown = false
		tt.set(unknown)
		time.Sleep(2 * testInterval)
		rounds(6, "nothing to ask")
	})
}

// REC-1: only the leader asks, and a new leader asks every apiserver soon.
func TestScheduleLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTimetable(t, prompt)
		tt.lead(false)
		all := targets("a", 200)
		tt.set(all...)
		time.Sleep(3 * testInterval)
		if n := len(tt.of("a-0")); n != 0 {
			t.Errorf("asked %d times without leading", n)
		}
		for term := 1; term <= 2; term++ {
			tt.lead(true)
			tt.lead(true)
			began := time.Now()
			time.Sleep(newLeaderWithin + time.Second)
			moments := map[time.Duration]bool{}
			for _, c := range all {
				times := tt.of(c.spec.Key.Name)
				if len(times) != term {
					t.Fatalf("asked %d times after %d beginnings", len(times), term)
				}
				moments[times[term-1].Sub(began).Truncate(100*time.Millisecond)] = true
			}
			if len(moments) < 20 {
				t.Errorf("asked at %d moments only", len(moments))
			}
			tt.set(append(all, target("new", "new", ""))...)
			time.Sleep(100 * time.Millisecond)
			if n := len(tt.of("new")); n != term {
				t.Errorf("a new cluster was asked %d times", n)
			}
			tt.lead(false)
			time.Sleep(2 * testInterval)
			tt.set(all...)
		}
	})
}
