package authn

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

const (
	// DefaultCacheEntries is how many tokens are remembered by default.
	DefaultCacheEntries = 10_000

	// refusedFor is how long a refusal is remembered (AUTH-12).
	refusedFor = 5 * time.Second
	// lookupLimit bounds one validation with all it asks of a provider.
	lookupLimit = 10 * time.Second

	// bytesPerEntry times the number of entries bounds the memory of what is
	// remembered: an identity can be as large as its token, and is held a
	// second time as it is forwarded.
	bytesPerEntry = 4 << 10
	// Every entry costs about this much beside its strings.
	entryOverhead = 512
	// An entry that is larger than this part of its shard is not remembered:
	// a few of them would drive all others of their cluster out.
	maxEntryPart = 8

	maxShards       = 16
	minShardEntries = 256
)

// The results of a look into the cache, for OnLookup.
const (
	CacheHit     = "hit"
	CacheMiss    = "miss"
	CacheRefused = "refused" // a remembered refusal
)

// Cache remembers which tokens are good, and for a moment which are not
// (AUTH-12). It holds digests of tokens, and none of them but those that an
// exchange gave, which are sent on (AUTH-15). It is bounded in entries and in
// bytes, fairly by cluster and then by the least recently used (fairLRU);
// refusals are bounded on their own, so that a flood of bad tokens drives no good
// one out. One cache serves all clusters.
type Cache struct {
	// OnLookup, if set before first use, is told how each look into the
	// cache went: one of the Cache constants. It must not block.
	OnLookup func(result string)
	// Source, if set before first use, says where the token of a request comes
	// from, as idp.WithSource has it, by the context of the request.
	Source func(ctx context.Context) string
	// OnPanic, if set before first use, is told where the validation of a
	// token panicked.
	OnPanic func(stack []byte)

	now     func() time.Time
	shards  []shard // a power of two
	flights singleflight.Group
	// kept are the tokens that an exchange gave.
	kept *keptTokens
	// scopes counts the scopes that were made.
	scopes atomic.Uint64
}

// shard is a part of the cache with a lock of its own.
type shard struct {
	mu      sync.Mutex
	good    *fairLRU[answer]
	refused *fairLRU[refusal]
}

// scope is a digest of what a verdict depends on beside the token: the
// object's UID and its resolved auth_config.
type scope [sha256.Size]byte

func newScope(uid, hash string) scope {
	return sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(uid), uid, hash))
}

// newScope is the scope of one authenticator. No other one has it, though its
// configuration be the same: a cluster whose token exchange is switched off and
// on again must not find the machines that it knew.
func (c *Cache) newScope(uid types.UID, hash string) scope {
	return newScope(string(uid), fmt.Sprintf("%d:%s", c.scopes.Add(1), hash))
}

type cacheKey struct {
	scope scope
	token [sha256.Size]byte
}

// answer is what a validator found out about a good token.
type answer struct {
	result *Result
	// until is how long it may be remembered; the token's own end counts too.
	until time.Time
	// basis, if not nil, can end the answer before that.
	basis basis
}

// basis is what an answer rests on.
type basis interface {
	// stands reports, without waiting, whether the answer still counts.
	stands(now time.Time) bool
}

type refusal struct {
	err   *Unauthenticated
	until time.Time
}

// NewCache makes a cache for up to entries tokens, 0 for
// DefaultCacheEntries. now is the clock, nil for time.Now.
func NewCache(entries int, now func() time.Time) *Cache {
	if entries <= 0 {
		entries = DefaultCacheEntries
	}
	if now == nil {
		now = time.Now
	}
	shards := 1
	for shards < maxShards && entries/(shards*2) >= minShardEntries {
		shards *= 2
	}
	c := &Cache{now: now, shards: make([]shard, shards), kept: newKeptTokens(entries)}
	for i := range c.shards {
		c.shards[i].init(entries / shards)
	}
	return c
}

func (s *shard) init(entries int) {
	s.good = newFairLRU[answer](entries, max(entries*bytesPerEntry, 2*maxToken))
	s.refused = newFairLRU[refusal](entries, 0) // of fixed values
}

func (c *Cache) shard(key *cacheKey) *shard {
	return &c.shards[int(key.token[0])&(len(c.shards)-1)]
}

