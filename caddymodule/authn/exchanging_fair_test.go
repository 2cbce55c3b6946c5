package authn

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// AUTH-12, AUTH-15: a cluster that has the cache remember all that it can drives
// out nothing of a neighbour's, neither the verdicts nor the exchanged tokens,
// which go on while the neighbour's token endpoint is down.
func TestOneClusterDrivesOutNoOther(t *testing.T) {
	const machines, strangers, large = 100, 1000, 60_000
	c := newClock()
	cache := NewCache(CacheOptions{Now: c.Now})
	victim := newExchangeWorld(t, c, cache, &fakeInner{verdict: func(token string) (*Result, error) { return accepted(c, token), nil }})
	hostile := newExchangeWorld(t, c, cache, &fakeInner{verdict: func(string) (*Result, error) {
		a := accepted(c, "")
		a.Identity = &identity.Identity{Name: strings.Repeat("n", large)}
		return a, nil
	}})
	all := func() {
		t.Helper()
		for i := range machines {
			victim.check(t, fmt.Sprint("machine-", i), "user of exchanged by exchanged")
		}
	}
	all()
	victim.endpoint.calls()
	hostile.endpoint.setAnswer(func(w http.ResponseWriter, r *http.Request) {
		issue(r.PostForm.Get("subject_token")+strings.Repeat("t", large), 3600)(w, r)
	})
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			for i := range strangers / 4 {
				if _, err := hostile.Authenticate(t.Context(), fmt.Sprintf("stranger-%d-%d", worker, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()

	victim.endpoint.setAnswer(status(503, ""))
	in := victim.exchanging.Validator.(*fakeInner)
	in.judgements()
	all()
	if n := len(in.judgements()); n != 0 {
		t.Errorf("%d verdicts of %d were driven out", n, machines)
	}
	c.Step(30 * time.Second) // the verdicts lapse, the tokens have most of an hour left
	all()
	victim.exchanges(t)

	// The end of the hostile one frees all it held.
	hostile.Close()
	kept := cache.exchanged
	if n := kept.len(); n != machines || kept.bytes != machines*(entryOverhead+len("exchanged")) {
		t.Errorf("%d tokens with %d bytes are left", n, kept.bytes)
	}
}

// The same for refusals: those of one cluster are no reason to ask the
// neighbour's provider again.
func TestOneClusterDrivesOutNoRefusals(t *testing.T) {
	cache := NewCache(CacheOptions{Entries: 1000, Now: newClock().Now})
	victim, hostile := newCaching(bad(errClaims), cache), newCaching(bad(errClaims), cache)
	refuse := func(c *caching, n int) {
		for i := range n {
			_, _ = c.Authenticate(t.Context(), fmt.Sprint(i))
		}
	}
	refuse(victim, 100)
	refuse(hostile, 5000)
	for i := range 100 {
		key := digest(fmt.Sprint(i))
		if _, err, _ := victim.lookup(&key); err != error(errClaims) {
			t.Fatalf("refusal %d: %v", i, err)
		}
	}
}
