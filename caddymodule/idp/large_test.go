package idp

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// AUTH-13: while the large answers of one endpoint take all their slots, the small
// ones of another do not wait, nor those of the same.
func TestSmallAnswersDoNotWait(t *testing.T) {
	answers := boundedjson.NewReader(boundedjson.LargeAnswers)
	w, other := newWorldOf(t, answers), newWorldOf(t, answers)
	blocked := make(chan struct{})
	w.answers(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Authorization"), "small") {
			return
		}
		_, _ = rw.Write(make([]byte, 2*boundedjson.SmallAnswer))
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
	for answers.InUse() < boundedjson.LargeAnswers/4 || w.calls.Load() < maxCalls-1 {
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are taken, %d calls made", answers.InUse(), w.calls.Load())
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
	if n := answers.InUse(); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}
