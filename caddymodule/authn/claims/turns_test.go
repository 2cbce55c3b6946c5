package claims

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// A cluster takes half of the turns of all, and gives them back.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewTurns()
		hostile, other := all.ForCluster(), all.ForCluster()
		take := func(turns *Turns) (func(), error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return turns.take(ctx)
		}
		var taken []func()
		done, err := take(hostile)
		for ; err == nil; done, err = take(hostile) {
			taken = append(taken, done)
		}
		processors := runtime.GOMAXPROCS(0)
		if want := max(1, processors/2); err != ErrBusy || len(taken) != want {
			t.Errorf("%d turns, want %d; then %v", len(taken), want, err)
		}
		if processors > 1 {
			done, err := take(other)
			if err != nil {
				t.Fatalf("the turns of another cluster: %v", err)
			}
			done()
		}
		for _, done := range taken {
			done()
		}
		if done, err = take(hostile); err != nil {
			t.Fatalf("after they were given back: %v", err)
		}
		done()
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
