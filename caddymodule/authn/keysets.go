package authn

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// KeySets holds the key sets of all issuers in use (AUTH-5). Authenticators
// with the same issuer, discovery URL and CA share one, whichever cluster
// they belong to; it is dropped with the last of them. So there are never
// more sets than configured issuers, and each holds at most 100 keys.
type KeySets struct {
	// OnFaultChange, if set before the first NewJWT, is told that what
	// IssuerFaults says about an issuer has changed. It must not block.
	OnFaultChange func(issuer string)

	now   func() time.Time
	limit time.Duration

	mu   sync.Mutex
	sets map[keySetID]*sharedKeySet
}

type keySetID struct {
	issuer, discoveryURL string
	ca                   [sha256.Size]byte
}

type sharedKeySet struct {
	*keySet
	users int
}

// NewKeySets makes an empty registry. now is the clock, nil for time.Now.
func NewKeySets(now func() time.Time) *KeySets {
	if now == nil {
		now = time.Now
	}
	return &KeySets{now: now, limit: idp.AnswerLimit, sets: make(map[keySetID]*sharedKeySet)}
}

// acquire returns the key set of an issuer, and a function that gives it
// back. ca is PEM, empty for the system roots. Nothing is asked yet.
func (k *KeySets) acquire(issuer, discoveryURL, ca string) (*keySet, func(), error) {
	id := keySetID{issuer, discoveryURL, sha256.Sum256([]byte(ca))}
	k.mu.Lock()
	defer k.mu.Unlock()
	shared := k.sets[id]
	if shared == nil {
		client, err := idp.NewClient(ca)
		if err != nil {
			return nil, nil, err
		}
		shared = &sharedKeySet{keySet: k.newKeySet(issuer, discoveryURL, client)}
		k.sets[id] = shared
	}
	shared.users++
	return shared.keySet, sync.OnceFunc(func() { k.release(id, shared) }), nil
}

func (k *KeySets) newKeySet(issuer, discoveryURL string, client *http.Client) *keySet {
	ctx, stop := context.WithCancel(context.Background())
	return &keySet{
		issuer:       issuer,
		discoveryURL: discoveryURL,
		client:       client,
		now:          k.now,
		limit:        k.limit,
		onFault:      k.OnFaultChange,
		ctx:          ctx,

		verifications: newLanes(),

		stop: stop,
	}
}

func (k *KeySets) release(id keySetID, shared *sharedKeySet) {
	k.mu.Lock()
	shared.users--
	last := shared.users == 0
	if last && k.sets[id] == shared {
		delete(k.sets, id)
	}
	k.mu.Unlock()
	if last {
		shared.close()
	}
}

// Close breaks off what is being read. Authenticators that are still open
// cannot read keys afterwards.
func (k *KeySets) Close() {
	k.mu.Lock()
	sets := make([]*sharedKeySet, 0, len(k.sets))
	for _, shared := range k.sets {
		sets = append(sets, shared)
	}
	k.mu.Unlock()
	for _, shared := range sets {
		shared.close()
	}
}
