package trust

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// of puts targets into a namespace.
func of(namespace string, all ...*Trust) []*Trust {
	for _, c := range all {
		c.spec.Key.Namespace = namespace
	}
	return all
}

// TRUST-1: whatever the targets of one namespace do, those of another are asked
// within the longest pause and the time that one round may take.
func TestScheduleNeighbours(t *testing.T) {
	const atMost = testInterval*11/10 + roundLimit
	var calls atomic.Uint64
	for name, tt := range map[string]struct {
		count  int
		moving bool // to new addresses, all the time
		takes  func() (time.Duration, bool)
	}{
		"600 black holes":            {count: 600, takes: func() (time.Duration, bool) { return roundLimit, false }},
		"3000 black holes":           {count: 3000, takes: func() (time.Duration, bool) { return roundLimit, false }},
		"3000 that answer just soon": {count: 3000, takes: func() (time.Duration, bool) { return slowAfter - 100*time.Millisecond, true }},
		"3000 that fail now and then": {count: 3000, takes: func() (time.Duration, bool) {
			if calls.Add(1)%2 == 0 {
				return 10 * time.Millisecond, true
			}
			return roundLimit, false
		}},
		"300 that move all the time": {count: 300, moving: true, takes: func() (time.Duration, bool) { return roundLimit, false }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				victims := map[string]func() (time.Duration, bool){
					"prompt":  func() (time.Duration, bool) { return 10 * time.Millisecond, true },
					"refused": func() (time.Duration, bool) { return 0, false },
					"slow":    func() (time.Duration, bool) { return 2 * slowAfter, true },
					"dead":    func() (time.Duration, bool) { return roundLimit, false },
				}
				schedule := newTimetable(t, func(name string) (time.Duration, bool) {
					if takes := victims[name]; takes != nil {
						return takes()
					}
					return tt.takes()
				})
				neighbour := of("neighbour", targets("x", tt.count)...)
				var good []*Trust
				for name := range victims {
					good = append(good, of("good", target(name, name, ""))...)
				}
				schedule.set(neighbour...)
				time.Sleep(testInterval)
				since := time.Now()
				schedule.set(slices.Concat(neighbour, good)...)
				for second := range 10 * int(testInterval/time.Second) {
					time.Sleep(time.Second)
					if tt.moving {
						for i := range neighbour {
							neighbour[i] = of("neighbour", target(fmt.Sprintf("x-%d", i), fmt.Sprint(second, i), ""))[0]
						}
						schedule.set(slices.Concat(neighbour, good)...)
					}
				}
				for name := range victims {
					last := since
					for i, began := range append(schedule.of(name), time.Now()) {
						if gap := began.Sub(last); gap > atMost || i == 0 && gap > roundLimit {
							t.Errorf("%s: round %d after %v", name, i, gap)
						}
						last = began
					}
				}
			})
		})
	}
}

// Namespaces take turns; of one the earliest is first; nothing is left of one
// that does not wait.
func TestQueueTurns(t *testing.T) {
	start := time.Now()
	at := func(namespace string, second int) *appointment {
		return &appointment{namespace: namespace, due: start.Add(time.Duration(second) * time.Second), index: -1}
	}
	q := newQueue()
	if _, ok := q.due(); ok {
		t.Error("an empty queue has a turn")
	}
	for _, second := range rand.Perm(5) {
		q.push(at("many", second))
	}
	gone := at("gone", 0)
	q.push(gone)
	q.push(at("few", 3))
	q.push(at("few", 2))
	q.push(at("later", 20))
	q.remove(gone)
	var order []string
	now := start.Add(10 * time.Second)
	for {
		due, ok := q.due()
		if !ok {
			break
		}
		if due.After(now) {
			now = due
		}
		a := q.take(now)
		order = append(order, fmt.Sprintf("%s %v", a.namespace, a.due.Sub(start)))
	}
	want := "many 0s, few 2s, many 1s, few 3s, many 2s, many 3s, many 4s, later 20s"
	if got := strings.Join(order, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(q.of) != 0 {
		t.Errorf("left of the queue: %v", q.of)
	}
}

// However appointments come and go, none is lost and each knows its place.
func TestQueuePlaces(t *testing.T) {
	start := time.Now()
	q := newQueue()
	var in []*appointment
	for step := range 20000 {
		now := start.Add(time.Duration(step) * time.Millisecond)
		switch {
		case rand.N(5) < 3 && len(in) < 300:
			a := &appointment{namespace: fmt.Sprint(rand.N(20)), due: now.Add(time.Duration(rand.N(2000)-1000) * time.Millisecond), index: -1}
			q.push(a)
			in = append(in, a)
		case len(in) > 0 && rand.N(2) == 0:
			i := rand.N(len(in))
			q.remove(in[i])
			if in[i].index != -1 {
				t.Fatalf("removed, and has place %d", in[i].index)
			}
			in = slices.Delete(in, i, i+1)
		case len(in) > 0:
			least := slices.MinFunc(q.shares, func(a, b *share) int { return a.due().Compare(b.due()) })
			due, _ := q.due()
			if !due.Equal(least.due()) {
				t.Fatalf("next is %v, the least is %v", due, least.due())
			}
			a := q.take(now)
			in = slices.DeleteFunc(in, func(other *appointment) bool { return other == a })
		}
	}
	waiting := 0
	for i, s := range q.shares {
		if s.index != i || q.of[s.namespace] != s || len(s.waiting) == 0 {
			t.Errorf("share %d: %+v", i, s)
		}
		waiting += len(s.waiting)
	}
	if waiting != len(in) || len(q.shares) != len(q.of) {
		t.Errorf("%d wait, want %d; %d shares, %d namespaces", waiting, len(in), len(q.shares), len(q.of))
	}
}
