package authn

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
)

// AUTH-15: a verdict that lapses costs no exchange, as long as the exchanged
// token is good.
func TestKeptTokenIsJudgedAgain(t *testing.T) {
	w, in := newFakeWorld(t)
	for range 5 {
		w.check(t, "machine-1", "user of exchanged by exchanged")
		if judged := in.judgements(); !slices.Equal(judged, []string{"exchanged"}) {
			t.Errorf("judged %q", judged)
		}
		w.clock.Step(29 * time.Second)
		w.check(t, "machine-1", "user of exchanged by exchanged")
		if judged := in.judgements(); len(judged) != 0 {
			t.Errorf("judged %q", judged)
		}
		w.clock.Step(time.Second)
	}
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)

	// Who cannot judge says nothing about the token.
	in.setVerdict(func(string) (*Result, error) { return nil, &Unavailable{Fault: "tired"} })
	w.check(t, "machine-1", "unavailable")
	in.setVerdict(func(token string) (*Result, error) { return accepted(w.clock, token), nil })
	w.check(t, "machine-1", "user of exchanged by exchanged")
	w.exchanges(t)
}

// A token that the provider issued is kept, also when it could not be judged.
func TestUnjudgedTokenIsKept(t *testing.T) {
	w, in := newFakeWorld(t)
	in.setVerdict(func(string) (*Result, error) { return nil, &Unavailable{Fault: "tired"} })
	w.check(t, "machine-1", "unavailable")
	w.check(t, "machine-1", "unavailable")
	in.setVerdict(func(token string) (*Result, error) { return accepted(w.clock, token), nil })
	w.check(t, "machine-1", "user of exchanged by exchanged")
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)
}

// An exchanged token that is refused is exchanged once more at once, and then
// not for five seconds.
func TestRevokedExchangedToken(t *testing.T) {
	w, in := newFakeWorld(t)
	w.check(t, "machine-1", "user of exchanged by exchanged")
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)
	in.judgements()

	// The token is revoked, the machine is not.
	w.clock.Step(30 * time.Second)
	in.setVerdict(func(token string) (*Result, error) {
		if token == "exchanged" {
			return nil, errRule
		}
		return accepted(w.clock, token), nil
	})
	w.endpoint.setAnswer(issue("exchanged-2", 3600))
	w.check(t, "machine-1", "user of exchanged-2 by exchanged-2")
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)
	if judged := in.judgements(); !slices.Equal(judged, []string{"exchanged", "exchanged-2"}) {
		t.Errorf("judged %q", judged)
	}

	// The new one is no better.
	w.clock.Step(30 * time.Second)
	in.setVerdict(func(string) (*Result, error) { return nil, errRule })
	for range 3 {
		w.check(t, "machine-1", errRule.Reason)
	}
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeInvalid)
	w.clock.Step(refusedFor)
	w.check(t, "machine-1", errRule.Reason)
	w.exchanges(t, "machine-1")

	// The machine is revoked as well.
	w.clock.Step(refusedFor)
	w.endpoint.setAnswer(status(400, `{"error":"invalid_grant"}`))
	w.check(t, "machine-1", errExchange.Reason)
	if n := w.cache.exchanged.len(); n != 0 {
		t.Errorf("%d tokens are kept", n)
	}
}

// AUTH-15: another token shortly before the end. While the provider is down
// the one at hand goes on, and no longer than it lives.
func TestRenewal(t *testing.T) {
	w, in := newFakeWorld(t)
	begun := w.clock.Now()
	at := func(seconds int) {
		w.clock.Step(begun.Add(time.Duration(seconds) * time.Second).Sub(w.clock.Now()))
	}
	in.setVerdict(func(token string) (*Result, error) {
		a := accepted(w.clock, token)
		a.until = w.clock.Now().Add(10 * time.Minute) // as one verified here
		return a, nil
	})
	w.endpoint.setAnswer(issue("token-1", 300))
	w.check(t, "machine-1", "user of token-1 by token-1")
	w.endpoint.setAnswer(issue("token-2", 300))
	at(269)
	w.check(t, "machine-1", "user of token-1 by token-1")
	w.exchanges(t, "machine-1")
	at(270)
	w.check(t, "machine-1", "user of token-2 by token-2")
	w.exchanges(t, "machine-1")

	begun = w.clock.Now()
	w.endpoint.setAnswer(status(503, ""))
	for _, seconds := range []int{270, 275, 280, 285, 290, 295, 299} {
		at(seconds)
		for range 2 { // one attempt in five seconds
			w.check(t, "machine-1", "user of token-2 by token-2")
		}
	}
	if calls := w.endpoint.calls(); len(calls) != 6 {
		t.Errorf("%d attempts", len(calls))
	}
	at(300)
	w.check(t, "machine-1", "unavailable")
	w.endpoint.setAnswer(issue("token-3", 300))
	w.check(t, "machine-1", "user of token-3 by token-3")

	// A machine that is revoked does not go on.
	begun = w.clock.Now()
	at(270)
	w.endpoint.setAnswer(status(400, `{"error":"invalid_grant"}`))
	w.check(t, "machine-1", errExchange.Reason)
	at(275)
	w.endpoint.setAnswer(status(503, ""))
	w.check(t, "machine-1", "unavailable")
}

