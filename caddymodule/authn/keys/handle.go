package keys

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/semaphore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// Why Verify returns no key. Every other error is an idp.Fault: there are no keys
// to verify with.
var (
	ErrUnknownKey = errors.New("the token is signed with a key its issuer does not publish")
	// ErrUnknownYet is an ErrUnknownKey of a token that came after the last read: the
	// issuer may publish the key by now, and the keys may not be read again already.
	ErrUnknownYet = fmt.Errorf("%w, as far as it is known", ErrUnknownKey)
	ErrSignature  = errors.New("the signature of the token is not right")
	// ErrBusy says that the token waited for its turn until its time was over.
	ErrBusy = errors.New("too many tokens wait to be validated")
)

// The bytes of the tokens of one authenticator that wait for the provider. Any
// client can send tokens that name an issuer, and the issuer may take ten seconds to
// answer.
const (
	maxWaiting      = 4 << 20
	waitingOverhead = 8 << 10 // of a token, beside its bytes
)

// Handle is how one authenticator uses a key set. Others use the same set,
// perhaps those of other clusters: what is sent to one of them takes neither the
// room nor the turn of another. It is safe for concurrent use.
type Handle struct {
	*keySet
	release func()
	// waiting is the room for tokens that wait for the provider.
	waiting *semaphore.Weighted
	// verifications bounds the signatures that are verified at once: nothing can
	// interrupt a verification, and half of the processors are left to others.
	verifications *semaphore.Weighted
}

func newHandle(s *keySet, release func()) *Handle {
	return &Handle{
		keySet: s, release: release,
		waiting:       semaphore.NewWeighted(maxWaiting),
		verifications: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
	}
}

// Close gives the key set back. The known keys can still be used.
func (h *Handle) Close() { h.release() }

// Verify checks the signature of a token of so many bytes and returns the key
// that made it. An unknown kid has the key set read again, one kid of one source
// (idp.SourceOf) once a minute and all kids once in five seconds; a known one with a
// bad signature never. A token without kid is tried against all keys that fit, and
// counts as unknown when none does.
func (h *Handle) Verify(ctx context.Context, token *jose.JSONWebSignature, bytes int) (*Key, error) {
	begun := h.begun()
	known, err := h.current(ctx, bytes)
	if err != nil {
		return nil, err
	}
	for {
		key, err := h.try(ctx, known, token)
		if err != ErrUnknownKey {
			return key, err
		}
		if known.read > begun {
			return nil, err // the keys were read after this token came
		}
		newer, err := h.reread(ctx, known, token.Signatures[0].Protected.KeyID, bytes)
		if err != nil {
			return nil, err
		}
		if newer == known {
			return nil, ErrUnknownYet
		}
		known = newer
	}
}

// Endpoints are the addresses of the provider, read first if need be, for a token
// of so many bytes.
func (h *Handle) Endpoints(ctx context.Context, bytes int) (Endpoints, error) {
	known, err := h.current(ctx, bytes)
	if err != nil {
		return Endpoints{}, err
	}
	return known.endpoints, nil
}

// KnownEndpoints are those of the last read. ok is false before it.
func (h *Handle) KnownEndpoints() (e Endpoints, ok bool) {
	known := h.known.Load()
	if known == nil {
		return Endpoints{}, false
	}
	return known.endpoints, true
}

// current returns the keys, after a read when there are none that may be used
// without one.
func (h *Handle) current(ctx context.Context, bytes int) (*knownKeys, error) {
	for {
		h.mu.Lock()
		now := h.now()
		if h.readyLocked(now) {
			h.mu.Unlock()
			return h.known.Load(), nil
		}
		if h.reading == nil && !h.dueLocked(now) {
			err := h.fault
			h.mu.Unlock()
			return nil, err
		}
		read := h.startLocked(true)
		h.mu.Unlock()
		if err := h.wait(ctx, read, bytes); err != nil {
			return nil, err
		}
	}
}

// reread reads the keys for a kid that is not among seen, if it may. It returns
// seen when it may not.
func (h *Handle) reread(ctx context.Context, seen *knownKeys, kid string, bytes int) (*knownKeys, error) {
	h.mu.Lock()
	if newer := h.known.Load(); newer != seen {
		h.mu.Unlock()
		return newer, nil
	}
	if h.reading == nil && !h.mayReadForLocked(kid, idp.SourceOf(ctx), h.now()) {
		defer h.mu.Unlock()
		if h.fault != "" {
			return nil, h.fault // the kid may well be right
		}
		return seen, nil
	}
	read := h.startLocked(false)
	h.mu.Unlock()
	if err := h.wait(ctx, read, bytes); err != nil {
		return nil, err
	}
	if read.err != nil {
		return nil, h.Fault()
	}
	return h.known.Load(), nil
}

// wait has a token wait for a read, if there is room. How the read ended is in
// the key set.
func (h *Handle) wait(ctx context.Context, read *keyRead, bytes int) error {
	n := int64(bytes)*3 + waitingOverhead // as sent, its parts, its claims
	if !h.waiting.TryAcquire(n) {
		return idp.TooManyWait
	}
	defer h.waiting.Release(n)
	select {
	case <-read.done:
		return nil
	case <-ctx.Done():
		return idp.Fault("it did not answer in time")
	}
}

// try verifies a token with known keys when it is its turn.
func (h *Handle) try(ctx context.Context, known *knownKeys, token *jose.JSONWebSignature) (*Key, error) {
	if h.verifications.Acquire(ctx, 1) != nil {
		return nil, ErrBusy
	}
	defer h.verifications.Release(1)
	return known.verify(token)
}

// Refresh begins a read when one is due, and does not wait for it.
func (h *Handle) Refresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); !h.readyLocked(now) && h.dueLocked(now) {
		h.startLocked(true)
	}
}

// Fault is what went wrong with the last read, empty for nothing.
func (h *Handle) Fault() idp.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault
}

// IsFresh reports, without waiting, whether a result that was verified with key
// still counts: the key is published, and the keys are not overdue. It is asked
// on every cache hit and takes no lock while there is nothing to do.
func (h *Handle) IsFresh(key *Key, now time.Time) bool {
	if key.withdrawn.Load() {
		return false
	}
	if now.UnixNano() < h.quietUntil.Load() {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readyLocked(now)
}
