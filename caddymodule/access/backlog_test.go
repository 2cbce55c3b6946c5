package access

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// answers enters n requests whose callers do not read, and counts the cuts.
func unreadAnswers(t *testing.T, b *Backlog, name string, n int) (*atomic.Int64, func()) {
	t.Helper()
	cuts := new(atomic.Int64)
	var all []*Entry
	for range n {
		var a *Entry
		a, err := b.Enter(t.Context(), name, func() {
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

// RELAY-7: a write that makes no progress for two minutes is cut, and no other.
func TestBacklogCutsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		cuts, leave := unreadAnswers(t, b, "alice", 3)
		defer leave()
		quietCut := false
		quiet, err := b.Enter(t.Context(), "alice", func() { quietCut = true })
		if err != nil {
			t.Fatal(err)
		}
		defer quiet.Leave()
		slowCut := false
		slow, err := b.Enter(t.Context(), "alice", func() { slowCut = true })
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
				a, err := b.Enter(t.Context(), "mallory", func() {})
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
		if refused.Load() != 4000-maxWaiting {
			t.Errorf("%d requests were refused at once", refused.Load())
		}
		other, err := b.Enter(t.Context(), "alice", func() {})
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
			a, err := b.Enter(t.Context(), "controller", func() { t.Error("a quiet watch was cut") })
			if err != nil {
				t.Fatal(err)
			}
			defer a.Leave()
			a.Writing()
			a.Written()
		}
		began := time.Now()
		a, err := b.Enter(t.Context(), "controller", func() {})
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

// Answers that were quiet and are not read later count again.
func TestBacklogCountsWhatBecomesUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		var cuts atomic.Int64
		var all []*Entry
		for range 2 * maxPlaces {
			var a *Entry
			a, err := b.Enter(t.Context(), "mallory", func() { cuts.Add(1); go a.Leave() })
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, a)
		}
		for _, a := range all {
			a.Writing()
		}
		time.Sleep(30 * time.Second)
		if cuts.Load() != maxPlaces {
			t.Errorf("%d answers were cut, want %d", cuts.Load(), maxPlaces)
		}
		for _, a := range all {
			a.Leave()
		}
		if len(b.callers) != 0 {
			t.Errorf("%d callers are left", len(b.callers))
		}
	})
}

// RELAY-7: quiet streams that all have something to write at once are bounded as
// soon as it shows that their caller does not read.
func TestBacklogBoundsStreamsThatWakeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		var cuts atomic.Int64
		var all []*Entry
		for range 20 * maxPlaces {
			var a *Entry
			a, err := b.Enter(t.Context(), "mallory", func() { cuts.Add(1); go a.Leave() })
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, a)
		}
		for _, a := range all {
			a.Writing()
		}
		time.Sleep(unreadAfter + 2*sweepContended)
		if left := int64(len(all)) - cuts.Load(); left > maxPlaces {
			t.Errorf("%d answers hold bytes", left)
		}
		for _, a := range all {
			a.Leave()
		}
	})
}

// A request that waits ends with its context, and leaves nothing behind.
func TestBacklogWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBacklog()
		_, leave := unreadAnswers(t, b, "alice", maxPlaces)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := b.Enter(ctx, "alice", func() {}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		leave()
		if len(b.callers) != 0 {
			t.Errorf("%d callers are left", len(b.callers))
		}
	})
}

func BenchmarkBacklog(bench *testing.B) {
	b := NewBacklog()
	bench.ReportAllocs()
	for bench.Loop() {
		a, err := b.Enter(context.Background(), "alice", func() {})
		if err != nil {
			bench.Fatal(err)
		}
		a.Writing()
		a.Written()
		a.Leave()
	}
}