// One exchange for all who come with a bearer at once.
func TestStormOfOneBearer(t *testing.T) {
	w, _ := newFakeWorld(t)
	const requests = 1000
	var arrived atomic.Int64
	w.endpoint.setAnswer(func(rw http.ResponseWriter, r *http.Request) {
		for deadline := time.Now().Add(5 * time.Second); arrived.Load() < requests && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		issue("exchanged", 3600)(rw, r)
	})
	var wait sync.WaitGroup
	for range requests {
		wait.Go(func() {
			arrived.Add(1)
			w.check(t, "machine-1", "user of exchanged by exchanged")
		})
	}
	wait.Wait()
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)
}

// A flood of tokens that no provider issued costs a bounded number of exchanges,
// and locks no machine out that is known.
func TestFloodOfStrangers(t *testing.T) {
	w, _ := newFakeWorld(t)
	w.check(t, "machine-1", "user of exchanged by exchanged")
	w.exchanges(t, "machine-1")
	w.endpoint.setAnswer(func(rw http.ResponseWriter, r *http.Request) {
		if r.PostForm.Get("subject_token") != "machine-1" {
			status(400, `{"error":"invalid_grant"}`)(rw, r)
			return
		}
		issue("exchanged", 3600)(rw, r)
	})
	var wait sync.WaitGroup
	var refused, limited atomic.Int64
	for worker := range 20 {
		wait.Go(func() {
			for i := range 200 {
				_, err := w.Authenticate(t.Context(), fmt.Sprintf("stranger-%d-%d", worker, i))
				switch {
				case reasonOf(err) == errExchange.Reason:
					refused.Add(1)
				case isLimited(err):
					limited.Add(1)
				default:
					t.Errorf("got %v", err)
				}
			}
		})
	}
	wait.Wait()
	calls := w.endpoint.calls()
	t.Logf("4000 strangers: %d exchanges, %d times 401, %d times 503", len(calls), refused.Load(), limited.Load())
	// 2,000 at once, and 40 that wait for a clock that stands still.
	if len(calls) != 2040 || refused.Load() != 2040 || limited.Load() != 4000-2040 || w.cache.exchanged.len() != 1 {
		t.Errorf("%d exchanges, %d tokens kept", len(calls), w.cache.exchanged.len())
	}
	if faults := w.Faults(); len(faults) != 0 {
		t.Errorf("faults %q", faults)
	}
	w.caching.good.close()
	w.exchanging.tokens.close()
	w.check(t, "machine-1", "user of exchanged by exchanged")
}

// AUTH-15, TEX-02: when an exchanged token ends, and when it is renewed.
func TestEndOfExchangedToken(t *testing.T) {
	asked := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	jws := func(payload string) string {
		return issuertest.Encode([]byte(`{"alg":"RS256"}`)) + "." + issuertest.Encode([]byte(payload)) + ".c2ln"
	}
	exp := func(after int64) string { return jws(fmt.Sprintf(`{"exp":%d}`, asked.Unix()+after)) }
	for _, tt := range []struct {
		name       string
		token      string
		life       time.Duration
		end, renew time.Duration // after asked
	}{
		{"expires_in of an opaque token", "opaque", time.Hour, time.Hour, time.Hour - 30*time.Second},
		{"a short life", "opaque", 100 * time.Second, 100 * time.Second, 90 * time.Second},
		{"its own exp", exp(3600), 0, time.Hour, time.Hour - 30*time.Second},
		{"exp before expires_in", exp(200), 300 * time.Second, 200 * time.Second, 180 * time.Second},
		{"expires_in before exp", exp(300), 200 * time.Second, 200 * time.Second, 180 * time.Second},
		{"neither", "opaque", 0, 40 * time.Second, 36 * time.Second},
		{"a JWS without exp", jws(`{"sub":"a"}`), 0, 40 * time.Second, 36 * time.Second},
		{"exp that is no number", jws(`{"exp":"9"}`), 0, 40 * time.Second, 36 * time.Second},
		{"three parts that are none", "a.b.c", 0, 40 * time.Second, 36 * time.Second},
		{"exp in the past", exp(-60), time.Hour, -time.Minute, -time.Minute},
	} {
		kept := newExchangedToken(tt.token, asked, tt.life, 40*time.Second)
		if end, renew := kept.end.Sub(asked), kept.renew.Sub(asked); end != tt.end || renew != tt.renew {
			t.Errorf("%s: ends after %v, renewed after %v, want %v and %v", tt.name, end, renew, tt.end, tt.renew)
		}
	}
}

// Exchanged tokens are bounded in entries and in bytes, and end with their time.
func TestExchangedTokensAreBounded(t *testing.T) {
	now := time.Now()
	for _, size := range []int{10, 1000, 10_000, maxToken} {
		p := NewCache(CacheOptions{Entries: 1000}).exchanged
		e := &exchanging{tokens: p.newMemory()}
		for i := range 3000 {
			key := digest(fmt.Sprint(i))
			for range 2 {
				e.remember(&key, &exchangedToken{token: strings.Repeat("x", size), renew: now, end: now.Add(time.Hour)})
			}
		}
		n := p.len()
		t.Logf("%d tokens of %d bytes, %d KiB counted", n, size, p.bytes>>10)
		if n == 0 || n > 1000 || p.bytes > p.maxBytes || p.bytes != n*(entryOverhead+size) {
			t.Errorf("%d tokens of %d bytes, %d bytes counted of %d", n, size, p.bytes, p.maxBytes)
		}
		last := digest("2999")
		if e.remembered(&last, now) == nil {
			t.Error("the last one is gone")
		}
		if e.remembered(&last, now.Add(time.Hour)) != nil || p.len() != n-1 {
			t.Error("a token outlived its end")
		}
	}
}
