package authn

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// tinyMembers is an object of 1 MiB in which each member is as small as can be.
var tinyMembers = sync.OnceValue(func() []byte {
	var b strings.Builder
	b.WriteString(`{"sub":"alice"`)
	for i := 0; b.Len() < boundedjson.MaxAnswer-16; i++ {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	return []byte(b.String() + "}")
})

// tinyGroups is one of 1 MiB whose groups are as small as can be.
var tinyGroups = sync.OnceValue(func() []byte {
	return []byte(`{"sub":"alice","groups":["a"` + strings.Repeat(`,""`, boundedjson.MaxAnswer/3-20) + `]}`)
})

// heapPeak samples the heap until stop is called, which tells by how much it
// grew at most.
func heapPeak() (stop func() (mib uint64)) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	base, peak := stats.HeapAlloc, stats.HeapAlloc
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
				runtime.ReadMemStats(&stats)
				peak = max(peak, stats.HeapAlloc)
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-stopped
		return (peak - base) >> 20
	}
}

// AUTH-13: what the provider of some clusters answers takes no memory that the
// others need, nor do their small answers wait for it.
func TestLargeAnswersTouchNoOther(t *testing.T) {
	const objects, calls = 4, 16 // the calls about verified tokens that go on at once
	for _, tt := range []struct {
		name string
		body []byte
	}{{"members", tinyMembers()}, {"groups", tinyGroups()}} {
		t.Run(tt.name, func(t *testing.T) {
			hostile := newIDP(t, k1().JWK())
			var asked sync.WaitGroup
			asked.Add(objects * calls)
			hostile.userinfo.answers(func(w http.ResponseWriter, _ *http.Request) {
				asked.Done()
				asked.Wait() // so that all are answered at once
				_, _ = w.Write(tt.body)
			})
			var attacked []*oidcWorld
			for range objects {
				attacked = append(attacked, newOIDCWorld(t, hostile, nil))
			}
			other := newOIDCWorld(t, newIDP(t, k1().JWK()), nil)
			other.check(t, other.signed(t), "alice", "")

			stop := heapPeak()
			var wait sync.WaitGroup
			var answered atomic.Int64
			for i, w := range attacked {
				for j := range calls {
					token := w.token(t, k1(), hostile, "n", 100*i+j)
					wait.Go(func() {
						result, err := w.Authenticate(t.Context(), token)
						var fault *Unavailable
						if err == nil && !result.Identity.TooLarge || err != nil && !errors.As(err, &fault) {
							t.Errorf("got %v, %v", result, err)
						}
						answered.Add(1)
					})
				}
			}
			for i := range 20 {
				other.check(t, other.signed(t, "n", i), "alice", "")
			}
			t.Logf("another cluster had 20 answers while the attacked had %d", answered.Load())
			wait.Wait()
			peak := stop()
			t.Logf("the heap grew by %d MiB at most", peak)
			if peak > 150 {
				t.Errorf("the heap grew by %d MiB", peak)
			}
		})
	}
}

// AUTH-10, AUTH-13: an object with too many members is the provider's fault in
// an answer, and a bad payload in a token.
func TestTooManyMembers(t *testing.T) {
	p := newIDP(t, k1().JWK())
	many := make(map[string]any)
	for i := range 1000 {
		many[fmt.Sprint("m", i)] = 0
	}
	w := newOIDCWorld(t, p, nil)
	p.issue("opaque", alice(), w.active("permissions", many))
	w.check(t, "opaque", "alice", "")
	for n, fits := range map[int]bool{998: true, 999: false} {
		user := alice()
		for i := range n {
			user[fmt.Sprint("m", i)] = 0
		}
		token := p.issue(w.token(t, k1(), p, "n", n), user, nil)
		if fits {
			w.check(t, token, "alice", "")
		} else {
			w.unavailable(t, token, "userinfo endpoint: its answer has too many members")
		}
		many := []any{}
		for i := range n + 2 - 7 { // beside those of every token
			many = append(many, fmt.Sprint("m", i), 0)
		}
		jwt := w.token(t, k1(), p, append(many, "n", n)...)
		signed := newOIDCWorld(t, p, fromToken)
		if fits {
			signed.check(t, jwt, "alice", "")
		} else {
			signed.check(t, jwt, "", errClaims.Reason)
		}
	}
	state := w.active("permissions", many)
	many["one more"] = 0
	p.issue("another", alice(), state)
	w.unavailable(t, "another", "introspection endpoint: its answer has too many members")
}