// get returns what is remembered of a token: a result, a refusal, or ok false.
func (c *Cache) get(key *cacheKey) (result *Result, err error, ok bool) {
	now := c.now()
	s := c.shard(key)
	s.mu.Lock()
	good, found := s.good.get(key)
	if !found {
		bad, found := s.refused.get(key)
		if found && !now.Before(bad.until) {
			s.refused.remove(key)
			found = false
		}
		s.mu.Unlock()
		if found {
			return nil, bad.err, true
		}
		return nil, nil, false
	}
	// The end of a token is a time of day. until may be one of the process,
	// which stands still while the machine sleeps and does not see its clock
	// being set.
	if !now.Before(good.until) || !now.Before(good.result.Expires) {
		s.good.remove(key)
		s.mu.Unlock()
		return nil, nil, false
	}
	s.mu.Unlock()
	if good.basis != nil && !good.basis.stands(now) {
		return nil, nil, false
	}
	return good.result, nil, true
}

// observe tells OnLookup about a look into the cache.
func (c *Cache) observe(result string) {
	if c.OnLookup != nil {
		c.OnLookup(result)
	}
}

// lookup returns what is remembered of a token.
func (c *Cache) lookup(key *cacheKey) (result *Result, err error, ok bool) {
	result, err, ok = c.recall(key)
	if !ok {
		c.observe(CacheMiss)
	}
	return result, err, ok
}

// recall is lookup by one who looks elsewhere before it is a miss.
func (c *Cache) recall(key *cacheKey) (result *Result, err error, ok bool) {
	result, err, ok = c.get(key)
	switch {
	case !ok:
	case err != nil:
		c.observe(CacheRefused)
	default:
		c.observe(CacheHit)
	}
	return result, err, ok
}

// load has a token validated, once for all who wait for it, and remembers the
// verdict. The validation goes on when a caller leaves, so that one client
// that hangs up fails no other; lookupLimit ends it. An *Unavailable is not
// remembered: when to ask a provider again is decided where it is asked.
func (c *Cache) load(ctx context.Context, key cacheKey, validate func(context.Context) (answer, error)) (*Result, error) {
	flight := string(key.scope[:]) + string(key.token[:])
	// Here and not below: once the caller has left, its ctx is no longer ours to
	// read values from that others write without a lock (caddyhttp.SetVar).
	own := c.from(ctx)
	done := c.flights.DoChan(flight, func() (any, error) {
		if result, err, ok := c.get(&key); ok {
			return result, err
		}
		detached, cancel := context.WithTimeout(own, lookupLimit)
		defer cancel()
		a, err := c.guarded(detached, validate)
		c.store(&key, a, err)
		return a.result, err
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

// from is what a validation for the caller with ctx runs under: it knows where the
// token comes from, and does not end with the caller.
func (c *Cache) from(ctx context.Context) context.Context {
	if c.Source == nil {
		return context.WithoutCancel(ctx)
	}
	return idp.WithSource(context.WithoutCancel(ctx), c.Source(ctx))
}

// guarded turns a panic into a refusal: it happens outside the goroutine of a
// request, where it would end the process.
func (c *Cache) guarded(ctx context.Context, validate func(context.Context) (answer, error)) (a answer, err error) {
	defer func() {
		if recover() == nil {
			return
		}
		a, err = answer{}, errInternal
		if c.OnPanic != nil {
			// Not the value of the panic, which may quote the token.
			c.OnPanic(debug.Stack())
		}
	}()
	return validate(ctx)
}

func (c *Cache) store(key *cacheKey, a answer, err error) {
	s, now := c.shard(key), c.now()
	if err != nil {
		refused, ok := err.(*Unauthenticated)
		if !ok {
			return
		}
		until := now.Add(refusedFor)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.good.remove(key)
		s.refused.add(key, refusal{refused, until}, 0, now, until)
		return
	}
	if a.result.Expires.Before(a.until) {
		a.until = a.result.Expires
	}
	bytes := size(a.result)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused.remove(key)
	if bytes > s.good.maxBytes/maxEntryPart {
		s.good.remove(key)
		return
	}
	s.good.add(key, a, bytes, now, a.until)
}

// Len is how many good tokens are remembered.
func (c *Cache) Len() int {
	n := 0
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += s.good.len()
		s.mu.Unlock()
	}
	return n
}

// drop forgets everything of one scope: its configuration is gone, and its
// entries would only keep others out.
func (c *Cache) drop(of scope) {
	c.kept.drop(of)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.good.drop(of)
		s.refused.drop(of)
		s.mu.Unlock()
	}
}

// size estimates the memory of a result: its identity, the forwarded one, and
// the token that an exchange gave.
func size(r *Result) int {
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
