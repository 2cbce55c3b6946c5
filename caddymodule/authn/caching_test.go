package authn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// uncached is the validator that a caching one decorates.
func uncached(v Validator) Validator { return v.(*caching).Validator }

// AUTH-12: the end of a configuration drops exactly its entries, and what comes
// late from it is not remembered.
func TestCloseDropsOneConfiguration(t *testing.T) {
	cache := NewCache(CacheOptions{Entries: 1000})
	ended, other := newCaching(nil, cache), newCaching(nil, cache)
	until := time.Now().Add(time.Hour)
	fill := func(c *caching) {
		for i := range 20 {
			if _, _, err := ask(t, c, fmt.Sprint("good", i), good("alice", until)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ask(t, c, fmt.Sprint("bad", i), bad(errSignature)); !errors.Is(err, errSignature) {
				t.Fatal(err)
			}
		}
	}
	held := func(c *caching) (n int) {
		for i := range 20 {
			for _, kind := range []string{"good", "bad"} {
				key := digest(fmt.Sprint(kind, i))
				if _, _, ok := c.lookup(&key); ok {
					n++
				}
			}
		}
		return n
	}
	fill(ended)
	fill(other)
	if held(ended) != 40 || held(other) != 40 {
		t.Fatalf("remembered: %d and %d", held(ended), held(other))
	}
	ended.Close()
	if held(ended) != 0 || held(other) != 40 {
		t.Errorf("after the end of one: %d and %d", held(ended), held(other))
	}
	fill(ended)
	if held(ended) != 0 || cache.Len() != 20 {
		t.Errorf("remembered after the end: %d", held(ended))
	}
}

// AUTH-13: a validation has the values of the caller who began it, and goes on
// without that caller.
func TestValidationHasTheCallersValues(t *testing.T) {
	type key struct{}
	c := newTestCaching(0, nil)
	ctx, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "from here"))
	seen := make(chan any, 2)
	c.Validator = validatorFunc(func(ctx context.Context, _ string) (*Result, error) {
		leave()
		seen <- ctx.Value(key{})
		seen <- ctx.Err()
		return nil, errInternal
	})
	_, err := c.Authenticate(ctx, "token")
	if value, ended := <-seen, <-seen; value != "from here" || ended != nil {
		t.Errorf("value %v, %v; the caller got %v", value, ended, err)
	}
}

// AUTH-17: a token that met the bound of the expressions in time is remembered for
// five seconds.
func TestSlowExpressionsAreRemembered(t *testing.T) {
	c := newTestCaching(10, nil)
	for i := range 3 {
		validated, _, err := ask(t, c, "token", bad(ErrSlow))
		if validated != (i == 0) || err != error(ErrSlow) {
			t.Errorf("%d: validated: %t, got %v", i, validated, err)
		}
	}
}

// A refusal at sight fills no cache.
func TestRefusalAtSightIsNotRemembered(t *testing.T) {
	c := newTestCaching(10, nil)
	for range 2 {
		validated, _, err := ask(t, c, "token", bad(atSight{errMalformed}))
		if !validated || err != error(errMalformed) {
			t.Errorf("validated: %t, got %v", validated, err)
		}
	}
	if n := c.cache.refused.len(); n != 0 {
		t.Errorf("%d refusals are remembered", n)
	}
}

// AUTH-13: a validation ends after ten seconds, whatever it waits for.
func TestValidationTakesTenSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCaching(10, nil)
		c.Validator = validatorFunc(func(ctx context.Context, _ string) (*Result, error) {
			<-ctx.Done()
			return nil, &Unavailable{Fault: "it did not answer in time"}
		})
		began := time.Now()
		if _, err := c.Authenticate(t.Context(), "token"); !isUnavailable(err) || time.Since(began) != lookupLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
