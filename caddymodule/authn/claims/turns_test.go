package claims

import (
	"context"
	"slices"
	"strconv"
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
		all := newTurns(4)
		hostile, other := all.ForCluster("hostile"), all.ForCluster("other")
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
		all := newTurns(2)
		evaluate := func(ctx context.Context, c *ClusterTurns, d time.Duration) {
			if done, err := c.take(ctx, 0); err == nil {
				time.Sleep(d)
				done()
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer time.Sleep(time.Second) // until all have ended
		defer stop()
		for i := range 50 {
			hostile := all.ForCluster(strconv.Itoa(i))
			go func() {
				for ctx.Err() == nil {
					evaluate(ctx, hostile, 100*time.Millisecond)
				}
			}()
		}
		time.Sleep(10 * time.Second) // they are known as dear
		victim := all.ForCluster("victim")
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
		all := newTurns(2)
		used := make([]time.Duration, 40)
		ctx, stop := context.WithCancel(t.Context())
		var clusters sync.WaitGroup
		defer clusters.Wait()
		defer stop()
		for i := range used {
			hostile, d := all.ForCluster(strconv.Itoa(i)), time.Duration(1+i%2*18)*time.Millisecond
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
		victim := all.ForCluster("victim")
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

// evaluate takes a turn for as long as an evaluation takes, and says how long the token
// waited for it.
func evaluate(t *testing.T, c *ClusterTurns, d time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	done, err := c.take(ctx, 0)
	waited := time.Since(began)
	if err == nil {
		time.Sleep(d)
		done()
	}
	return waited
}

// AUTH-17: clusters that are new, be they new objects or changed ones, keep a token of
// a cluster that used more waiting for one evaluation at most, and once their namespace
// is known as dear, for none.
func TestNewClustersDelayNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace func(int) string
		takes     time.Duration
		half      bool // that is left free from the second token on
	}{
		"of a new namespace":           {func(int) string { return "hostile" }, evaluationLimit, true},
		"of a namespace that is known": {func(int) string { return "known" }, evaluationLimit, true},
		"each of a new namespace":      {strconv.Itoa, evaluationLimit, false},
		"that just miss to be dear":    {func(int) string { return "hostile" }, dearAfter - time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newTurns(2)
				victim := all.ForCluster("victim")
				evaluate(t, all.ForCluster("known"), time.Millisecond)
				for range 20 {
					evaluate(t, victim, time.Millisecond)
				}
				var hostile sync.WaitGroup
				for i := range 200 {
					c := all.ForCluster(tt.namespace(i))
					hostile.Go(func() { evaluate(t, c, tt.takes) })
				}
				synctest.Wait()
				for i := range 5 {
					if waited := evaluate(t, victim, time.Millisecond); waited > tt.takes {
						t.Errorf("token %d waited for %v", i, waited)
					} else if tt.half && i > 0 && waited > 0 {
						t.Errorf("token %d waited for %v, though the namespace is known as dear", i, waited)
					}
				}
				hostile.Wait()
			})
		})
	}
}

// AUTH-17: within a namespace clusters take turns by their time as well.
func TestClustersOfANamespaceTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		quiet := all.ForCluster("one")
		evaluate(t, quiet, time.Millisecond)
		var dear sync.WaitGroup
		for range 6 {
			c := all.ForCluster("one")
			evaluate(t, c, evaluationLimit)
			for range 10 {
				dear.Go(func() { evaluate(t, c, evaluationLimit) })
			}
		}
		synctest.Wait()
		for i := range 20 {
			if waited := evaluate(t, quiet, time.Millisecond); waited != 0 {
				t.Errorf("token %d waited for %v", i, waited)
			}
		}
		dear.Wait()
	})
}

// Namespaces of which nothing is known have their turns in the order they came.
func TestNewNamespacesGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		waited := make([]int, 10)
		var tokens sync.WaitGroup
		for i := range waited {
			c := all.ForCluster(strconv.Itoa(i))
			tokens.Go(func() { waited[i] = int(evaluate(t, c, time.Second).Round(time.Second) / time.Second) })
			time.Sleep(time.Millisecond)
		}
		tokens.Wait()
		if !slices.IsSorted(waited) || waited[9] != 4 {
			t.Errorf("they waited for %v s", waited)
		}
	})
}

// The account of a namespace outlives its clusters, and is forgotten when nothing was
// evaluated for long.
func TestAccountsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		evaluate(t, all.ForCluster("gone"), evaluationLimit)
		evaluate(t, all.ForCluster("a"), time.Millisecond)
		if gone := all.namespaces["gone"]; gone == nil || gone.used != evaluationLimit {
			t.Errorf("the account of a namespace without clusters is %+v", gone)
		}
		time.Sleep(2 * forgottenAfter)
		evaluate(t, all.ForCluster("b"), time.Millisecond)
		if len(all.namespaces) != 1 {
			t.Errorf("%d accounts are left, want that of b", len(all.namespaces))
		}
	})
}

// AUTH-17: what waits for the turns of a cluster is bounded in bytes.
func TestTokensThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2)
		flooded, other := all.ForCluster("flooded"), all.ForCluster("other")
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

// AUTH-17: a cluster with dear evaluations has no more turns after a pause than without
// one, be it in a namespace of its own or in that of the cluster which waits.
func TestPauseSavesNothing(t *testing.T) {
	for _, namespace := range []string{"busy", "returned"} {
		t.Run(namespace, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newTurns(2)
				busy, returned := all.ForCluster("busy"), all.ForCluster(namespace)
				evaluate(t, returned, evaluationLimit)
				for range 100 {
					evaluate(t, busy, evaluationLimit)
				}
				var tokens sync.WaitGroup
				for range 100 {
					tokens.Go(func() { evaluate(t, returned, evaluationLimit) })
				}
				synctest.Wait()
				for i := range 5 {
					if waited := evaluate(t, busy, evaluationLimit); waited > 2*evaluationLimit {
						t.Errorf("token %d waited for %v", i, waited)
					}
				}
				tokens.Wait()
			})
		})
	}
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
