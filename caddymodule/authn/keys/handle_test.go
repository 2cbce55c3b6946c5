package keys

import (
	"context"
	"crypto/elliptic"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// AUTH-13: tokens with unknown kids that wait for a hanging issuer at one cluster
// are bounded, and do not keep another cluster, nor the same, from a token whose
// key is known.
func TestWaitingTokensKeepNoOtherOut(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	a := newWorld(t, p)
	b := a.acquire(t, p.URL, "", p.CA())
	t.Cleanup(b.Close)
	a.check(t, a.token(t, k1(), p), nil)

	blocked := make(chan struct{})
	p.Answer(nil, func(w http.ResponseWriter, _ *http.Request) {
		<-blocked
		issuertest.WriteJSON(w, map[string]any{"keys": []any{k1().JWK()}})
	})
	stranger := by("unknown", jose.RS256, issuertest.RSA2())
	var wait sync.WaitGroup
	var mu sync.Mutex
	beyond := 0
	for i := range 150 {
		size := 45 << 10
		if i >= 110 {
			size = 1
		}
		token := a.token(t, stranger, p, "n", i, "s", strings.Repeat("s", size))
		wait.Go(func() {
			switch _, err := verify(t.Context(), b, token); err {
			case idp.TooManyWait:
				mu.Lock()
				defer mu.Unlock()
				beyond++
			case nil, ErrUnknownKey, ErrUnknownYet, idp.Fault("it did not answer in time"):
				// The last when the rest of the test took longer than the issuer is
				// given.
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	issuertest.Eventually(t, "a cluster without room", func() bool { mu.Lock(); defer mu.Unlock(); return beyond > 0 })
	for i := range 20 {
		token := a.token(t, k1(), p, "s", fmt.Sprint(i)+strings.Repeat("s", 40<<10))
		a.check(t, token, nil)
		if _, err := verify(t.Context(), b, token); err != nil {
			t.Errorf("the attacked cluster: %v", err)
		}
	}
	close(blocked)
	wait.Wait()
	t.Logf("%d of 150 found no room", beyond)
	checkNothingWaits(t, a.Handle)
	checkNothingWaits(t, b)
}

// checkNothingWaits fails unless all the room is free.
func checkNothingWaits(t testing.TB, h *Handle) {
	t.Helper()
	if !h.waiting.TryAcquire(maxWaiting) {
		t.Error("some bytes still wait")
		return
	}
	h.waiting.Release(maxWaiting)
}

// AUTH-13: what waits for an issuer is bounded, and the others go on.
func TestWaitingIsBounded(t *testing.T) {
	w := newWorldAt(t, "https://idp.example.test", "")
	read := &keyRead{done: make(chan struct{})}
	var wait sync.WaitGroup
	var beyond atomic.Int64
	const tokens = 1000
	for range tokens {
		wait.Go(func() {
			if err := w.wait(t.Context(), read, 2<<10); err == idp.TooManyWait {
				beyond.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	issuertest.Eventually(t, "there is no room", func() bool { return beyond.Load() > 0 })
	time.Sleep(10 * time.Millisecond)
	close(read.done)
	wait.Wait()
	waited := tokens - beyond.Load()
	if t.Logf("%d tokens of 2 KiB waited", waited); waited < 250 {
		t.Errorf("only %d tokens of 2 KiB waited", waited)
	}
	checkNothingWaits(t, w.Handle)
	if err := w.wait(t.Context(), read, idp.MaxBearer); err != nil {
		t.Error(err)
	}
}

// AUTH-5: no key set makes a token cost more than eight verifications.
func TestTriesAreBounded(t *testing.T) {
	signers := make([]signer, 20)
	keys := make([]map[string]any, 20)
	for i := range signers {
		signers[i] = by(fmt.Sprint("k", i), jose.ES512, issuertest.NewEC(elliptic.P521()))
		keys[i] = signers[i].JWK()
	}
	p := issuertest.New(t, keys...)
	w := newWorld(t, p)
	unnamed := func(i int) string {
		return by("", jose.ES512, signers[i].Key).Sign(t, nil, []byte(`{}`))
	}
	w.check(t, w.token(t, signers[19], p), nil)
	w.check(t, unnamed(maxTries-1), nil)
	began := time.Now()
	w.check(t, unnamed(19), ErrUnknownKey)
	t.Logf("a token that fits none took %v", time.Since(began))
}

// AUTH-13: a flood of tokens with bad signatures takes half of the processors at
// most, and leaves the others to other clusters.
func TestVerificationsLeaveProcessors(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	if processors < 2 {
		return // there is no other
	}
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	w.check(t, w.token(t, k1(), p), nil)
	forged, err := jose.ParseSignedCompact(w.token(t, by("k1", jose.RS256, issuertest.RSA2()), p), algorithms)
	if err != nil {
		t.Fatal(err)
	}
	const flood = 500 * time.Millisecond
	var wait sync.WaitGroup
	before, began := processorTime(t), time.Now()
	for range 8 * processors {
		wait.Go(func() {
			for time.Since(began) < flood {
				if _, err := w.Verify(t.Context(), forged, 1000); err != ErrSignature {
					t.Errorf("got %v", err)
					return
				}
			}
		})
	}
	wait.Wait()
	used, took := processorTime(t)-before, time.Since(began)
	share := float64(used) / float64(took) / float64(processors)
	if t.Logf("%.0f %% of %d processors", 100*share, processors); share > 0.8 {
		t.Error("that is too much")
	}
}

// AUTH-13: while the signatures of one cluster's tokens take all its turns, a
// further token of it is not judged, which is no 401, and another cluster with the
// same issuer goes on.
func TestTurnsOfOneClusterAreItsOwn(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	busy := newWorld(t, p)
	other := busy.acquire(t, p.URL, "", p.CA())
	t.Cleanup(other.Close)
	token := busy.token(t, k1(), p)
	busy.check(t, token, nil)
	for busy.verifications.TryAcquire(1) {
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := verify(ctx, busy.Handle, token); err != ErrBusy {
		t.Errorf("got %v", err)
	}
	if _, err := verify(t.Context(), other, token); err != nil {
		t.Errorf("the other cluster: %v", err)
	}
}
