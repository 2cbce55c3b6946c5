package claims

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// takeWithin takes a turn within a second.
func takeWithin(t *testing.T, turns *ClusterTurns) (func(), error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return turns.take(ctx, 0)
}

// A cluster takes half of the turns of all, and gives them back.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &Turns{total: 4}
		hostile, other := all.ForCluster(), all.ForCluster()
		var taken []func()
		done, err := takeWithin(t, hostile)
		for ; err == nil; done, err = takeWithin(t, hostile) {
			taken = append(taken, done)
		}
		if err != ErrBusy || len(taken) != 2 {
			t.Errorf("%d turns, want 2; then %v", len(taken), err)
		}
		if done, err = takeWithin(t, other); err != nil {
			t.Fatalf("the turns of another cluster: %v", err)
		}
		done()
		for _, done := range taken {
			done()
		}
		if done, err = takeWithin(t, hostile); err != nil {
			t.Fatalf("after they were given back: %v", err)
		}
		done()
		if len(all.waiting)+len(hostile.tokens)+all.running+all.dear+hostile.running != 0 {
			t.Errorf("something is left: %+v, %+v", all, hostile)
		}
	})
}

// AUTH-17: whatever the number of clusters with dear evaluations, half of the turns is
// left to the others, and a token of a cluster that used little waits for none of theirs.
func TestDearEvaluationsDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &Turns{total: 2}
		evaluate := func(ctx context.Context, c *ClusterTurns, d time.Duration) {
			if done, err := c.take(ctx, 0); err == nil {
				time.Sleep(d)
				done()
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer time.Sleep(time.Second) // until all have ended
		defer stop()
		for range 50 {
			hostile := all.ForCluster()
			go func() {
				for ctx.Err() == nil {
					evaluate(ctx, hostile, 100*time.Millisecond)
				}
			}()
		}
		time.Sleep(10 * time.Second) // they are known as dear
		victim := all.ForCluster()
		for range 100 {
			began := time.Now()
			evaluate(t.Context(), victim, time.Millisecond)
			if took := time.Since(began); took > 2*time.Millisecond {
				t.Fatalf("a token took %v", took)
			}
			time.Sleep(7 * time.Millisecond)
		}
	})
}

// AUTH-17: clusters take turns by the time that they use. Evaluations that just miss
// to be dear do not keep a token waiting for those of each cluster.
func TestTurnsGoByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &Turns{total: 2}
		used := make([]time.Duration, 40)
		ctx, stop := context.WithCancel(t.Context())
		var clusters sync.WaitGroup
		defer clusters.Wait()
		defer stop()
		for i := range used {
			hostile, d := all.ForCluster(), time.Duration(1+i%2*18)*time.Millisecond
			clusters.Go(func() {
				for {
					done, err := hostile.take(ctx, 0)
					if err != nil {
						return
					}
					time.Sleep(d)
					done()
					used[i] += d
				}
			})
		}
		time.Sleep(20 * time.Second)
		victim := all.ForCluster()
		for range 100 {
			began := time.Now()
			done, err := victim.take(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 2*dearAfter {
				t.Fatalf("a token waited for %v", waited)
			}
			time.Sleep(time.Millisecond)
			done()
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		clusters.Wait()
		for i := 1; i < len(used); i += 2 {
			if cheap, dear := used[i-1], used[i]; dear > 2*cheap || cheap > 2*dear {
				t.Errorf("clusters with evaluations of 1 and 19 ms used %v and %v", cheap, dear)
			}
		}
	})
}

// AUTH-17: what waits for the turns of a cluster is bounded in bytes.
func TestTokensThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &Turns{total: 2}
		flooded, other := all.ForCluster(), all.ForCluster()
		done, err := takeWithin(t, flooded)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var beyond atomic.Int64
		for range 1000 {
			go func() {
				if _, err := flooded.take(ctx, maxEvaluated); err != nil {
					beyond.Add(1)
				}
			}()
		}
		synctest.Wait()
		most := int64(maxWaiting / (3 * maxEvaluated))
		if waiting := 1000 - beyond.Load(); waiting == 0 || waiting > most {
			t.Errorf("%d tokens wait, at most %d", waiting, most)
		}
		if done, err := takeWithin(t, other); err != nil {
			t.Errorf("another cluster: %v", err)
		} else {
			done()
		}
		stop()
		synctest.Wait()
		done()
		if flooded.waiting != 0 {
			t.Errorf("%d bytes wait", flooded.waiting)
		}
	})
}

// A cluster has no more turns after a pause than without one.
func TestPauseSavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &Turns{total: 2}
		busy, idle := all.ForCluster(), all.ForCluster()
		for range 100 {
			done, err := takeWithin(t, busy)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			done()
		}
		done, err := takeWithin(t, idle)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if idle.used < 99*time.Millisecond {
			t.Errorf("a cluster that comes anew counts as having used %v", idle.used)
		}
	})
}

// A token whose turn does not come is not judged: that is no 401.
func TestNoTurnIsNoVerdict(t *testing.T) {
	m := compile(t, apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: claim("sub", ""), Groups: expression("claims.groups")}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Identity(ctx, Claims{}, 0); err != ErrBusy {
		t.Errorf("got %v", err)
	}
}

// A payload over 32 KiB is not evaluated; without expressions it counts.
func TestLargePayload(t *testing.T) {
	plain := apiserver.ClaimMappings{Username: claim("sub", "")}
	byExpression := apiserver.ClaimMappings{Username: claim("sub", ""), Groups: expression("claims.groups")}
	c, err := Parse([]byte(`{"sub":"alice","groups":["dev"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mappings apiserver.ClaimMappings
		bytes    int
		err      error
	}{{plain, 33 << 10, nil}, {byExpression, 32 << 10, nil}, {byExpression, 32<<10 + 1, ErrTooLarge}} {
		if _, err := compile(t, apiserver.JWTAuthenticator{ClaimMappings: tt.mappings}).Identity(t.Context(), c, tt.bytes); err != tt.err {
			t.Errorf("%d bytes: %v, want %v", tt.bytes, err, tt.err)
		}
	}
}
