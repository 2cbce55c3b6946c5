package authn

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// How long the keys of an issuer count (AUTH-5).
const (
	// keysAge is how old keys may get before a token waits for a re-read. The
	// re-read begins keysAhead earlier, so that with traffic no token waits.
	keysAge   = 5 * time.Minute
	keysAhead = 30 * time.Second
	// keysStale is how long the last known keys go on when the issuer cannot
	// be asked. A token then cannot be judged any more.
	keysStale = time.Hour
	// unknownKeyPause is the least time between re-reads for unknown kids.
	unknownKeyPause = time.Minute
	// The least time between two attempts after one that failed: without
	// usable keys, with keys due for a re-read, with fresh keys.
	retryNoKeys, retryOldKeys, retryFreshKeys = time.Second, 10 * time.Second, time.Minute
)

// keySet holds the keys of one issuer as read over one discovery URL and CA.
// It reads them when a token needs them; nothing runs while nobody asks.
type keySet struct {
	issuer, discoveryURL string

	client *http.Client
	now    func() time.Time
	limit  time.Duration // for one read
	// onFault, if not nil, is told that lastFault changed.
	onFault func(issuer string)

	// verifications bounds the signatures that are checked at once.
	verifications lanes
	// waiting is what the tokens hold that wait for the provider, in bytes.
	waiting atomic.Int64

	// ctx ends when nobody uses the set any more.
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
	endpoints   endpoints
	fault       idp.Fault // of the last read, empty when it succeeded
	lastRead    time.Time
	lastUnknown time.Time
}

// knownKeys is what one read found. It is not changed afterwards.
type knownKeys struct {
	keys      []*publicKey
	endpoints endpoints
	// at is when the read began.
	at time.Time
	// read is the number of the read.
	read uint64
}

// verify checks the signature of a token and returns the key that made it.
// An unknown kid has the key set read again, at most once a minute; a known
// one with a bad signature never. A token without kid is tried against all
// keys that fit, and counts as unknown when none does.
func (s keyShare) verify(ctx context.Context, token *jwt) (*publicKey, error) {
	begun := s.begun()
	known, err := s.current(ctx, len(token.raw))
	if err != nil {
		return nil, err
	}
	for {
		key, refused, err := s.judge(ctx, known, token)
		if err != nil {
			return nil, err
		}
		if refused != errUnknownKey {
			if refused != nil {
				return nil, refused
			}
			return key, nil
		}
		if known.read > begun {
			return nil, refused // read since this token came
		}
		newer, err := s.reread(ctx, known, len(token.raw))
		if err != nil {
			return nil, err
		}
		if newer == known {
			return nil, refused
		}
		known = newer
	}
}

// verify tries the keys a token can be signed with, the first maxTries of
// them.
func (k *knownKeys) verify(token *jwt) (*publicKey, *Unauthenticated) {
	refused, tries := errUnknownKey, 0
	for _, key := range k.keys {
		if token.keyID != "" && key.id != token.keyID {
			continue
		}
		if token.keyID != "" {
			refused = errSignature
		}
		if !key.fits(token.algorithm) {
			continue
		}
		if tries++; tries > maxTries {
			break
		}
		if _, err := token.signature.Verify(key.key); err == nil {
			return key, nil
		}
	}
	return nil, refused
}

// current returns the keys, after a read when there are none that may be used
// without one, for a token of so many bytes.
func (s keyShare) current(ctx context.Context, bytes int) (*knownKeys, error) {
	for {
		s.mu.Lock()
		now := s.now()
		if s.readyLocked(now) {
			s.mu.Unlock()
			return s.known.Load(), nil
		}
		if s.reading == nil && !s.dueLocked(now) {
			err := s.unavailableLocked()
			s.mu.Unlock()
			return nil, err
		}
		read := s.startLocked(true)
		s.mu.Unlock()
		if err := s.wait(ctx, read, bytes); err != nil {
			return nil, err
		}
	}
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

// age is how long ago t was, by the clock of the process or by the time of
// day, whichever says more: the former stands still while the machine sleeps,
// the latter can be set back.
func age(now, t time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
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

// reread reads the keys for a kid that is not among seen, if it may. It
// returns seen when there is no news.
func (s keyShare) reread(ctx context.Context, seen *knownKeys, bytes int) (*knownKeys, error) {
	s.mu.Lock()
	if newer := s.known.Load(); newer != seen {
		s.mu.Unlock()
		return newer, nil
	}
	if s.reading == nil {
		now := s.now()
		if !s.lastUnknown.IsZero() && now.Sub(s.lastUnknown) < unknownKeyPause {
			defer s.mu.Unlock()
			if s.fault != "" {
				return nil, s.unavailableLocked() // the kid may well be right
			}
			return seen, nil
		}
		s.lastUnknown = now
	}
	read := s.startLocked(false)
	s.mu.Unlock()
	if err := s.wait(ctx, read, bytes); err != nil {
		return nil, err
	}
	if read.err != nil {
		return nil, s.unavailable()
	}
	return s.known.Load(), nil
}

// fresh reports, without waiting, whether a result that was verified with key
// still counts. It is asked on every cache hit and takes no lock while there
// is nothing to do.
func (s *keySet) fresh(key *publicKey, now time.Time) bool {
	if key.gone.Load() {
		return false
	}
	if now.UnixNano() < s.quietUntil.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readyLocked(now)
}

// refresh begins a read when one is due, and does not wait for it.
func (s *keySet) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); !s.readyLocked(now) && s.dueLocked(now) {
		s.startLocked(true)
	}
}

// begun is the number of reads that were begun.
func (s *keySet) begun() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// lastFault is what went wrong with the last read, empty for nothing.
func (s *keySet) lastFault() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.fault)
}

func (s *keySet) unavailable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unavailableLocked()
}

func (s *keySet) unavailableLocked() error {
	return &Unavailable{Fault: s.issuer + ": " + string(s.fault)}
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
