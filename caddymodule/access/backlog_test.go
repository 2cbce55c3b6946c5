package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// requestWith is a request without headers.
func requestWith(ctx context.Context) *http.Request { return new(http.Request).WithContext(ctx) }

// wantEmpty fails when a backlog goes on following callers that have left.
func wantEmpty(t *testing.T, b *Backlog) {
	t.Helper()
	time.Sleep(2 * sweepQuiet)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tenants) != 0 || !b.next.IsZero() {
		t.Errorf("%d namespaces are left, looked at again at %v", len(b.tenants), b.next)
	}
}

// unreadAnswers enters n requests whose callers do not read, and counts the cuts.
func unreadAnswers(t *testing.T, b *Backlog, name string, n int) (*atomic.Int64, func()) {
	t.Helper()
	cuts := new(atomic.Int64)
	var all []*Entry
	for range n {
		var a *Entry
		a, err := b.Enter(requestWith(t.Context()), "team-a", name, func() {
			cuts.Add(1)
			go a.Leave() // as the handler does whose write has failed
		})
		if err != nil {
			t.Fatal(err)
		}
		a.Writing()
		all = append(all, a)
	}
	return cuts, func() {
		for _, a := range all {
			a.Leave()
		}
	}
}

// An answer can be cut from outside until it has left.
func TestEntryCut(t *testing.T) {
	cuts := 0
	a, err := NewBacklog().Enter(requestWith(t.Context()), "team-a", "alice", func() { cuts++ })
	if err != nil {
		t.Fatal(err)
	}
	a.Cut()
	a.Leave()
	a.Cut()
	if cuts != 1 {
		t.Errorf("cut %d times", cuts)
	}
}

// RELAY-7: a write that makes no progress for two minutes is cut, and no other.
func TestBacklogCutsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		cuts, leave := unreadAnswers(t, b, "alice", 3)
		defer leave()
		quietCut := false
		quiet, err := b.Enter(requestWith(t.Context()), "team-a", "alice", func() { quietCut = true })
		if err != nil {
			t.Fatal(err)
		}
		defer quiet.Leave()
		slowCut := false
		slow, err := b.Enter(requestWith(t.Context()), "team-a", "alice", func() { slowCut = true })
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Leave()
		for elapsed := range 12 {
			if cuts.Load() != 0 {
				t.Errorf("cut after %d0 s", elapsed)
			}
			slow.Writing()
			time.Sleep(10 * time.Second)
			slow.Written()
		}
		time.Sleep(15 * time.Second)
		if cuts.Load() != 3 || quietCut || slowCut {
			t.Errorf("%d answers that are not read were cut, want 3; the quiet one %t, the slow one %t", cuts.Load(), quietCut, slowCut)
		}
	})
}

// RELAY-7: a caller who reads nothing holds no more than its places, however
// many requests it sends, and other callers do not notice.
func TestBacklogBoundsOneCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		_, leave := unreadAnswers(t, b, "mallory", maxPlaces)
		defer leave()
		var refused, served, holding, most atomic.Int64
		for range 4000 {
			go func() {
				a, err := b.Enter(requestWith(t.Context()), "team-a", "mallory", func() {})
				if errors.Is(err, ErrBacklog) {
					refused.Add(1)
					return
				}
				most.Store(max(most.Load(), holding.Add(1)))
				served.Add(1)
				a.Writing()
				time.Sleep(time.Minute)
				holding.Add(-1)
				a.Leave()
			}()
		}
		synctest.Wait()
		if refused.Load() != 4000-maxWaiting/heldByRequest {
			t.Errorf("%d requests were refused at once", refused.Load())
		}
		other, err := b.Enter(requestWith(t.Context()), "team-a", "alice", func() {})
		if err != nil {
			t.Errorf("another caller: %v", err)
		} else {
			other.Leave()
		}
		time.Sleep(3 * time.Minute)
		if most.Load() > maxPlaces {
			t.Errorf("%d answers held bytes at a time", most.Load())
		}
	})
}

// A caller who reads is not slowed down by answers that have nothing to write.
func TestBacklogQuietAnswersGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		for range 3 * maxPlaces {
			a, err := b.Enter(requestWith(t.Context()), "team-a", "controller", func() { t.Error("a quiet watch was cut") })
			if err != nil {
				t.Fatal(err)
			}
			defer a.Leave()
			a.Writing()
			a.Written()
		}
		began := time.Now()
		a, err := b.Enter(requestWith(t.Context()), "team-a", "controller", func() {})
		if err != nil {
			t.Fatal(err)
		}
		a.Leave()
		if took := time.Since(began); took > time.Second {
			t.Errorf("a request waited %v", took)
		}
		time.Sleep(time.Hour)
	})
}

