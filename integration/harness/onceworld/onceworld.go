package onceworld

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// startTime is how long all of a world may take to start, on a machine that
// does other things too.
const startTime = 5 * time.Minute

// World is a W that the tests of a package share.
type World[W any] struct {
	start func(context.Context, *Setup) (W, error)
	once  sync.Once
	setup Setup
	value W
	err   error
}

// New is a world that start will make. The context that start gets ends with
// it: what it starts must not depend on that.
func New[W any](start func(context.Context, *Setup) (W, error)) *World[W] {
	return &World[W]{start: start}
}

// Get is the world for a test, started by the first call.
func (w *World[W]) Get(tb testing.TB) W {
	tb.Helper()
	w.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTime)
		defer cancel()
		if w.setup.Dir, w.err = os.MkdirTemp("", "world"); w.err == nil {
			w.value, w.err = w.start(ctx, &w.setup)
		}
	})
	if w.err != nil {
		tb.Fatal(w.err)
	}
	return w.value
}

// Run runs the tests, a *testing.M, ends the world if one was started, and
// returns the exit code: 1 instead of 0 when the world ended badly.
func (w *World[W]) Run(m interface{ Run() int }) int {
	code := m.Run()
	for _, err := range w.setup.end() {
		fmt.Fprintln(os.Stderr, "FAIL: what the tests share:", err)
		if code == 0 {
			code = 1
		}
	}
	return code
}

// Setup is where a world is started.
type Setup struct {
	// Dir is a directory of the world's own, removed at the end.
	Dir  string
	ends []func() error
}

// AtEnd has stop called after the tests, in the reverse order of the calls.
func (s *Setup) AtEnd(stop func()) {
	s.AtEndCheck(func() error { stop(); return nil })
}

// AtEndCheck is AtEnd for what can end badly, which fails the run of the tests.
func (s *Setup) AtEndCheck(stop func() error) { s.ends = append(s.ends, stop) }

func (s *Setup) end() (errs []error) {
	for _, stop := range slices.Backward(s.ends) {
		if err := stop(); err != nil {
			errs = append(errs, err)
		}
	}
	if s.Dir != "" {
		if err := os.RemoveAll(s.Dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
