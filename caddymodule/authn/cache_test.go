package authn

import (
	"context"
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

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// validatorFunc is a Validator without anything around.
type validatorFunc func(ctx context.Context, token string) (*Result, error)

func (f validatorFunc) Authenticate(ctx context.Context, token string) (*Result, error) {
	return f(ctx, token)
}
func (validatorFunc) Refresh()            {}
func (validatorFunc) Faults() []string    { return nil }
func (validatorFunc) AsksApiserver() bool { return false }
func (validatorFunc) Close()              {}

// newTestCaching is a caching Validator over one that ask sets.
func newTestCaching(entries int, now func() time.Time) *caching {
	return newCaching(nil, NewCache(CacheOptions{Entries: entries, Now: now}))
}

// good is a validation that accepts until a moment.
func good(name string, until time.Time) validatorFunc {
	return func(context.Context, string) (*Result, error) {
		return &Result{Identity: &identity.Identity{Name: name}, Expires: until, until: until}, nil
	}
}

func bad(err error) validatorFunc {
	return func(context.Context, string) (*Result, error) { return nil, err }
}

// ask authenticates through the cache and says whether it validated.
func ask(t testing.TB, c *caching, token string, validate validatorFunc) (validated bool, result *Result, err error) {
	t.Helper()
	var ran atomic.Bool
	c.Validator = validatorFunc(func(ctx context.Context, token string) (*Result, error) {
		ran.Store(true)
		return validate(ctx, token)
	})
	result, err = c.Authenticate(t.Context(), token)
	return ran.Load(), result, err
}

// AUTH-12: how long a verdict is remembered.
func TestCacheTimes(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	var lookups []string
	w.cache.options.OnLookup = func(result string) { lookups = append(lookups, result) }
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
	check(refused, "", errClaims.Reason, CacheMiss)
	check(refused, "", errClaims.Reason, CacheRefused)

	w.clock.Step(refusedFor - time.Nanosecond)
	check(refused, "", errClaims.Reason, CacheRefused)
	w.clock.Step(time.Nanosecond)
	check(refused, "", errClaims.Reason, CacheMiss)

	w.clock.Step(time.Minute - refusedFor - time.Nanosecond)
	check(short, "alice", "", CacheHit)
	w.clock.Step(time.Nanosecond)
	check(short, "", errExpired.Reason, CacheMiss)

	for range 8 { // up to nine minutes, the keys being read again on the way
		w.clock.Step(time.Minute)
		w.check(t, hour, "alice", "")
	}
	w.clock.Step(time.Minute - time.Nanosecond)
	check(hour, "alice", "", CacheHit)
	w.clock.Step(time.Nanosecond)
	check(hour, "alice", "", CacheMiss)
	// What is refused at sight is not remembered.
	check("a.b", "", errOpaque.Reason, CacheMiss)
	check("a.b", "", errOpaque.Reason, CacheMiss)
}

// A verdict counts for one configuration only.
func TestCacheOfTwoConfigurations(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	token := w.token(t, k1(), p)
	w.check(t, token, "alice", "")
	other := p.authenticator()
	other.ClaimMappings.Username = expression(`"other"`)
	v := w.make(t, other)
	checkValidator(t, v, token, "other", "")
	v.Close()
	w.check(t, token, "alice", "")
}

// A provider's fault is no verdict and not remembered here.
func TestCacheForgetsFaults(t *testing.T) {
	c := newTestCaching(10, newClock().Now)
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
	c := newTestCaching(100, now.Now)
	until := now.Now().Add(time.Hour)
	for i := range 100 {
		_, _, _ = ask(t, c, fmt.Sprint("good-", i), good("x", until))
	}
	for i := range 10_000 {
		_, _, _ = ask(t, c, fmt.Sprint("bad-", i), bad(errSignature))
	}
	if n := c.cache.Len(); n != 100 {
		t.Errorf("%d good tokens are left, want 100", n)
	}
	if n := c.cache.refused.len(); n != 100 {
		t.Errorf("%d refusals, want 100", n)
	}
	for i := range 1000 {
		_, _, _ = ask(t, c, fmt.Sprint("more-", i), good("x", until))
	}
	if n := c.cache.Len(); n != 100 {
		t.Errorf("%d good tokens, want 100", n)
	}

	// Large identities count for more.
	large := strings.Repeat("x", 20<<10)
	for i := range 100 {
		_, _, _ = ask(t, c, fmt.Sprint("large-", i), good(large, until))
	}
	held := c.cache.good
	if held.bytes > held.maxBytes || c.cache.Len() > held.maxBytes/len(large) {
		t.Errorf("%d entries with %d bytes, want at most %d", c.cache.Len(), held.bytes, held.maxBytes)
	}
}

// The bounds hold, and the counts stay right.
func TestCacheProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := newClock()
		entries := rapid.IntRange(1, 2000).Draw(rt, "entries")
		c := newTestCaching(entries, now.Now)
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
				key := digest(token)
				_, _, _ = c.lookup(&key)
			}
		}
		if c.cache.Len() > entries {
			rt.Fatalf("%d entries of %d", c.cache.Len(), entries)
		}
		checkMemoryLimit(rt, c.cache.good)
		checkMemoryLimit(rt, c.cache.refused)
		for _, entry := range c.good.lru.Values() {
			if want := entry.value.size(); entry.bytes != want {
				rt.Fatalf("an entry of %d bytes is counted as %d", want, entry.bytes)
			}
		}
	})
}

