package boundedjson

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// AUTH-13: a large answer has a slot until it is released, a small one none.
func TestReader(t *testing.T) {
	r := NewReader(8) // of which two for one owner
	of := func(n int) io.Reader { return iotest.HalfReader(strings.NewReader(strings.Repeat("x", n))) }
	read := func(ctx context.Context, n int) (func(), error) {
		body, release, err := r.Read(ctx, of(n))
		if err == nil && len(body) != n {
			t.Errorf("%d bytes of %d", len(body), n)
		}
		return release, err
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var taken []func()
	for range 2 {
		release, err := read(t.Context(), SmallAnswer+1)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, release)
	}
	release, err := read(ended, SmallAnswer)
	if err != nil {
		t.Fatalf("a small answer: %v", err)
	}
	release()
	if n := r.InUse(); n != 2 {
		t.Errorf("a small answer gave a slot back: %d are in use", n)
	}
	if _, err := read(ended, SmallAnswer+1); err != ErrNoSlot {
		t.Errorf("a large answer too many: %v", err)
	}
	taken[0]()
	for n, want := range map[int]error{MaxAnswer: nil, MaxAnswer + 1: ErrTooLarge, 10 * MaxAnswer: ErrTooLarge} {
		release, err := read(t.Context(), n)
		if err != want {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err == nil {
			release()
		}
	}
	broken := errors.New("broken")
	for _, n := range []int{100, SmallAnswer + 100} {
		if _, _, err := r.Read(t.Context(), io.MultiReader(of(n), iotest.ErrReader(broken))); err != broken {
			t.Errorf("broken after %d bytes: %v", n, err)
		}
	}
	taken[1]()
	if n := r.InUse(); n != 0 {
		t.Errorf("%d slots are in use", n)
	}
}