// RELAY-7: quiet answers of one caller that all begin to write, and are not read, are
// bounded again: many at once as soon as it shows that the caller does not read.
func TestBacklogBoundsStreamsThatWakeTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		streams int
		within  time.Duration
	}{
		"few":  {2 * maxPlaces, 30 * time.Second},
		"many": {20 * maxPlaces, unreadAfter + 2*sweepContended},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBacklog()
				var cuts atomic.Int64
				var all []*Entry
				for range tt.streams {
					var a *Entry
					a, err := b.Enter(requestWith(t.Context()), "team-a", "mallory", func() { cuts.Add(1); go a.Leave() })
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, a)
				}
				for _, a := range all {
					a.Writing()
				}
				time.Sleep(tt.within)
				if left := int64(len(all)) - cuts.Load(); left > maxPlaces {
					t.Errorf("%d answers hold bytes", left)
				}
				if name == "few" && cuts.Load() != maxPlaces {
					t.Errorf("%d answers were cut, want %d", cuts.Load(), maxPlaces)
				}
				for _, a := range all {
					a.Leave()
				}
				wantEmpty(t, b)
			})
		})
	}
}

// A request that waits ends with its context, and leaves nothing behind.
func TestBacklogWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		_, leave := unreadAnswers(t, b, "alice", maxPlaces)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := b.Enter(requestWith(ctx), "team-a", "alice", func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		leave()
		wantEmpty(t, b)
	})
}

// RELAY-7: what waiting requests hold is counted with their headers.
func TestBacklogCountsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		_, leave := unreadAnswers(t, b, "mallory", maxPlaces)
		defer leave()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const size = 1 << 20
		large := requestWith(ctx)
		large.Header = http.Header{"X-Large": {strings.Repeat("x", size/2), strings.Repeat("y", size/2)}}
		var refused atomic.Int64
		for range 100 {
			go func() {
				if _, err := b.Enter(large, "team-a", "mallory", func() {}); errors.Is(err, ErrBacklog) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		if waiting := 100 - refused.Load(); waiting*size > maxWaiting || waiting < maxWaiting/size-2 {
			t.Errorf("%d requests of a mebibyte wait", waiting)
		}
		cancel()
		synctest.Wait()
		for _, c := range b.tenants["team-a"].callers {
			if c.held != 0 || c.tenant.waiting != 0 {
				t.Errorf("%d and %d bytes are still counted", c.held, c.tenant.waiting)
			}
		}
	})
}

// RELAY-7: the callers of one namespace together are bounded, however many its
// author invents, and other namespaces do not notice.
func TestBacklogBoundsOneNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		const callers, each = 200, maxPlaces / 2
		var holding, refused atomic.Int64
		for i := range callers {
			for range each {
				go func() {
					cut := make(chan struct{})
					var once atomic.Bool
					a, err := b.Enter(requestWith(t.Context()), "team-a", "user "+strings.Repeat("i", i), func() {
						if once.CompareAndSwap(false, true) {
							close(cut)
						}
					})
					if err != nil {
						refused.Add(1)
						return
					}
					holding.Add(1)
					a.Writing()
					<-cut
					holding.Add(-1)
					a.Leave()
				}()
			}
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if holding.Load() > maxTenantCrowd {
			t.Errorf("%d answers hold bytes, want %d at most", holding.Load(), maxTenantCrowd)
		}
		time.Sleep(placeWait + unreadAfter + time.Second) // no request waits
		if holding.Load() > maxTenantActive {
			t.Errorf("%d answers hold bytes later, want %d at most", holding.Load(), maxTenantActive)
		}
		began := time.Now()
		other, err := b.Enter(requestWith(t.Context()), "team-b", "alice", func() { t.Error("alice was cut") })
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("another namespace: %v after %v", err, time.Since(began))
		}
		other.Leave()
		time.Sleep(10 * time.Minute)
		if holding.Load() != 0 {
			t.Errorf("%d answers are left", holding.Load())
		}
		t.Logf("%d of %d requests were refused", refused.Load(), callers*each)
		wantEmpty(t, b)
	})
}

// RELAY-7: a caller who reads finds a place in a namespace that is full of answers
// of others which are not read.
func TestBacklogFullNamespaceGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		for i := range 2 * tenantShare {
			_, leave := unreadAnswers(t, b, fmt.Sprint("user ", i), maxPlaces/2)
			defer leave()
		}
		began := time.Now()
		a, err := b.Enter(requestWith(t.Context()), "team-a", "alice", func() { t.Error("alice was cut") })
		if err != nil {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		if took := time.Since(began); took > unreadAfter+time.Second {
			t.Errorf("alice waited %v", took)
		}
		a.Leave()
	})
}

// Thousands of callers of one namespace who read do not notice the bound.
func TestBacklogPassesCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		for i := range 10 * maxTenantActive {
			began := time.Now()
			a, err := b.Enter(requestWith(t.Context()), "team-a", "user "+strings.Repeat("i", i), func() { t.Error("an answer was cut") })
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("request %d waited %v", i, took)
			}
			a.Writing()
			time.Sleep(10 * time.Microsecond)
			a.Written()
			defer a.Leave()
		}
		time.Sleep(time.Minute)
	})
}

func BenchmarkBacklog(bench *testing.B) {
	b, r := NewBacklog(), requestWith(context.Background())
	bench.ReportAllocs()
	for bench.Loop() {
		a, err := b.Enter(r, "team-a", "alice", func() {})
		if err != nil {
			bench.Fatal(err)
		}
		a.Writing()
		a.Written()
		a.Leave()
	}
}
