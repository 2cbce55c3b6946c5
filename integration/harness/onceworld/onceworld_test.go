package onceworld

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tests is a *testing.M whose tests are these.
type tests func() int

func (f tests) Run() int { return f() }

// failed is a test that notes what ended it.
type failed struct {
	testing.TB
	with []any
}

func (f *failed) Helper()           {}
func (f *failed) Fatal(args ...any) { f.with = args }

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name              string
		asked             int
		startErr, stopErr error
		code, want        int
		started           bool
	}{
		{name: "nobody asks"},
		{name: "nobody asks and a test fails", code: 2, want: 2},
		{name: "several ask", asked: 3, started: true},
		{name: "it cannot start", asked: 2, startErr: broken, code: 1, want: 1, started: true},
		{name: "it ends badly", asked: 1, stopErr: broken, want: 1, started: true},
		{name: "it ends badly and a test fails", asked: 1, stopErr: broken, code: 2, want: 2, started: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var events []string
			var dir string
			w := New(func(_ context.Context, s *Setup) (int, error) {
				events, dir = append(events, "start"), s.Dir
				s.AtEnd(func() { events = append(events, "first") })
				s.AtEndCheck(func() error {
					events = append(events, "second")
					if _, err := os.Stat(dir); err != nil {
						t.Errorf("before the end: %v", err)
					}
					return c.stopErr
				})
				return 7, c.startErr
			})
			code := w.Run(tests(func() int {
				for range c.asked {
					test := &failed{TB: t}
					if c.startErr == nil {
						if got := w.Get(test); got != 7 {
							t.Errorf("got %d", got)
						}
					} else if w.Get(test); !slices.Equal(test.with, []any{c.startErr}) {
						t.Errorf("a test failed with %v", test.with)
					}
				}
				events = append(events, "tests")
				return c.code
			}))
			if code != c.want {
				t.Errorf("code %d, want %d", code, c.want)
			}
			want := []string{"tests"}
			if c.started {
				want = []string{"start", "tests", "second", "first"}
			}
			if d := cmp.Diff(want, events); d != "" {
				t.Error(d)
			}
			if dir != "" {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the directory is left: %v", err)
				}
			}
		})
	}
}
