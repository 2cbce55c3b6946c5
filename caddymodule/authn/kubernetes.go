package authn

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// Reviewer asks an apiserver whom it takes the bearer of a token for (AUTH-8).
// An *Unauthenticated says that the apiserver refuses the token; any other error
// says why there was no answer, and is what Authenticate returns.
type Reviewer func(ctx context.Context, token string) (*Review, error)

// Review is whom an apiserver takes the bearer of a token for.
type Review struct {
	Name   string
	Groups []string
}

// KubernetesConfig says which apiserver is asked.
type KubernetesConfig struct {
	// UID is that of the ProxyKubeApi, Hash a digest of its resolved auth_config
	// and of all that decides which apiserver is asked, and over which
	// connection (AUTH-12).
	UID  types.UID
	Hash string
	// TTL is how long an answer is remembered (token_cache_ttl).
	TTL time.Duration
	// Review asks the apiserver. It is given 10 s.
	Review Reviewer
}

// Kubernetes leaves the verdict on a token to the apiserver that it is meant
// for (AUTH-8). It is safe for concurrent use.
type Kubernetes struct {
	scope  scope
	cache  *Cache
	ttl    time.Duration
	review Reviewer
}

// NewKubernetes makes an authenticator that asks one apiserver. It does no I/O.
func NewKubernetes(cfg KubernetesConfig, cache *Cache) *Kubernetes {
	return &Kubernetes{
		scope:  cache.newScope(cfg.UID, cfg.Hash),
		cache:  cache,
		ttl:    cfg.TTL,
		review: cfg.Review,
	}
}

// Authenticate has the apiserver review a token, or remembers what it said.
func (k *Kubernetes) Authenticate(ctx context.Context, token string) (*Result, error) {
	key := cacheKey{scope: k.scope, token: digest(token)}
	if result, err, ok := k.cache.lookup(&key); ok {
		return result, err
	}
	return k.cache.load(ctx, key, func(ctx context.Context) (answer, error) { return k.judge(ctx, token) })
}

// judge implements validator. Whether a token has expired, and whether it is one
// at all, is for the apiserver to say.
func (k *Kubernetes) judge(ctx context.Context, token string) (answer, error) {
	review, err := k.review(ctx, token)
	if err != nil {
		return answer{}, err
	}
	until := k.cache.now().Add(k.ttl)
	// The apiserver takes the token for a good one: its exp may shorten that.
	if exp, ok := claimedExpiry(token); ok && exp.Before(until) {
		until = exp
	}
	return answer{result: &Result{Identity: review.identity(), Expires: until}, until: until}, nil
}

// issuers implements validator: which tokens it accepts the apiserver knows.
func (k *Kubernetes) issuers() []string { return nil }

// remembers implements inner.
func (k *Kubernetes) remembers() scope { return k.scope }

// Refresh does nothing: an apiserver is asked with a token only.
func (k *Kubernetes) Refresh() {}

// IssuerFaults are none: whether the apiserver answers is the condition Reachable
// (REC-6).
func (k *Kubernetes) IssuerFaults() []string { return nil }

// Close drops what is remembered.
func (k *Kubernetes) Close() { k.cache.drop(k.scope) }

func (r *Review) identity() *identity.Identity {
	room := newRoom()
	if !room.take(r.Name) || !room.takeAll(r.Groups) {
		// A piece of an identity is another identity (ID-2).
		return &identity.Identity{TooLarge: true}
	}
	return &identity.Identity{Name: r.Name, Groups: distinct(slices.Clone(r.Groups)), EmptyName: isBlank(r.Name)}
}

// Interface guard.
var _ validator = (*Kubernetes)(nil)
