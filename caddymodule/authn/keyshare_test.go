package authn

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// AUTH-13: tokens with unknown kids that wait for a hanging issuer at one cluster
// are bounded, and do not keep another cluster, nor the same, from a token whose
// key is known.
func TestWaitingTokensKeepNoOtherOut(t *testing.T) {
	p := newIDP(t, k1().jwk())
	a := newWorld(t, p.authenticator())
	b := a.make(t, Config{UID: "uid-2", Hash: "hash-2"}, p.authenticator())
	t.Cleanup(b.Close)
	a.check(t, a.token(t, k1(), p), "alice", "")

	blocked := make(chan struct{})
	p.answer(nil, func(w http.ResponseWriter, _ *http.Request) {
		<-blocked
		writeJSON(w, map[string]any{"keys": []any{k1().jwk()}})
	})
	stranger := signer{"unknown", jose.RS256, rsaKey2()}
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
			_, err := b.Authenticate(t.Context(), token)
			var fault *Unavailable
			switch {
			case errors.As(err, &fault) && strings.HasSuffix(fault.Fault, "too many tokens wait for it"):
				mu.Lock()
				defer mu.Unlock()
				beyond++
			case errors.As(err, &fault) && strings.HasSuffix(fault.Fault, "did not answer in time"):
				// The rest of the test took longer than the issuer is given.
			case reasonOf(err) != ReasonUnknownKey && reasonOf(err) != "":
				t.Errorf("got %v", err)
			}
		})
	}
	eventually(t, "a cluster without room", func() bool { mu.Lock(); defer mu.Unlock(); return beyond > 0 })
	for i := range 20 {
		token := a.token(t, k1(), p, "s", fmt.Sprint(i)+strings.Repeat("s", 40<<10))
		a.check(t, token, "alice", "")
		if _, err := b.Authenticate(t.Context(), token); err != nil {
			t.Errorf("the attacked cluster: %v", err)
		}
	}
	close(blocked)
	wait.Wait()
	t.Logf("%d of 150 found no room", beyond)
	if set := a.members[0].keys; set.waiting.Load() != 0 || b.members[0].keys.use.waiting.Load() != 0 || b.members[0].keys.use.judging.Load() != 0 {
		t.Error("some bytes still wait")
	}
}
