package authn

import (
	"sync"
	"time"
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
	// fault, if not nil, is why there is no token: what the provider gave was
	// none for this cluster.
	fault *Unavailable
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

// keptFault remembers for a while that an exchange gave no usable token, so that
// a machine that tries again costs none.
func keptFault(fault *Unavailable, now time.Time) *keptToken {
	end := now.Add(refusedFor).Round(0)
	return &keptToken{fault: fault, renew: end, end: end}
}

// postponed is the token with its renewal put off.
func (t *keptToken) postponed(now time.Time) *keptToken {
	later := *t
	later.renew = now.Add(renewPause).Round(0)
	if t.end.Before(later.renew) {
		later.renew = t.end
	}
	return &later
}

// keptTokens remembers exchanged tokens by the bearers they were given for
// (AUTH-15). They outlive the verdicts on them, so that a verdict that counts
// for half a minute costs no exchange twice a minute. It is bounded in entries
// and in bytes, fairly by cluster and then by the least recently used (fairLRU).
type keptTokens struct {
	mu     sync.Mutex
	tokens *fairLRU[*keptToken]
}

func newKeptTokens(entries int) *keptTokens {
	return &keptTokens{tokens: newFairLRU[*keptToken](entries, max(entries*bytesPerEntry, 2*maxToken))}
}

// get returns what a bearer was exchanged for, nil for nothing that still
// counts.
func (k *keptTokens) get(key *cacheKey, now time.Time) *keptToken {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.tokens.get(key)
	if ok && !now.Before(t.end) {
		k.tokens.remove(key)
		return nil
	}
	return t
}

func (k *keptTokens) add(key *cacheKey, t *keptToken, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens.add(key, t, entryOverhead+len(t.token), now, t.end)
}

func (k *keptTokens) remove(key *cacheKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens.remove(key)
}

// drop forgets the tokens of one scope.
func (k *keptTokens) drop(of scope) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens.drop(of)
}
