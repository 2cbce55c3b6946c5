package authn

import (
	"context"
	"crypto/sha256"
	"time"
	"unsafe"
)

const (
	// DefaultCacheEntries is how many tokens are remembered by default.
	DefaultCacheEntries = 10_000

	// bytesPerEntry times the number of entries bounds the memory of what is
	// remembered: an identity can be as large as its token, and is held a second
	// time as it is forwarded.
	bytesPerEntry = 4 << 10
	// Every entry costs about this much beside its strings.
	entryOverhead = 512
)

// The results of a look into the cache, for OnLookup.
const (
	CacheHit     = "hit"
	CacheMiss    = "miss"
	CacheRefused = "refused" // a remembered refusal
)

// CacheOptions are those of a Cache. The zero value has a default for each.
type CacheOptions struct {
	// Entries is how many good tokens are remembered, DefaultCacheEntries if 0,
	// and how many refused ones beside them.
	Entries int
	// Now is the clock, time.Now if nil.
	Now func() time.Time
	// OnLookup, if not nil, is told how each look into the cache went: one of the
	// Cache constants. It must not block.
	OnLookup func(result string)
	// Source, if not nil, says where the token of a request comes from, as
	// idp.WithSource has it, by the context of the request.
	Source func(ctx context.Context) string
	// OnPanic, if not nil, is told where the validation of a token panicked.
	OnPanic func(stack []byte)
}

// Cache bounds what the validators of all clusters remember together (AUTH-12):
// which tokens are good, for a moment which are not, and what bearers were
// exchanged for (AUTH-15). It has digests of tokens, and no tokens but those that
// an exchange gave, which are sent on. Refusals are bounded on their own, so that
// a flood of bad tokens drives no good one out.
type Cache struct {
	options   CacheOptions
	good      *memoryLimit[*Result]
	refused   *memoryLimit[refusal]
	exchanged *memoryLimit[*exchangedToken]
}

// refusal is a verdict that is remembered until some time.
type refusal struct {
	err   error
	until time.Time
}

// NewCache makes a cache.
func NewCache(o CacheOptions) *Cache {
	if o.Entries <= 0 {
		o.Entries = DefaultCacheEntries
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	bytes := max(o.Entries*bytesPerEntry, 2*maxToken)
	return &Cache{
		options:   o,
		good:      newMemoryLimit[*Result](o.Entries, bytes),
		refused:   newMemoryLimit[refusal](o.Entries, 0), // they are fixed values
		exchanged: newMemoryLimit[*exchangedToken](o.Entries, bytes),
	}
}

// Len is how many good tokens are remembered.
func (c *Cache) Len() int { return c.good.len() }

func (c *Cache) now() time.Time { return c.options.Now() }

// tokenDigest is what a token is remembered by.
type tokenDigest [sha256.Size]byte

// digest hashes a token in place: a copy of each bearer would be the only
// allocation of a cache hit. The bytes are only read.
func digest(token string) tokenDigest {
	return sha256.Sum256(unsafe.Slice(unsafe.StringData(token), len(token)))
}
