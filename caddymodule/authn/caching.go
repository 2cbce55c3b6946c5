package authn

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

const (
	// refusedFor is how long a refusal is remembered (AUTH-12).
	refusedFor = 5 * time.Second
	// lookupLimit bounds one validation with all it asks of a provider.
	lookupLimit = 10 * time.Second
)

// caching is a Validator that remembers what another one found out (AUTH-12).
// What it remembers is of its own configuration alone, and goes with its Close.
//
// A token is validated once for all requests that wait for it. The validation
// runs in a goroutine of its own: it goes on when a caller leaves, so that a
// client that hangs up fails no other. A panic in it refuses the token.
type caching struct {
	Validator
	cache   *Cache
	good    *memory[*Result]
	refused *memory[refusal]
	flights singleflight.Group
}

func newCaching(v Validator, cache *Cache) *caching {
	return &caching{Validator: v, cache: cache, good: cache.good.newMemory(), refused: cache.refused.newMemory()}
}

// Authenticate returns what is remembered of a token, or validates it.
func (c *caching) Authenticate(ctx context.Context, token string) (*Result, error) {
	if len(token) > maxToken {
		return nil, errMalformed
	}
	key := digest(token)
	result, err, ok := c.lookup(&key)
	c.observe(err, ok)
	if ok {
		return result, err
	}
	return c.load(ctx, key, token)
}

// lookup returns what is remembered of a token: a result or a refusal.
func (c *caching) lookup(key *tokenDigest) (result *Result, err error, ok bool) {
	now := c.cache.now()
	if result, ok := c.good.get(key); ok {
		// The end of a token is a time of day. until may be one of the process,
		// which stands still while the machine sleeps and does not see its clock
		// being set.
		if !now.Before(result.until) || !now.Before(result.Expires) {
			c.good.remove(key)
			return nil, nil, false
		}
		if result.stillValid != nil && !result.stillValid(now) {
			return nil, nil, false
		}
		return result, nil, true
	}
	bad, ok := c.refused.get(key)
	if !ok {
		return nil, nil, false
	}
	if !now.Before(bad.until) {
		c.refused.remove(key)
		return nil, nil, false
	}
	return nil, bad.err, true
}

// observe tells OnLookup about a look into the cache.
func (c *caching) observe(err error, ok bool) {
	switch {
	case c.cache.options.OnLookup == nil:
	case !ok:
		c.cache.options.OnLookup(CacheMiss)
	case err != nil:
		c.cache.options.OnLookup(CacheRefused)
	default:
		c.cache.options.OnLookup(CacheHit)
	}
}

// load has a token validated and remembers the verdict. An error that is no
// verdict is not remembered: when to ask a provider again is decided where it is
// asked.
func (c *caching) load(ctx context.Context, key tokenDigest, token string) (*Result, error) {
	// Here and not below: once the caller has left, its ctx is no longer ours to
	// read values from that others write without a lock (caddyhttp.SetVar).
	own := c.detached(ctx)
	done := c.flights.DoChan(string(key[:]), func() (any, error) {
		if result, err, ok := c.lookup(&key); ok {
			return result, err
		}
		limited, cancel := context.WithTimeout(own, lookupLimit)
		defer cancel()
		result, err := c.guarded(limited, token)
		return result, c.store(&key, result, err)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a token to be validated: %w", context.Cause(ctx))
	case r := <-done:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*Result), nil
	}
}

// detached is what a validation for the caller with ctx runs under: it knows
// where the token comes from, and does not end with the caller.
func (c *caching) detached(ctx context.Context) context.Context {
	if c.cache.options.Source == nil {
		return context.WithoutCancel(ctx)
	}
	return idp.WithSource(context.WithoutCancel(ctx), c.cache.options.Source(ctx))
}

// guarded turns a panic into a refusal: it happens outside the goroutine of a
// request, where it would end the process.
func (c *caching) guarded(ctx context.Context, token string) (result *Result, err error) {
	defer func() {
		if recover() == nil {
			return
		}
		result, err = nil, errInternal
		if c.cache.options.OnPanic != nil {
			// Not the value of the panic, which may quote the token.
			c.cache.options.OnPanic(debug.Stack())
		}
	}()
	return c.Validator.Authenticate(ctx, token)
}

// store remembers a verdict, and returns the error as callers get it.
func (c *caching) store(key *tokenDigest, result *Result, err error) error {
	var (
		seen    atSight
		refused *Unauthenticated
	)
	switch {
	case err == nil:
		c.refused.remove(key)
		c.good.add(key, result, result.size())
		return nil
	case errors.As(err, &seen):
		return seen.Unauthenticated
	case errors.As(err, &refused):
		err = refused
	case errors.Is(err, ErrSlow):
	default:
		return err
	}
	c.good.remove(key)
	c.refused.add(key, refusal{err, c.cache.now().Add(refusedFor)}, 0)
	return err
}

// Close closes the validator and forgets what is remembered.
func (c *caching) Close() {
	c.Validator.Close()
	c.good.close()
	c.refused.close()
}

// size estimates the memory of a result: its identity, the forwarded one, and the
// token that an exchange gave.
func (r *Result) size() int {
	const header = 16 // of a string
	id := r.Identity
	n := len(id.Name) + len(id.UID)
	for _, group := range id.Groups {
		n += header + len(group)
	}
	for key, values := range id.Extra {
		n += 4*header + len(key)
		for _, value := range values {
			n += header + len(value)
		}
	}
	return entryOverhead + 2*n + len(r.Bearer)
}
