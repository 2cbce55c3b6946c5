package trust

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
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
		takes  func() time.Duration
	}{
		"600 black holes":            {count: 600, takes: func() time.Duration { return roundLimit }},
		"3000 black holes":           {count: 3000, takes: func() time.Duration { return roundLimit }},
		"3000 that answer just soon": {count: 3000, takes: func() time.Duration { return 1900 * time.Millisecond }},
		"3000 that fail now and then": {count: 3000, takes: func() time.Duration {
			if calls.Add(1)%2 == 0 {
				return 10 * time.Millisecond
			}
			return roundLimit
		}},
		"300 that move all the time": {count: 300, moving: true, takes: func() time.Duration { return roundLimit }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				victims := map[string]func() time.Duration{
					"prompt":  func() time.Duration { return 10 * time.Millisecond },
					"refused": func() time.Duration { return 0 },
					"slow":    func() time.Duration { return 4 * time.Second },
					"dead":    func() time.Duration { return roundLimit },
				}
				schedule := newTimetable(t, func(name string) time.Duration {
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

// Namespaces take turns; of one the first is first; nothing is left of one that
// does not wait.
func TestFairQueueTurns(t *testing.T) {
	q := newFairQueue()
	push := func(namespace string, names ...string) {
		for _, name := range names {
			q.Push(k8swatch.Key{Namespace: namespace, Name: name})
		}
	}
	var order []string
	pop := func(n int) {
		for range n {
			order = append(order, q.Pop().String())
		}
	}
	push("many", "0", "1", "2", "3", "4")
	pop(1)
	push("few", "0", "1")
	push("one", "0")
	pop(q.Len())
	want := "many/0, many/1, few/0, one/0, many/2, few/1, many/3, many/4"
	if got := strings.Join(order, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(q.waiting) != 0 || len(q.turns) != 0 || q.Len() != 0 {
		t.Errorf("left of the queue: %+v", q)
	}
}
