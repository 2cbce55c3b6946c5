package keys

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// How long the keys of an issuer count (AUTH-5).
const (
	// keysAge is how old keys may get before a token waits for a re-read. The
	// re-read begins keysAhead earlier, so that with traffic no token waits.
	keysAge   = 5 * time.Minute
	keysAhead = 30 * time.Second
	// keysStale is how long the last known keys count when the issuer cannot be
	// asked. A token then cannot be judged any more.
	keysStale = time.Hour
	// unknownKeyPause is the least time between re-reads for unknown kids. It is
	// short, since strangers who send unknown kids would otherwise keep the proxy from
	// a key that the issuer has just begun to use.
	unknownKeyPause = 5 * time.Second
	// sameKeyPause is the least time between re-reads for one kid of one source: a
	// client with tokens of another issuer may send the same kid for days.
	sameKeyPause = time.Minute
	// maxUnknown is how many unknown kids are remembered.
	maxUnknown = 1024
	// The least time between two attempts after one that failed: without usable
	// keys, with keys due for a re-read, with fresh keys.
	retryNoKeys, retryOldKeys, retryFreshKeys = time.Second, 10 * time.Second, time.Minute
)

// keySet holds the keys of one issuer as read over one discovery URL and CA. It
// reads them when a token needs them; nothing runs while there are no requests.
type keySet struct {
	issuer, discoveryURL string

	client *idp.Client
	now    func() time.Time
	limit  time.Duration // for one read
	// onFault, if not nil, is told that the fault changed.
	onFault func(issuer string)

	// ctx ends with the last handle of the set.
	ctx  context.Context
	stop context.CancelFunc

	// known is nil until the first read.
	known atomic.Pointer[knownKeys]
	// quietUntil is the time (Unix nanoseconds) before which a lookup finds
	// nothing to do.
	quietUntil atomic.Int64

	mu sync.Mutex
	// reading is the read in flight, nil for none.
	reading *keyRead
	// reads counts the reads that were begun.
	reads       uint64
	endpoints   Endpoints
	fault       idp.Fault // of the last read, empty when it succeeded
	lastRead    time.Time
	lastUnknown time.Time
	// unknown has when the keys were last read for a kid of a source.
	unknown *simplelru.LRU[unknownKey, time.Time]
}

// unknownKey is the hash of a kid that was not found, and of the source that sent
// it (idp.SourceOf): nobody elsewhere can use up what a kid has.
type unknownKey [sha256.Size]byte

// mayReadForLocked reports whether the keys may be read again for a kid that is not
// among them, and notes that they are. Tokens without kid may be of any key.
func (s *keySet) mayReadForLocked(kid, source string, now time.Time) bool {
	if !s.lastUnknown.IsZero() && now.Sub(s.lastUnknown) < unknownKeyPause {
		return false
	}
	key := unknownKey(sha256.Sum256(fmt.Appendf(nil, "%q %q", source, kid)))
	if last, ok := s.unknown.Peek(key); kid != "" && ok && now.Sub(last) < sameKeyPause {
		return false
	}
	s.unknown.Add(key, now)
	s.lastUnknown = now
	return true
}

// knownKeys is what one read found. It is not changed afterwards.
type knownKeys struct {
	keys      []*Key
	endpoints Endpoints
	// at is when the read began.
	at time.Time
	// read is the number of the read.
	read uint64
}

// verify tries the keys that a token can be signed with, the first maxTries of
// them.
func (k *knownKeys) verify(token *jose.JSONWebSignature) (*Key, error) {
	header := token.Signatures[0].Protected
	refused, tries := ErrUnknownKey, 0
	for _, key := range k.keys {
		if header.KeyID != "" && key.id != header.KeyID {
			continue
		}
		if header.KeyID != "" {
			refused = ErrSignature
		}
		if !key.fits(jose.SignatureAlgorithm(header.Algorithm)) {
			continue
		}
		if tries++; tries > maxTries {
			break
		}
		if _, err := token.Verify(key.key); err == nil {
			return key, nil
		}
	}
	return nil, refused
}

// begun is the number of reads that were begun.
func (s *keySet) begun() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// readyLocked reports whether the known keys may be used without waiting. It
// begins a read in the background when one is due.
func (s *keySet) readyLocked(now time.Time) bool {
	known := s.known.Load()
	if known == nil || !usable(known.keys) {
		return false
	}
	age := age(now, known.at)
	ready := age < keysAge || s.fault != "" && age < keysStale
	if ready && s.dueLocked(now) {
		s.startLocked(true)
	}
	return ready
}

// dueLocked reports whether a read may begin now.
func (s *keySet) dueLocked(now time.Time) bool {
	known := s.known.Load()
	pause := retryNoKeys
	switch {
	case known == nil || !usable(known.keys) || age(now, known.at) >= keysStale:
	case age(now, known.at) >= keysAge-keysAhead:
		pause = retryOldKeys
	case s.fault == "":
		return false
	default:
		pause = retryFreshKeys
	}
	return s.fault == "" || now.Sub(s.lastRead) >= pause
}

// age is how long ago t was, by the clock of the process or by the time of day,
// whichever says more: the former stands still while the machine sleeps, the
// latter can be set back.
func age(now, t time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// close ends the set: a read in flight is broken off, and waited for.
func (s *keySet) close() {
	s.stop()
	s.mu.Lock()
	read := s.reading
	s.mu.Unlock()
	if read != nil {
		<-read.done
	}
}
