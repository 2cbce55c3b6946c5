package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

func tokenKey(token string) cacheKey {
	return cacheKey{scope: newScope("uid", "hash"), token: sha256.Sum256([]byte(token))}
}

// good is a validation that accepts until a moment.
func good(name string, until time.Time) func(context.Context) (answer, error) {
	return func(context.Context) (answer, error) {
		return answer{result: &Result{Identity: &identity.Identity{Name: name}, Expires: until}, until: until}, nil
	}
}

func bad(err error) func(context.Context) (answer, error) {
	return func(context.Context) (answer, error) { return answer{}, err }
}

// ask authenticates through the cache and says whether it validated.
func ask(t testing.TB, c *Cache, token string, validate func(context.Context) (answer, error)) (validated bool, result *Result, err error) {
	t.Helper()
	key := tokenKey(token)
	if result, err, ok := c.lookup(&key); ok {
		return false, result, err
	}
	var ran atomic.Bool
	result, err = c.load(t.Context(), key, func(ctx context.Context) (answer, error) {
		ran.Store(true)
		return validate(ctx)
	})
	return ran.Load(), result, err
}

// AUTH-12: how long a verdict is remembered.
func TestCacheTimes(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	var lookups []string
	w.cache.OnLookup = func(result string) { lookups = append(lookups, result) }
	check := func(token, name, reason string, want ...string) {
		t.Helper()
		lookups = nil
		w.check(t, token, name, reason)
		if diff := cmp.Diff(want, lookups); diff != "" {
			t.Error(diff)
		}
	}
	hour := w.token(t, k1(), p, "exp", w.clock.Now().Add(time.Hour).Unix())
	short := w.token(t, k1(), p, "exp", w.clock.Now().Add(time.Minute).Unix())
	refused := w.token(t, k1(), p, "sub", 42)
	check(hour, "alice", "", CacheMiss)
	check(hour, "alice", "", CacheHit)
	check(short, "alice", "", CacheMiss)
	check(refused, "", ReasonClaims, CacheMiss)
	check(refused, "", ReasonClaims, CacheRefused)

	w.clock.Step(refusedFor - time.Nanosecond)
	check(refused, "", ReasonClaims, CacheRefused)
	w.clock.Step(time.Nanosecond)
	check(refused, "", ReasonClaims, CacheMiss)

	w.clock.Step(time.Minute - refusedFor - time.Nanosecond)
	check(short, "alice", "", CacheHit)
	w.clock.Step(time.Nanosecond)
	check(short, "", ReasonExpired, CacheMiss)

	for range 8 { // up to nine minutes, the keys being read again on the way
		w.clock.Step(time.Minute)
		w.check(t, hour, "alice", "")
	}
	w.clock.Step(time.Minute - time.Nanosecond)
	check(hour, "alice", "", CacheHit)
	w.clock.Step(time.Nanosecond)
	check(hour, "alice", "", CacheMiss)
	// What nobody looks into the cache for.
	check("a.b", "", ReasonOpaque)
}

// A verdict counts for one configuration only.
func TestCacheScopes(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	token := w.token(t, k1(), p)
	w.check(t, token, "alice", "")
	other := p.authenticator()
	other.ClaimMappings.Username = expression(`"other"`)
	for _, cfg := range []Config{{UID: "uid-2", Hash: "hash-1"}, {UID: "uid-1", Hash: "hash-2"}, {UID: "uid-1h", Hash: "ash-1"}} {
		a := w.make(t, cfg, other)
		result, err := a.Authenticate(t.Context(), token)
		if err != nil || result.Identity.Name != "other" {
			t.Errorf("%v: got %v, %v", cfg, result, err)
		}
		a.Close()
	}
	w.check(t, token, "alice", "")
	if newScope("a", "bc") == newScope("ab", "c") || newScope("1:", "") == newScope("", "1:") {
		t.Error("two configurations share a scope")
	}
}

// A provider's fault is no verdict and not remembered here.
func TestCacheForgetsFaults(t *testing.T) {
	c := NewCache(10, newClock().Now)
	fault := &Unavailable{Fault: "x"}
	for range 2 {
		validated, _, err := ask(t, c, "t", bad(fault))
		if !validated || err != error(fault) {
			t.Errorf("got %t, %v", validated, err)
		}
	}
}

