package access

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// drip has answers of one caller write without end: each write takes a while, and
// so does the pause after it. It returns how many are cut, and what ends the rest.
func drip(t *testing.T, b *Backlog, name string, n int, write, pause time.Duration) (*atomic.Int64, func()) {
	t.Helper()
	cuts, done := new(atomic.Int64), make(chan struct{})
	var running sync.WaitGroup
	for range n {
		cut := make(chan struct{})
		end := sync.OnceFunc(func() { cuts.Add(1); close(cut) })
		a, err := b.Enter(requestWith(t.Context()), "team-a", name, end)
		if err != nil {
			t.Fatal(err)
		}
		a.Writing() // and soon quiet, so that there is a place for the next one
		a.Written()
		running.Go(func() {
			defer a.Leave()
			time.Sleep(10 * time.Second)
			for {
				a.Writing()
				select {
				case <-time.After(write):
					a.Written()
					time.Sleep(pause)
				case <-cut:
					a.Written()
					return
				case <-done:
					a.Written()
					return
				}
			}
		})
	}
	return cuts, func() { close(done); running.Wait() }
}

// RELAY-7: a caller who takes a little of each of many answers in time holds no
// more than one who does not read; one who takes much, or has a few, loses none.
func TestBacklogBoundsSlowDrip(t *testing.T) {
	for name, tt := range map[string]struct {
		streams      int
		write, pause time.Duration
		left         int64
	}{
		"slow":              {1000, 1900 * time.Millisecond, 0, maxPlaces},
		"slow, with pauses": {1000, 1900 * time.Millisecond, 2 * idleAfter, maxPlaces},
		"slow and few":      {maxPlaces, 1900 * time.Millisecond, 0, maxPlaces},
		"streams of events": {300, 100 * time.Microsecond, 50 * time.Millisecond, 300},
		"much, and a pause": {300, 40 * time.Millisecond, 60 * time.Millisecond, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBacklog()
				cuts, end := drip(t, b, "mallory", tt.streams, tt.write, tt.pause)
				time.Sleep(25 * time.Second)
				if left := int64(tt.streams) - cuts.Load(); left != tt.left {
					t.Errorf("%d answers are left, want %d", left, tt.left)
				}
				end()
			})
		})
	}
}

// RELAY-7: answers of invented callers that are read slowly fill a namespace, and
// give way to a caller who has fewer.
func TestBacklogSlowDripGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		for i := range 2 * tenantShare {
			_, end := drip(t, b, fmt.Sprint("mallory ", i), maxPlaces/2, 1900*time.Millisecond, 0)
			defer end()
		}
		time.Sleep(20 * time.Second)
		cuts, leave := drip(t, b, "alice", 3*fewActive, 1900*time.Millisecond, 0)
		defer leave()
		time.Sleep(30 * time.Second)
		if cuts.Load() != 0 {
			t.Errorf("alice lost %d answers", cuts.Load())
		}
	})
}

// RELAY-7: a caller with little under way gets in at once while many others of the
// namespace, each with one answer, read over slow links.
func TestBacklogPassesSlowCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		var done atomic.Bool
		var downloads sync.WaitGroup
		defer func() { done.Store(true); downloads.Wait() }()
		for i := range 2 * maxTenantActive {
			a, err := b.Enter(requestWith(t.Context()), "team-a", fmt.Sprint("user ", i), func() { t.Error("a slow answer was cut") })
			if err != nil {
				t.Fatal(err)
			}
			downloads.Go(func() {
				defer a.Leave()
				for !done.Load() {
					a.Writing()
					time.Sleep(262 * time.Millisecond) // 32 KiB over 1 Mbit/s
					a.Written()
				}
			})
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		began := time.Now()
		for range 10 {
			a, err := b.Enter(requestWith(t.Context()), "team-a", "alice", func() { t.Error("alice was cut") })
			if err != nil {
				t.Fatal(err)
			}
			a.Writing()
			a.Written()
			a.Leave()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("ten requests of another caller waited %v", took)
		}
	})
}

// RELAY-7: what a full namespace holds too much is taken from who holds most.
func TestBacklogTakesFromTheLargest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		few, leave := unreadAnswers(t, b, "alice", fewActive)
		defer leave()
		for i := range tenantShare {
			_, leave := unreadAnswers(t, b, fmt.Sprint("mallory ", i), maxPlaces-fewActive/tenantShare)
			defer leave()
		}
		bob, err := b.Enter(requestWith(t.Context()), "team-a", "bob", func() { t.Error("bob was cut") })
		if err != nil {
			t.Fatal(err)
		}
		defer bob.Leave()
		bob.Writing()
		time.Sleep(30 * time.Second)
		if few.Load() != 0 {
			t.Errorf("%d answers of the caller with few were cut", few.Load())
		}
	})
}

// RELAY-7: a namespace has a bound even for callers with one answer each, and what
// it holds too much is cut soon.
func TestBacklogBoundsCallersWithOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		for i := range maxTenantCrowd {
			_, leave := unreadAnswers(t, b, fmt.Sprint("user ", i), 1)
			defer leave()
		}
		began := time.Now()
		a, err := b.Enter(requestWith(t.Context()), "team-a", "alice", func() {})
		if err != nil {
			t.Fatal(err)
		}
		a.Leave()
		if took := time.Since(began); took < unreadAfter/2 || took > unreadAfter+time.Second {
			t.Errorf("one more waited %v", took)
		}
		time.Sleep(time.Second)
		if active := b.tenants["team-a"].active; active > maxTenantActive {
			t.Errorf("%d answers are active later", active)
		}
	})
}

// What is too much is taken of the caller who has most.
func TestCutsLargest(t *testing.T) {
	const never = math.MaxInt
	for name, tt := range map[string]struct {
		stuck, slow []int // by caller
		n           int
		keepsStuck  int
		keepsSlow   int
		left        []int
	}{
		"the largest first":            {[]int{1, 9, 5}, nil, 6, 0, never, []int{1, 4, 4}},
		"no slow one of few":           {[]int{0, 0}, []int{4, 6}, 5, 4, 4, []int{4, 4}},
		"no slow one of the same size": {[]int{0, 0}, []int{9, 8}, 2, 0, 8, []int{8, 8}},
		"a stuck one of few":           {[]int{1, 0}, []int{0, 4}, 2, 0, 4, []int{0, 4}},
		"a stuck one before slow ones": {[]int{1}, []int{9}, 2, 0, never, []int{9}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]int, len(tt.stuck))
			c := cuts{left: maxTenantActive}
			for i, n := range tt.stuck {
				u := unread{stuck: n}
				got[i] = n
				if tt.slow != nil {
					got[i] += tt.slow[i]
				}
				for range got[i] {
					u.answers = append(u.answers, &Entry{cut: func() { got[i]-- }})
				}
				c.held = append(c.held, u)
			}
			c.cut(tt.n, tt.keepsStuck, tt.keepsSlow)
			if diff := cmp.Diff(tt.left, got); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}
