package idp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// So many tokens of a source are refused before it needs its rate.
	sourceAtOnce = sourceBurst + 10
	floodTime    = time.Minute
)

// sources is a Limiter that is asked about tokens that begin with bad.
type sources struct {
	*Limiter
	calls atomic.Int64
}

// inTime runs a test in a time of its own.
func inTime(t *testing.T, test func(t *testing.T, s *sources)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, &sources{Limiter: NewLimiter(time.Now, nil)}) })
}

func (s *sources) from(source, token string) error {
	return s.Ask(WithSource(context.Background(), source), token, false, func(context.Context) error {
		s.calls.Add(1)
		if token[:3] == "bad" {
			return errRefused
		}
		return nil
	})
}

// flood sends bad tokens from a source for floodTime, by so many workers which
// pause for 10 ms on average. It returns how many were not asked about.
func (s *sources) flood(source string, workers int) (sent, limited int) {
	var all, unasked atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for range workers {
		wait.Go(func() {
			for time.Since(began) < floodTime {
				if s.from(source, fmt.Sprint("bad", source, all.Add(1))) == tooManyRefused {
					unasked.Add(1)
				}
				pause(20 * time.Millisecond)
			}
		})
	}
	wait.Wait()
	return int(all.Load()), int(unasked.Load())
}

func pause(atMost time.Duration) { time.Sleep(rand.N(atMost)) }

// AUTH-13: floods from a few sources cost few calls, and a new good token from
// another source is always asked about.
func TestFewSourcesFlood(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		const flooding, others = 20, 5
		var wait sync.WaitGroup
		for n := range flooding {
			wait.Go(func() { s.flood(fmt.Sprint("flood-", n), quietCalls) })
		}
		for n := range others {
			wait.Go(func() {
				for i := range int(floodTime / time.Second) {
					if err := s.from(fmt.Sprint("other-", n), fmt.Sprint("new", i, n)); err != nil {
						t.Errorf("after %d s: %v", i, err)
					}
					time.Sleep(time.Second)
				}
			})
		}
		wait.Wait()
		good := others * int(floodTime/time.Second)
		refused := int(s.calls.Load()) - good
		t.Logf("%d refused in a minute", refused)
		// Each was a quiet one with its first tokens.
		if least, most := refusedBurst+60*refusedRate, int(atOnce)+60*refusedRate+quietCalls*flooding; refused < least || refused > most {
			t.Errorf("%d calls, want %d to %d", refused, least, most)
		}
	})
}

// AUTH-13: one source alone gets what it may and no more, and a new good token
// from there is asked about after a few attempts.
func TestOneSourceFloods(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		var sent, limited, good, attempts int
		var wait sync.WaitGroup
		wait.Go(func() { sent, limited = s.flood("flood", 20) })
		began := time.Now()
		for time.Since(began) < floodTime {
			switch err := s.from("flood", fmt.Sprint("new", good)); err {
			case nil:
				good++
			case tooManyRefused:
			default:
				t.Error(err)
			}
			attempts++
			pause(100 * time.Millisecond)
		}
		wait.Wait()
		refused := sent - limited
		t.Logf("%d bad tokens: %d refused, %d not asked about; %d of %d attempts with good ones", sent, refused, limited, good, attempts)
		if least, most := sourceBurst+59*sourceRate, sourceAtOnce+60*sourceRate; refused < least || refused > most {
			t.Errorf("%d refused, want %d to %d", refused, least, most)
		}
		if good < 10 {
			t.Errorf("%d good tokens", good)
		}
		if n := s.sources.Len(); n != 1 {
			t.Errorf("%d sources are remembered, want the one that had refusals", n)
		}
	})
}

