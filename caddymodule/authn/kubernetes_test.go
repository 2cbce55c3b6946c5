package authn

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// reviews is an apiserver that says who the bearer of a token is.
type reviews struct {
	clock *clock
	cache *Cache
	asked atomic.Int64

	mu     sync.Mutex
	answer func(token string) (*Review, error)
}

func newReviews() *reviews {
	r := &reviews{clock: newClock()}
	r.cache = NewCache(1000, r.clock.Now)
	r.says(&Review{Name: "alice", Groups: []string{"dev", "system:authenticated"}}, nil)
	return r
}

func (r *reviews) says(review *Review, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = func(string) (*Review, error) { return review, err }
}

func (r *reviews) review(_ context.Context, token string) (*Review, error) {
	r.asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer(token)
}

func (r *reviews) validator(hash string) *Kubernetes {
	return NewKubernetes(KubernetesConfig{UID: "1", Hash: hash, TTL: 30 * time.Second, Review: r.review}, r.cache)
}

// jwtUntil is a token that an apiserver may have issued and nobody here verifies.
func jwtUntil(exp string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(`{"iss":"x","exp":`+exp+`}`)) + "." + encode([]byte("signature"))
}

var errNoAnswer = errors.New("no answer")

// AUTH-8, AUTH-12: how long what an apiserver said counts.
func TestKubernetesRemembers(t *testing.T) {
	now := newClock().Now()
	at := func(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }
	refused := &Unauthenticated{Reason: ReasonApiserver}
	for _, tt := range []struct {
		name, token string
		err         error
		counts      time.Duration
	}{
		{"an opaque token", "opaque", nil, 30 * time.Second},
		{"one that ends later", jwtUntil(at(time.Hour)), nil, 30 * time.Second},
		{"one that ends sooner", jwtUntil(at(7 * time.Second)), nil, 7 * time.Second},
		{"one that has ended by our clock", jwtUntil(at(-time.Second)), nil, 0},
		{"one whose end cannot be read", jwtUntil(`"soon"`), nil, 30 * time.Second},
		{"one that is only almost signed", "a.b.c", nil, 30 * time.Second},
		{"a refused one", "opaque", refused, refusedFor},
		{"an apiserver without an answer", "opaque", errNoAnswer, 0},
		{"an unavailable one", "opaque", &Unavailable{Fault: "it is busy"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReviews()
			if tt.err != nil {
				r.says(nil, tt.err)
			}
			k := r.validator("hash")
			ask := func(want int64) {
				t.Helper()
				result, err := k.Authenticate(t.Context(), tt.token)
				if tt.err != nil && err != tt.err || tt.err == nil && (err != nil || result.Identity.Name != "alice") {
					t.Fatalf("%v, %v", result, err)
				}
				if n := r.asked.Load(); n != want {
					t.Fatalf("%d reviews, want %d", n, want)
				}
			}
			ask(1)
			if tt.counts > 0 {
				r.clock.Step(tt.counts - time.Nanosecond)
				ask(1)
				r.clock.Step(time.Nanosecond)
			}
			ask(2)
		})
	}
}

// AUTH-12: the verdicts of one apiserver are not those of another, and go with
// the authenticator.
func TestKubernetesScope(t *testing.T) {
	r := newReviews()
	a, b := r.validator("target a"), r.validator("target b")
	for range 2 {
		for _, k := range []*Kubernetes{a, b} {
			if _, err := k.Authenticate(t.Context(), "token"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := r.asked.Load(); n != 2 {
		t.Errorf("%d reviews", n)
	}
	a.Close()
	if n := r.cache.Len(); n != 1 {
		t.Errorf("%d tokens are remembered", n)
	}
}

// AUTH-12: a thousand first uses at once are one review.
func TestKubernetesSingleFlight(t *testing.T) {
	r := newReviews()
	hold := make(chan struct{})
	r.answer = func(string) (*Review, error) { <-hold; return &Review{Name: "alice"}, nil }
	k := r.validator("hash")
	var all sync.WaitGroup
	var good atomic.Int64
	for range 1000 {
		all.Go(func() {
			if result, err := k.Authenticate(t.Context(), "token"); err == nil && result.Identity.Name == "alice" {
				good.Add(1)
			}
		})
	}
	for r.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	close(hold)
	all.Wait()
	if r.asked.Load() != 1 || good.Load() != 1000 {
		t.Errorf("%d reviews, %d good answers", r.asked.Load(), good.Load())
	}
}

// AUTH-8: name and groups as the apiserver wrote them, within the bounds of any
// identity (ID-2).
func TestKubernetesIdentity(t *testing.T) {
	many := make([]string, maxIdentityValues)
	for i := range many {
		many[i] = fmt.Sprint("group", i)
	}
	long := strings.Repeat("g", maxIdentityBytes)
	for name, tt := range map[string]struct {
		review  Review
		want    identity.Identity
		refused identity.Reason
	}{
		"a service account": {
			review: Review{"system:serviceaccount:ci:bot", []string{"system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"}},
			want:   identity.Identity{Name: "system:serviceaccount:ci:bot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"}},
		},
		"no group":        {review: Review{"alice", nil}, want: identity.Identity{Name: "alice"}},
		"a group twice":   {review: Review{"alice", []string{"a", "b", "a"}}, want: identity.Identity{Name: "alice", Groups: []string{"a", "b"}}},
		"a blank name":    {review: Review{" ", nil}, want: identity.Identity{Name: " ", EmptyName: true}, refused: identity.ReasonEmptyUsername},
		"too many groups": {review: Review{"alice", many}, want: identity.Identity{TooLarge: true}, refused: identity.ReasonTooLarge},
		"a huge group":    {review: Review{"alice", []string{long}}, want: identity.Identity{TooLarge: true}, refused: identity.ReasonTooLarge},
		"a huge name":     {review: Review{long + "x", nil}, want: identity.Identity{TooLarge: true}, refused: identity.ReasonTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReviews()
			r.says(&tt.review, nil)
			result, err := r.validator("hash").Authenticate(t.Context(), "token")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, result.Identity, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			refused := identity.CheckPassthrough(result.Identity)
			if (refused == nil) != (tt.refused == "") || refused != nil && refused.Reason != tt.refused {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}