// A flood of bad tokens drives no good one out; neither grows without end.
func TestCacheIsBounded(t *testing.T) {
	now := newClock()
	c := NewCache(100, now.Now)
	until := now.Now().Add(time.Hour)
	for i := range 100 {
		_, _, _ = ask(t, c, fmt.Sprint("good-", i), good("x", until))
	}
	for i := range 10_000 {
		_, _, _ = ask(t, c, fmt.Sprint("bad-", i), bad(errSignature))
	}
	if n := c.Len(); n != 100 {
		t.Errorf("%d good tokens are left, want 100", n)
	}
	if n := c.shards[0].refused.len(); n != 100 {
		t.Errorf("%d refusals, want 100", n)
	}
	for i := range 1000 {
		_, _, _ = ask(t, c, fmt.Sprint("more-", i), good("x", until))
	}
	if n := c.Len(); n != 100 {
		t.Errorf("%d good tokens, want 100", n)
	}

	// Large identities count for more.
	large := strings.Repeat("x", 20<<10)
	for i := range 100 {
		_, _, _ = ask(t, c, fmt.Sprint("large-", i), good(large, until))
	}
	held := c.shards[0].good
	if held.bytes > held.maxBytes || c.Len() > held.maxBytes/len(large) {
		t.Errorf("%d entries with %d bytes, want at most %d", c.Len(), held.bytes, held.maxBytes)
	}
	// One that would take the place of many is not remembered at all.
	before := c.Len()
	_, _, _ = ask(t, c, "huge", good(strings.Repeat("x", 60<<10), until))
	if validated, _, _ := ask(t, c, "huge", good("x", until)); !validated || c.Len() < before {
		t.Errorf("a huge identity was remembered (%t) or drove others out: %d entries of %d", !validated, c.Len(), before)
	}
}

// The shards hold what was asked for, and the count of bytes stays right.
func TestCacheProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := newClock()
		entries := rapid.IntRange(1, 2000).Draw(rt, "entries")
		c := NewCache(entries, now.Now)
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			token := fmt.Sprint(rapid.IntRange(0, 20).Draw(rt, "token"))
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				_, _, _ = ask(t, c, token, good(strings.Repeat("x", rapid.IntRange(0, 70<<10).Draw(rt, "size")), now.Now().Add(time.Minute)))
			case 1:
				_, _, _ = ask(t, c, token, bad(errClaims))
			case 2:
				now.Step(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
			case 3:
				key := tokenKey(token)
				_, _, _ = c.lookup(&key)
			}
		}
		if c.Len() > entries {
			rt.Fatalf("%d entries of %d", c.Len(), entries)
		}
		for i := range c.shards {
			s := &c.shards[i]
			checkFairLRU(rt, s.good)
			checkFairLRU(rt, s.refused)
			for _, element := range s.good.entries {
				entry := element.Value.(*fairEntry[answer])
				if want := size(entry.value.result); entry.size != want {
					rt.Fatalf("an entry of %d bytes is counted as %d", want, entry.size)
				}
			}
		}
	})
}

func TestCacheShards(t *testing.T) {
	for entries, want := range map[int]int{1: 1, 100: 1, 511: 1, 512: 2, 2000: 4, 0: 16, 1 << 20: 16} {
		if got := len(NewCache(entries, nil).shards); got != want {
			t.Errorf("%d entries: %d shards, want %d", entries, got, want)
		}
	}
}

// Many requests with one token validate it once; the first of them leaving
// fails no other.
func TestSingleFlight(t *testing.T) {
	now := newClock()
	c := NewCache(10, now.Now)
	var validations atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	validate := func(ctx context.Context) (answer, error) {
		if validations.Add(1) == 1 {
			close(entered)
		}
		select {
		case <-release:
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the validation may take for ever")
		}
		return good("alice", now.Now().Add(time.Hour))(ctx)
	}
	first, leave := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.load(first, tokenKey("t"), validate)
		left <- err
	}()
	<-entered
	gone := errors.New("the client is gone")
	leave(gone)
	if err := <-left; !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			result, err := c.load(t.Context(), tokenKey("t"), validate)
			if err != nil || result.Identity.Name != "alice" {
				t.Errorf("got %v, %v", result, err)
			}
		})
	}
	close(release)
	wait.Wait()
	if n := validations.Load(); n != 1 {
		t.Errorf("%d validations, want 1", n)
	}
}

// A panic in a library refuses one token and ends no process.
// The context of a request is read while the caller waits, and not when it has
// gone: there are values in it that others change then.
func TestSourceIsReadByTheCaller(t *testing.T) {
	c := NewCache(0, nil)
	address := "10.0.0.1" // with -race, a later read would be seen
	c.Source = func(context.Context) string { return address }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan struct{})
	_, err := c.load(ctx, tokenKey("token"), func(context.Context) (answer, error) {
		close(ended)
		return answer{}, errMalformed
	})
	address = "10.0.0.2"
	if !errors.Is(err, context.Canceled) && err != error(errMalformed) {
		t.Errorf("got %v", err)
	}
	<-ended
}

