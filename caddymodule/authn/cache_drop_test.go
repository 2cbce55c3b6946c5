package authn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// AUTH-12: the end of a configuration drops exactly its entries.
func TestCacheDropsOneScope(t *testing.T) {
	c := NewCache(1000, nil)
	ended, other := newScope("uid", "ended"), newScope("uid", "other")
	until := time.Now().Add(time.Hour)
	fill := func(of scope) {
		for i := range 20 {
			key := cacheKey{scope: of, token: digest(fmt.Sprint("good", i))}
			if _, err := c.load(t.Context(), key, good("alice", until)); err != nil {
				t.Fatal(err)
			}
			key.token = digest(fmt.Sprint("bad", i))
			if _, err := c.load(t.Context(), key, bad(errSignature)); !errors.Is(err, errSignature) {
				t.Fatal(err)
			}
		}
	}
	held := func(of scope) (n int) {
		for i := range 20 {
			for _, kind := range []string{"good", "bad"} {
				key := cacheKey{scope: of, token: digest(fmt.Sprint(kind, i))}
				if _, _, ok := c.get(&key); ok {
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
	c.drop(ended)
	if held(ended) != 0 || held(other) != 40 {
		t.Errorf("after the end of one: %d and %d", held(ended), held(other))
	}
}

// AUTH-13: a validation has the values of the caller who began it, and goes on
// without that caller.
func TestValidationHasTheCallersValues(t *testing.T) {
	type key struct{}
	c := NewCache(0, nil)
	ctx, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "from here"))
	seen := make(chan any, 2)
	_, err := c.load(ctx, cacheKey{}, func(ctx context.Context) (answer, error) {
		leave()
		seen <- ctx.Value(key{})
		seen <- ctx.Err()
		return answer{}, errInternal
	})
	if value, ended := <-seen, <-seen; value != "from here" || ended != nil {
		t.Errorf("value %v, %v; the caller got %v", value, ended, err)
	}
}

// A configuration that comes back begins anew: what was remembered under it, the
// tokens of an exchange included, is not found again.
func TestCacheOfAConfigurationThatComesBack(t *testing.T) {
	c := NewCache(0, nil)
	first, again := c.newScope("uid", "hash"), c.newScope("uid", "hash")
	if first == again {
		t.Fatal("two authenticators share a scope")
	}
	key := cacheKey{scope: first, token: digest("token")}
	if _, err := c.load(t.Context(), key, good("alice", time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	key.scope = again
	if result, _, ok := c.get(&key); ok {
		t.Errorf("found %v", result)
	}
}