// Many requests with one token validate it once; the first of them leaving
// fails no other.
func TestSingleFlight(t *testing.T) {
	now := newClock()
	c := newTestCaching(10, now.Now)
	var validations atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	c.Validator = validatorFunc(func(ctx context.Context, token string) (*Result, error) {
		if validations.Add(1) == 1 {
			close(entered)
		}
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if _, limited := ctx.Deadline(); !limited {
			t.Error("the validation may take for ever")
		}
		return good("alice", now.Now().Add(time.Hour))(ctx, token)
	})
	first, leave := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Authenticate(first, "t")
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
			result, err := c.Authenticate(t.Context(), "t")
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

// The context of a request is read while the caller waits, and not when it has
// gone: there are values in it that others change then.
func TestSourceIsReadByTheCaller(t *testing.T) {
	c := newTestCaching(0, nil)
	address := "10.0.0.1" // with -race, a later read would be seen
	c.cache.options.Source = func(context.Context) string { return address }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan struct{})
	c.Validator = validatorFunc(func(context.Context, string) (*Result, error) {
		close(ended)
		return nil, errMalformed
	})
	_, err := c.Authenticate(ctx, "token")
	address = "10.0.0.2"
	if !errors.Is(err, context.Canceled) && err != error(errMalformed) {
		t.Errorf("got %v", err)
	}
	<-ended
}

// A panic in a library refuses one token and ends no process.
func TestPanicRefuses(t *testing.T) {
	c := newTestCaching(10, nil)
	var stack string
	c.cache.options.OnPanic = func(where []byte) { stack = string(where) }
	_, _, err := ask(t, c, "t", func(context.Context, string) (*Result, error) { panic("boom") })
	if !strings.Contains(stack, "cache_test.go") || strings.Contains(stack, "boom") {
		t.Errorf("told of %q", stack)
	}
	if reasonOf(err) != errInternal.Reason {
		t.Errorf("got %v", err)
	}
}

// No token is held in memory: neither as a key nor through a substring.
func TestCacheHoldsNoToken(t *testing.T) {
	p := newIDP(t, k1().JWK())
	a := p.authenticator()
	a.ClaimMappings.Username = expression(`claims.big.substring(0, 5)`)
	w := newWorld(t, a)
	big := "alice" + strings.Repeat("x", 30<<10)
	w.check(t, w.token(t, k1(), p, "big", big), "alice", "")
	for _, entry := range w.Validator.(*caching).good.lru.Values() {
		if n := entry.value.size(); n > 2*entryOverhead {
			t.Errorf("an entry of %d bytes", n)
		}
	}
}

// One token, its cache entry dropped over and over while requests come.
func TestConcurrentUse(t *testing.T) {
	p := newIDP(t, k1().JWK())
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
				w.Faults()
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
}

// A cache hit allocates nothing.
func TestHitAllocations(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newWorld(t, p.authenticator())
	token := w.token(t, k1(), p)
	w.check(t, token, "alice", "")
	if n := testing.AllocsPerRun(100, func() { _, _ = w.Authenticate(t.Context(), token) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAuthenticateHit(b *testing.B) {
	for _, size := range []int{0, 3000} {
		p := newIDP(b, k1().JWK())
		w := newWorld(b, p.authenticator())
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
	for _, s := range []signer{k1(), by("ec", "ES256", issuertest.EC256()), by("ed", "EdDSA", issuertest.Edwards())} {
		b.Run(string(s.Algorithm), func(b *testing.B) {
			p := newIDP(b, s.JWK())
			w := newWorld(b, p.authenticator())
			token := w.token(b, s, p)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := uncached(w.Validator).Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse is a flood of tokens that are bad in different ways.
func BenchmarkRefuse(b *testing.B) {
	p := newIDP(b, k1().JWK())
	w := newWorld(b, p.authenticator())
	payload, err := json.Marshal(w.claimsOf(p))
	if err != nil {
		b.Fatal(err)
	}
	for name, token := range map[string]string{
		"opaque":         strings.Repeat("a", 1000),
		"algorithm":      by("k1", "HS256", issuertest.RSA1()).Sign(b, nil, payload),
		"unknown_issuer": w.token(b, k1(), p, "iss", "x"),
		"expired":        w.token(b, k1(), p, "exp", 1),
		"bad_signature":  w.token(b, by("k1", "RS256", issuertest.RSA2()), p),
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