// Who sends few bad tokens at a time is slowed down, and never turned away; and
// has what it may at once again when it was quiet.
func TestFewAtATimeAreSlowedDown(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		const workers, each = 10, 200
		began := time.Now()
		var wait sync.WaitGroup
		for n := range workers {
			wait.Go(func() {
				for i := range each {
					if err := s.from("busy", fmt.Sprint("bad", n, "-", i)); err != errRefused {
						t.Errorf("token %d: %v", i, err)
					}
				}
			})
		}
		wait.Wait()
		if took, want := time.Since(began), time.Duration(workers*each-sourceBurst)*time.Second/sourceRate; (took - want).Abs() > time.Second/sourceRate {
			t.Errorf("it took %v, want %v", took, want)
		}
		if err := s.from("busy", "new"); err != nil {
			t.Errorf("a good one afterwards: %v", err)
		}
		time.Sleep(sourceBurst * time.Second / sourceRate)
		again := time.Now()
		for i := range sourceBurst {
			_ = s.from("busy", fmt.Sprint("bad again", i))
		}
		if took := time.Since(again); took != 0 {
			t.Errorf("it took %v after a pause", took)
		}
	})
}

// What a token that waits would have cost is given back when its caller has no
// time left.
func TestLateTokenGivesUp(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		for i := range sourceBurst {
			_ = s.from("busy", fmt.Sprint("bad", i))
		}
		for range 100 {
			ctx, cancel := context.WithTimeout(WithSource(t.Context(), "busy"), time.Nanosecond)
			if err := s.Ask(ctx, "new", false, func(context.Context) error { return nil }); err != outOfTime {
				t.Fatal(err)
			}
			cancel()
		}
		if c := &s.strange; !c.calls.TryAcquire(maxCalls) || !c.waiting.TryAcquire(maxWaiting) {
			t.Error("calls or bytes are held")
		} else {
			c.calls.Release(maxCalls)
			c.waiting.Release(maxWaiting)
		}
		if err := s.from("busy", "new"); err != nil {
			t.Error(err)
		}
	})
}

// Very many sources are bounded together, and so is what is known of them.
func TestManySourcesFlood(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		began := time.Now()
		flood := func(round string) {
			var wait sync.WaitGroup
			for i := range 5000 {
				wait.Go(func() { _ = s.from(fmt.Sprint("source-", i), fmt.Sprint("bad", round, i)) })
			}
			wait.Wait()
		}
		for round := range 10 {
			flood(fmt.Sprint(round))
			time.Sleep(time.Second)
		}
		seconds := int(time.Since(began) / time.Second)
		if n, most := int(s.calls.Load()), 2*(int(atOnce)+refusedRate*seconds); n > most {
			t.Errorf("%d calls in %d seconds, at most %d", n, seconds, most)
		}
		if n := s.sources.Len(); n > maxSources {
			t.Errorf("%d sources", n)
		}
		time.Sleep(time.Minute)
		if err := s.from("source-1", "new"); err != nil {
			t.Errorf("after the flood: %v", err)
		}
	})
}

// A source that had a refusal lately shares the budget of those, and has its own
// place again later. Many good tokens at once from a source are not limited.
func TestQuietAgain(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		wantClass := func(when string, want *class) {
			t.Helper()
			got, source, _ := s.enter(false, [32]byte{}, "mine")
			if got != want {
				t.Errorf("%s: another class", when)
			}
			s.leave(source)
		}
		wantClass("new", &s.quiet)
		_ = s.from("mine", "bad")
		wantClass("just after a refusal", &s.strange)
		time.Sleep(quietAfter)
		wantClass("30 seconds later", &s.quiet)
		var wait sync.WaitGroup
		for i := range 2 * sourceBurst {
			wait.Go(func() {
				if err := s.from("fresh", fmt.Sprint("good", i)); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	})
}

// AUTH-13: an address that sends very many tokens at once to a slow endpoint does
// not have the token of another address wait for them, though none of its tokens
// was refused yet.
func TestManyAtOnceFromANewSource(t *testing.T) {
	inTime(t, func(t *testing.T, s *sources) {
		slow := func(source, token string, err error) error {
			return s.Ask(WithSource(context.Background(), source), token, false, func(context.Context) error {
				time.Sleep(time.Second)
				return err
			})
		}
		var wait sync.WaitGroup
		for i := range 400 {
			wait.Go(func() { _ = slow("hostile", fmt.Sprint("bad", i), errRefused) })
		}
		synctest.Wait()
		began := time.Now()
		if err := slow("other", "good", nil); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		wait.Wait()
	})
}
