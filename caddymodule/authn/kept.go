package authn

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// An exchanged token is renewed this long before its end, or a tenth of
	// its life before, whichever is less.
	renewAhead = 30 * time.Second
	renewPart  = 10
)

// keptToken is what a bearer was exchanged for.
type keptToken struct {
	token string
	// renew is when it is time for another one, end when the token is good for
	// nothing. Both are times of day.
	renew, end time.Time
}

// newKeptToken says how long a token is kept that was asked for at some time:
// to its exp, or as long as the provider said, whichever ends first, and for
// fallback when neither is known. Nothing else is believed of a token that is
// not verified yet: an early end is the most that it can bring about.
func newKeptToken(token string, asked time.Time, life, fallback time.Duration) *keptToken {
	end, known := claimedExpiry(token)
	if life > 0 && (!known || asked.Add(life).Before(end)) {
		end, known = asked.Add(life), true
	}
	if !known {
		end = asked.Add(fallback)
	}
	end = end.Round(0)
	return &keptToken{token: token, end: end, renew: end.Add(-min(renewAhead, max(0, end.Sub(asked))/renewPart))}
}

// keptTokens remembers exchanged tokens by the bearers they were given for
// (AUTH-15). They outlive the verdicts on them, so that a verdict that counts
// for half a minute costs no exchange twice a minute. It is bounded in entries
// and in bytes, by the least recently used.
type keptTokens struct {
	mu       sync.Mutex
	tokens   *simplelru.LRU[cacheKey, *keptToken]
	bytes    int
	maxBytes int
}

func newKeptTokens(entries int) *keptTokens {
	k := &keptTokens{maxBytes: max(entries*bytesPerEntry, 2*maxToken)}
	// The only error is a size below 1.
	k.tokens, _ = simplelru.NewLRU(entries, func(_ cacheKey, t *keptToken) { k.bytes -= t.size() })
	return k
}

func (t *keptToken) size() int { return entryOverhead + len(t.token) }

// get returns the token that a bearer was exchanged for, nil for none that is
// still good.
func (k *keptTokens) get(key *cacheKey, now time.Time) *keptToken {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.tokens.Get(*key)
	if ok && !now.Before(t.end) {
		k.tokens.Remove(*key)
		return nil
	}
	return t
}

func (k *keptTokens) add(key *cacheKey, t *keptToken) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens.Remove(*key) // so that its bytes are counted once
	k.bytes += t.size()
	k.tokens.Add(*key, t)
	for k.bytes > k.maxBytes {
		if _, _, ok := k.tokens.RemoveOldest(); !ok {
			break
		}
	}
}

func (k *keptTokens) remove(key *cacheKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens.Remove(*key)
}

// drop forgets the tokens of one scope.
func (k *keptTokens) drop(of scope) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.tokens.Keys() {
		if key.scope == of {
			k.tokens.Remove(key)
		}
	}
}
