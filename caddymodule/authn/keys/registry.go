package keys

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
)

// Registry holds the key sets of all issuers in use (AUTH-5). Authenticators
// with the same issuer, discovery URL and CA share one, whichever cluster they
// belong to; it is dropped with the last of them. So there are never more sets
// than configured issuers, and each holds at most 100 keys.
type Registry struct {
	// OnFaultChange, if set before the first Acquire, is told that the Fault of
	// an issuer has changed. It must not block.
	OnFaultChange func(issuer string)

	now     func() time.Time
	limit   time.Duration // for one read
	answers *boundedjson.Reader
	denied  *egress.Policy

	mu   sync.Mutex
	sets map[setID]*shared
}

type setID struct {
	issuer, discoveryURL string
	ca                   [sha256.Size]byte
}

// shared is a key set, and how many handles of it each object has.
type shared struct {
	*keySet
	handles map[boundedjson.Owner]int
}

// owners are the objects with a handle of a key set.
func (r *Registry) owners(s *shared) []boundedjson.Owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(s.handles) == 0 { // the last read of a set that ends
		return []boundedjson.Owner{{}}
	}
	return slices.Collect(maps.Keys(s.handles))
}

// NewRegistry makes an empty registry. now is the clock, nil for time.Now; answers
// limits what is read of the answers, and no issuer is asked at a denied target.
func NewRegistry(now func() time.Time, answers *boundedjson.Reader, denied *egress.Policy) *Registry {
	if now == nil {
		now = time.Now
	}
	return &Registry{now: now, limit: idp.AnswerLimit, answers: answers, denied: denied, sets: make(map[setID]*shared)}
}

// Acquire makes a handle of the key set of an issuer for an object, which ends with
// its Close. ca is PEM, empty for the system roots. Nothing is asked yet.
func (r *Registry) Acquire(owner boundedjson.Owner, issuer, discoveryURL, ca string) (*Handle, error) {
	id := setID{issuer, discoveryURL, sha256.Sum256([]byte(ca))}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sets[id]
	if s == nil {
		s = &shared{handles: make(map[boundedjson.Owner]int)}
		client, err := idp.NewClient(ca, r.answers.For(func() []boundedjson.Owner { return r.owners(s) }), r.denied)
		if err != nil {
			return nil, err
		}
		unknown, err := simplelru.NewLRU[unknownKey, time.Time](maxUnknown, nil)
		if err != nil {
			return nil, fmt.Errorf("making room for unknown keys: %w", err)
		}
		ctx, stop := context.WithCancel(context.Background())
		s.keySet = &keySet{
			issuer: issuer, discoveryURL: discoveryURL, client: client,
			now: r.now, limit: r.limit, onFault: r.OnFaultChange,
			ctx: ctx, stop: stop, unknown: unknown,
		}
		r.sets[id] = s
	}
	s.handles[owner]++
	return newHandle(s.keySet, sync.OnceFunc(func() { r.release(id, s, owner) })), nil
}

// Len is how many key sets are in use.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sets)
}

func (r *Registry) release(id setID, s *shared, owner boundedjson.Owner) {
	r.mu.Lock()
	if s.handles[owner]--; s.handles[owner] == 0 {
		delete(s.handles, owner)
	}
	last := len(s.handles) == 0
	if last && r.sets[id] == s {
		delete(r.sets, id)
	}
	r.mu.Unlock()
	if last {
		s.close()
	}
}

// Close breaks off what is being read. Handles that are still open cannot read
// keys afterwards.
func (r *Registry) Close() {
	r.mu.Lock()
	sets := make([]*shared, 0, len(r.sets))
	for _, s := range r.sets {
		sets = append(sets, s)
	}
	r.mu.Unlock()
	for _, s := range sets {
		s.close()
	}
}
