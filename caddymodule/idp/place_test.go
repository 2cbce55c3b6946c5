package idp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// AUTH-13: a large answer has a place until it leaves, a small one none.
func TestPlace(t *testing.T) {
	of := func(n int) io.Reader { return iotest.HalfReader(strings.NewReader(strings.Repeat("x", n))) }
	read := func(ctx context.Context, n int) (*Place, error) {
		p := new(Place)
		body, err := p.Read(ctx, of(n))
		if err == nil && len(body) != n {
			t.Errorf("%d bytes of %d", len(body), n)
		}
		return p, err
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var taken []*Place
	for range largeAnswers {
		p, err := read(t.Context(), smallAnswer+1)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, p)
	}
	if _, err := read(ended, smallAnswer); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	p, err := read(ended, smallAnswer+1)
	if err != NoPlace {
		t.Errorf("a large answer too many: %v", err)
	}
	p.Leave() // which had none
	taken[0].Leave()
	taken[0].Leave()
	for n, want := range map[int]error{MaxAnswer: nil, MaxAnswer + 1: TooLarge, 10 * MaxAnswer: TooLarge} {
		p, err := read(t.Context(), n)
		if err != want {
			t.Errorf("%d bytes: %v", n, err)
		}
		p.Leave()
	}
	broken := errors.New("broken")
	if _, err := p.Read(t.Context(), io.MultiReader(of(smallAnswer+100), iotest.ErrReader(broken))); err != broken {
		t.Errorf("got %v", err)
	}
	for _, p := range append(taken, p) {
		p.Leave()
	}
	if n := len(places); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// AUTH-13: while the large answers of one endpoint take all places, the small
// ones of another do not wait, nor those of the same.
func TestSmallAnswersDoNotWait(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	blocked := make(chan struct{})
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Authorization"), "small") {
			return
		}
		_, _ = rw.Write(make([]byte, 2*smallAnswer))
		rw.(http.Flusher).Flush()
		<-blocked
	})
	var wait sync.WaitGroup
	for i := range maxCalls - 1 {
		wait.Go(func() {
			if err := w.Ask(context.Background(), w.call(fmt.Sprint(i), false)); err != nil {
				t.Error(err)
			}
		})
	}
	deadline := time.Now().Add(5 * time.Second)
	for len(places) < largeAnswers || w.calls.Load() < maxCalls-1 {
		if time.Now().After(deadline) {
			t.Fatalf("%d places are taken, %d calls made", len(places), w.calls.Load())
		}
		time.Sleep(time.Millisecond)
	}
	if err := other.ask(t, "small", false); err != nil {
		t.Errorf("another endpoint: %v", err)
	}
	if err := w.ask(t, "small", false); err != nil {
		t.Errorf("the same endpoint: %v", err)
	}
	close(blocked)
	wait.Wait()
	if n := len(places); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
