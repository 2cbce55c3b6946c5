package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// reviews is an apiserver that says who the bearer of a token is.
type reviews struct {
	clock *clock
	cache *Cache
	asked atomic.Int64

	mu     sync.Mutex
	answer func(token string) (probe.Subject, int, error)
}

func newReviews() *reviews {
	r := &reviews{clock: newClock()}
	r.cache = NewCache(CacheOptions{Entries: 1000, Now: r.clock.Now})
	r.says(probe.Subject{Name: "alice", Groups: []string{"dev", "system:authenticated"}}, http.StatusCreated, nil)
	return r
}

func (r *reviews) says(subject probe.Subject, code int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = func(string) (probe.Subject, int, error) { return subject, code, err }
}

func (r *reviews) review(_ context.Context, token string) (probe.Subject, int, error) {
	r.asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer(token)
}

func (r *reviews) validator() Validator {
	f := &Factory{cache: r.cache, options: Options{Answers: boundedjson.NewReader(1), TokenCacheTTL: 30 * time.Second}}
	return newCaching(f.newKubernetes(r.review), r.cache)
}

// jwtUntil is a token that an apiserver may have issued and that is not verified here.
func jwtUntil(exp string) string {
	return issuertest.Encode([]byte(`{"alg":"RS256"}`)) + "." + issuertest.Encode([]byte(`{"iss":"x","exp":`+exp+`}`)) + "." + issuertest.Encode([]byte("signature"))
}

var errNoAnswer = errors.New("no answer")

// AUTH-8, AUTH-12: how long what an apiserver said counts.
func TestKubernetesRemembers(t *testing.T) {
	now := newClock().Now()
	at := func(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }
	for _, tt := range []struct {
		name, token string
		code        int
		err         error
		want        string // the text of an error
		counts      time.Duration
	}{
		{"an opaque token", "opaque", 201, nil, "", 30 * time.Second},
		{"one that ends later", jwtUntil(at(time.Hour)), 201, nil, "", 30 * time.Second},
		{"one that ends sooner", jwtUntil(at(7 * time.Second)), 201, nil, "", 7 * time.Second},
		{"one that has ended by our clock", jwtUntil(at(-time.Second)), 201, nil, "", 0},
		{"one whose end cannot be read", jwtUntil(`"soon"`), 201, nil, "", 30 * time.Second},
		{"one that is only almost signed", "a.b.c", 201, nil, "", 30 * time.Second},
		{"a refused one", "opaque", 401, nil, errApiserver.Error(), refusedFor},
		{"an apiserver without an answer", "opaque", 0, errNoAnswer, "asking the cluster's apiserver about a token: no answer", 0},
		{"an unavailable one", "opaque", 503, nil, "the cluster's apiserver answered a SelfSubjectReview with 503", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newReviews()
			r.says(probe.Subject{Name: "alice"}, tt.code, tt.err)
			k := r.validator()
			ask := func(want int64) {
				t.Helper()
				result, err := k.Authenticate(t.Context(), tt.token)
				if err == nil && (tt.want != "" || result.Identity.Name != "alice") || err != nil && err.Error() != tt.want {
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
	a, b := r.validator(), r.validator()
	for range 2 {
		for _, k := range []Validator{a, b} {
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
	r.answer = func(string) (probe.Subject, int, error) {
		<-hold
		return probe.Subject{Name: "alice"}, http.StatusCreated, nil
	}
	k := r.validator()
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
	many := make([]string, claims.MaxIdentityValues)
	for i := range many {
		many[i] = fmt.Sprint("group", i)
	}
	long := strings.Repeat("g", claims.MaxIdentityBytes)
	for name, tt := range map[string]struct {
		review  probe.Subject
		want    identity.Identity
		refused identity.Reason
	}{
		"a service account": {
			review: probe.Subject{Name: "system:serviceaccount:ci:bot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"}},
			want:   identity.Identity{Name: "system:serviceaccount:ci:bot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"}},
		},
		"no group":        {review: probe.Subject{Name: "alice", Groups: nil}, want: identity.Identity{Name: "alice"}},
		"a group twice":   {review: probe.Subject{Name: "alice", Groups: []string{"a", "b", "a"}}, want: identity.Identity{Name: "alice", Groups: []string{"a", "b"}}},
		"a blank name":    {review: probe.Subject{Name: " ", Groups: nil}, want: identity.Identity{Name: " ", EmptyName: true}, refused: identity.ReasonEmptyUsername},
		"too many groups": {review: probe.Subject{Name: "alice", Groups: many}, want: identity.Identity{TooLarge: true}, refused: identity.ReasonTooLarge},
		"a huge group":    {review: probe.Subject{Name: "alice", Groups: []string{long}}, want: identity.Identity{TooLarge: true}, refused: identity.ReasonTooLarge},
		"a huge name":     {review: probe.Subject{Name: long + "x", Groups: nil}, want: identity.Identity{TooLarge: true}, refused: identity.ReasonTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReviews()
			r.says(tt.review, http.StatusCreated, nil)
			result, err := r.validator().Authenticate(t.Context(), "token")
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
