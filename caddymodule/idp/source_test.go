package idp

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// sources is a Limiter with a clock, asked about tokens that begin with bad.
type sources struct {
	*Limiter
	clock *clocktesting.FakeClock
	mu    sync.Mutex
	calls int
}

func newSources() *sources {
	s := &sources{clock: newClock()}
	s.Limiter = NewLimiter(s.clock.Now, nil)
	return s
}

func (s *sources) from(source, token string) error {
	return s.Ask(WithSource(context.Background(), source), token, false, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls++
		if token[:3] == "bad" {
			return errRefused
		}
		return nil
	})
}

// AUTH-13: floods from a few sources cost few calls, and a new good token from
// another source is always asked about.
func TestFewSourcesFlood(t *testing.T) {
	s := newSources()
	for i := range 60 { // seconds
		for n := range 20 {
			for j := range 30 {
				_ = s.from(fmt.Sprint("flood-", n), fmt.Sprint("bad", i, n, j))
			}
		}
		for n := range 5 {
			if err := s.from(fmt.Sprint("other-", n), fmt.Sprint("new", i, n)); err != nil {
				t.Fatalf("after %d s: %v", i, err)
			}
		}
		s.clock.Step(time.Second)
	}
	refused := s.calls - 60*5
	t.Logf("%d calls for 36,000 bad tokens", refused)
	if most := refusedBurst + 60*refusedRate + 3*20; refused > most {
		t.Errorf("%d calls, want %d at most", refused, most)
	}
}

// One source alone.
func TestOneSourceFloods(t *testing.T) {
	s := newSources()
	for i := range 1000 {
		_ = s.from("flood", fmt.Sprint("bad", i))
	}
	if s.calls != sourceBurst {
		t.Errorf("%d calls", s.calls)
	}
	s.clock.Step(time.Second)
	for i := range 1000 {
		_ = s.from("flood", fmt.Sprint("bad again", i))
	}
	if s.calls != sourceBurst+sourceRate {
		t.Errorf("%d calls a second later", s.calls)
	}
	for i := range 3 * refusedBurst {
		if err := s.from("other", fmt.Sprint("new", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.sources.Len(); n != 1 {
		t.Errorf("%d sources are remembered, want the one that had refusals", n)
	}
}

// Very many sources are bounded together, and so is what is known of them.
func TestManySourcesFlood(t *testing.T) {
	s := newSources()
	for round := range 3 {
		for i := range 10_000 {
			_ = s.from(fmt.Sprint("source-", i), fmt.Sprint("bad", round, i))
		}
	}
	if s.calls > 2*refusedBurst {
		t.Errorf("%d calls", s.calls)
	}
	before := s.calls
	for range 10 {
		s.clock.Step(time.Second)
		for i := range 10_000 {
			_ = s.from(fmt.Sprint("source-", i), fmt.Sprint("bad later", i))
		}
	}
	if n := s.calls - before; n > 10*2*refusedRate {
		t.Errorf("%d calls in ten seconds", n)
	}
	if n := s.sources.Len(); n > maxSources {
		t.Errorf("%d sources", n)
	}
	s.clock.Step(time.Minute)
	if err := s.from("source-1", "new"); err != nil {
		t.Errorf("after the flood: %v", err)
	}
}

// A source that had a refusal lately shares the budget of those, and has its own
// place again later. Many good tokens at once from a source are not limited.
func TestQuietAgain(t *testing.T) {
	s := newSources()
	_ = s.from("mine", "bad")
	for n := range 100 {
		for i := range 20 {
			_ = s.from(fmt.Sprint("flood-", n%20), fmt.Sprint("bad", n, i))
		}
	}
	if err := s.from("mine", "new"); err != tooManyRefused {
		t.Errorf("in a flood, just after a refusal: %v", err)
	}
	s.clock.Step(quietAfter)
	for n := range 100 {
		_ = s.from(fmt.Sprint("flood-", n%20), fmt.Sprint("bad later", n))
	}
	if err := s.from("mine", "new"); err != nil {
		t.Errorf("30 seconds later: %v", err)
	}
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			if err := s.from("fresh", fmt.Sprint("good", i)); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}