func TestPanicRefuses(t *testing.T) {
	c := NewCache(10, nil)
	var stack string
	c.OnPanic = func(where []byte) { stack = string(where) }
	_, _, err := ask(t, c, "t", func(context.Context) (answer, error) { panic("boom") })
	if !strings.Contains(stack, "cache_test.go") || strings.Contains(stack, "boom") {
		t.Errorf("told of %q", stack)
	}
	if reasonOf(err) != ReasonInternal {
		t.Errorf("got %v", err)
	}
}

// No token is held in memory: neither as a key nor through a substring.
func TestCacheHoldsNoToken(t *testing.T) {
	p := newIDP(t, k1().jwk())
	a := p.authenticator()
	a.ClaimMappings.Username = expression(`claims.big.substring(0, 5)`)
	w := newWorld(t, a)
	big := "alice" + strings.Repeat("x", 30<<10)
	w.check(t, w.token(t, k1(), p, "big", big), "alice", "")
	for i := range w.cache.shards {
		for _, element := range w.cache.shards[i].good.entries {
			if n := size(element.Value.(*fairEntry[answer]).value.result); n > 2*entryOverhead {
				t.Errorf("an entry of %d bytes", n)
			}
		}
	}
}

// One token, its cache entry dropped over and over while requests come.
func TestConcurrentUse(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	tokens := make([]string, 4)
	for i := range tokens {
		tokens[i] = w.token(t, k1(), p, "n", i, "exp", w.clock.Now().Add(100*time.Hour).Unix())
	}
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for n := range 50 {
				if _, err := w.Authenticate(t.Context(), tokens[(i+n)%len(tokens)]); err != nil {
					t.Error(err)
				}
				w.IssuerFaults()
				w.Refresh()
			}
		})
	}
	wait.Go(func() {
		for range 20 {
			w.clock.Step(time.Minute)
			time.Sleep(time.Millisecond)
		}
	})
	wait.Wait()
	eventually(t, "the last read ends", func() bool { return !w.reading() })
}

// A cache hit allocates nothing.
func TestHitAllocations(t *testing.T) {
	p := newIDP(t, k1().jwk())
	w := newWorld(t, p.authenticator())
	token := w.token(t, k1(), p)
	w.check(t, token, "alice", "")
	if n := testing.AllocsPerRun(100, func() { _, _ = w.Authenticate(t.Context(), token) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAuthenticateHit(b *testing.B) {
	for _, size := range []int{0, 3000} {
		p := newIDP(b, k1().jwk())
		w := newWorld(b, p.authenticator())
		w.cache.now = time.Now
		w.JWTAuthenticators.now = time.Now
		w.keys.sets[keySetID{p.issuer, "", sha256.Sum256([]byte(p.ca()))}].now = time.Now
		w.clock.SetTime(time.Now())
		token := w.token(b, k1(), p, "exp", time.Now().Add(time.Hour).Unix(), "pad", strings.Repeat("x", size))
		if _, err := w.Authenticate(b.Context(), token); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("token=%dB", len(token)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("token=%dB/parallel", len(token)), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := w.Authenticate(context.Background(), token); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkAuthenticateMiss validates a new token each time.
func BenchmarkAuthenticateMiss(b *testing.B) {
	for _, s := range []signer{k1(), {"ec", "ES256", ecKey256()}, {"ed", "EdDSA", edwards()}} {
		b.Run(string(s.alg), func(b *testing.B) {
			p := newIDP(b, s.jwk())
			w := newWorld(b, p.authenticator())
			token := w.token(b, s, p)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = rand.Read(w.scope[:]) // so that nothing is remembered
				if _, err := w.Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse is a flood of tokens that are bad in different ways.
func BenchmarkRefuse(b *testing.B) {
	p := newIDP(b, k1().jwk())
	w := newWorld(b, p.authenticator())
	payload, err := json.Marshal(w.claimsOf(p))
	if err != nil {
		b.Fatal(err)
	}
	for name, token := range map[string]string{
		"opaque":         strings.Repeat("a", 1000),
		"algorithm":      signer{"k1", "HS256", rsaKey1()}.sign(b, nil, payload),
		"unknown_issuer": w.token(b, k1(), p, "iss", "x"),
		"expired":        w.token(b, k1(), p, "exp", 1),
		"bad_signature":  w.token(b, signer{"k1", "RS256", rsaKey2()}, p),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Authenticate(b.Context(), token); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}

func BenchmarkBearer(b *testing.B) {
	token := "Bearer " + strings.Repeat("a", 1000)
	h := map[string][]string{"Accept": {"*/*"}, "User-Agent": {"kubectl"}, "Accept-Encoding": {"gzip"}, "Kubectl-Command": {"kubectl get"}, "Kubectl-Session": {"x"}}
	line := []string{token}
	b.ReportAllocs()
	for b.Loop() {
		h["Authorization"] = line
		if _, err := Bearer(h, false); err != nil {
			b.Fatal(err)
		}
	}
}
