package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// AUTH-8: only a 401 of the apiserver is a 401 to the caller; a fault that keeps every
// caller from an answer is told apart from one that concerns one caller.
func TestReviewError(t *testing.T) {
	for name, tt := range map[string]struct {
		code  int
		err   error
		want  int
		text  string
		fault bool
	}{
		"refused":     {code: 401, want: 401, text: "the cluster's apiserver refuses the token"},
		"forbidden":   {code: 403, want: 503, text: "system:basic-user"},
		"not served":  {code: 404, want: 503, text: "does not serve selfsubjectreviews", fault: true},
		"throttled":   {code: 429, want: 503, text: "too many requests", fault: true},
		"failing":     {code: 500, want: 503, text: "with 500", fault: true},
		"overloaded":  {code: 503, want: 503, text: "with 503", fault: true},
		"redirecting": {code: 302, want: 502, text: "with 302", fault: true},
		"a bad code":  {code: 400, want: 502, text: "with 400", fault: true},
		"200":         {code: 200, want: 502, text: "with 200", fault: true},
		"anonymous":   {code: 201, err: probe.ErrAnonymous, want: 503, text: "removes the Authorization header", fault: true},
		"no review":   {code: 201, err: probe.ErrNoReview, want: 502, text: "did not answer a SelfSubjectReview with one", fault: true},
		"down":        {err: &net.OpError{Op: "dial", Err: errors.New("refused")}, want: 0, text: "asking the cluster's apiserver about a token: ", fault: true},
		"another CA":  {err: x509.UnknownAuthorityError{}, want: 0, text: "asking the cluster's apiserver about a token: ", fault: true},
		"too slow":    {err: context.DeadlineExceeded, want: 0, text: "asking the cluster's apiserver about a token: ", fault: true},
		"broken":      {err: io.ErrUnexpectedEOF, want: 0, text: "asking the cluster's apiserver about a token: ", fault: true},
	} {
		t.Run(name, func(t *testing.T) {
			err := reviewError(tt.code, tt.err)
			var (
				refused    *Unauthenticated
				unreviewed *ReviewFailure
			)
			code := 0
			switch {
			case errors.As(err, &refused):
				code = http.StatusUnauthorized
			case errors.As(err, &unreviewed):
				code = unreviewed.Status
			}
			if code != tt.want || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%d %q", code, err)
			}
			var f idp.Fault
			if errors.As(err, &f) != tt.fault {
				t.Errorf("a fault of the apiserver: %t", !tt.fault)
			}
		})
	}
	if err := reviewError(http.StatusCreated, nil); err != nil {
		t.Error(err)
	}
}

// reviewing runs a test of a validator that asks an apiserver, in a time of its own.
// An answer takes the apiserver a millisecond.
func reviewing(t *testing.T, code func(token string) int, test func(t *testing.T, k *kubernetes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, NewFactory(Options{}).newKubernetes(func(_ context.Context, token string) (probe.Subject, int, error) {
			time.Sleep(time.Millisecond)
			return probe.Subject{Name: "alice", Groups: []string{"dev"}}, code(token), nil
		}))
	})
}

// AUTH-8: a flood of unknown tokens is no flood at the apiserver, and shuts out no
// known caller. A token that the apiserver is not asked about is no 401.
func TestReviewFlood(t *testing.T) {
	var asked atomic.Int64
	reviewing(t, func(token string) int {
		asked.Add(1)
		if token != "good" {
			return http.StatusUnauthorized
		}
		return http.StatusCreated
	}, func(t *testing.T, r *kubernetes) { reviewFlood(t, r, &asked) })
}

func reviewFlood(t *testing.T, r *kubernetes, asked *atomic.Int64) {
	mustKnow := func() {
		t.Helper()
		if got, err := r.ask(t.Context(), "good"); err != nil || got.Name != "alice" || len(got.Groups) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	mustKnow()
	// More at a time than wait for their turn.
	const workers, each = 100, 35
	var refused, limited atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for n := range workers {
		wait.Go(func() {
			for i := range each {
				_, err := r.ask(t.Context(), fmt.Sprint("random-", n, "-", i))
				var (
					bad   *Unauthenticated
					other *ReviewFailure
				)
				switch {
				case errors.As(err, &bad):
					refused.Add(1)
				case errors.As(err, &other) && other.Status == http.StatusServiceUnavailable && strings.Contains(other.Message, "too many tokens were refused lately"):
					limited.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	mustKnow()
	// 2,000 at once and 100 a second, of which 40 wait.
	seconds := int64(time.Since(began)/time.Second + 1)
	t.Logf("%d tokens in %v: %d refused, %d not asked about", workers*each, time.Since(began), refused.Load(), limited.Load())
	if n := refused.Load(); n < 2000 || n > 2040+100*seconds || n+limited.Load() != workers*each || asked.Load() != n+2 {
		t.Errorf("%d reviews, %d refused in %d seconds", asked.Load(), n, seconds)
	}
}

// An apiserver that fails is asked a few times a second, says the same to all
// meanwhile, and is believed as soon as it is back. One caller that may not
// review does not count as that.
func TestReviewFaults(t *testing.T) {
	var asked, code atomic.Int64
	reviewing(t, func(string) int {
		asked.Add(1)
		return int(code.Load())
	}, func(t *testing.T, r *kubernetes) { reviewFaults(t, r, &asked, &code) })
}

func reviewFaults(t *testing.T, r *kubernetes, asked, code *atomic.Int64) {
	ask := func(token string) *ReviewFailure {
		t.Helper()
		_, err := r.ask(t.Context(), token)
		var refused *ReviewFailure
		if err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		return refused
	}
	code.Store(http.StatusForbidden)
	for i := range 50 {
		if refused := ask(fmt.Sprint("forbidden-", i)); refused == nil || refused.Reason != "review_forbidden" {
			t.Fatal(refused)
		}
	}
	if n := asked.Load(); n != 50 {
		t.Errorf("%d reviews for 50 callers", n)
	}
	code.Store(http.StatusInternalServerError)
	asked.Store(0)
	began := time.Now()
	for i := range 1000 {
		if refused := ask(fmt.Sprint("token-", i)); refused == nil || refused.Status != http.StatusServiceUnavailable || !strings.Contains(refused.Message, "with 500") {
			t.Fatal(refused)
		}
	}
	if n, most := asked.Load(), 32+5*int64(time.Since(began)/time.Second+1); n > most {
		t.Errorf("a failing apiserver was asked %d times, want at most %d", n, most)
	}
	code.Store(http.StatusCreated)
	deadline := time.Now().Add(30 * time.Second)
	for ask("token") != nil {
		if time.Now().After(deadline) {
			t.Fatal("it is back, and not asked")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
