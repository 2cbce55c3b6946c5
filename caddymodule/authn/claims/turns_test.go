package claims

import (
	"context"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// A cluster takes half of the turns of all, and gives them back.
func TestTurns(t *testing.T) {
	all := NewTurns()
	a, b := all.ForCluster(), all.ForCluster()
	var give []func()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		done, err := a.take(ctx)
		cancel()
		if err != nil {
			if err != ErrBusy {
				t.Fatal(err)
			}
			break
		}
		give = append(give, done)
	}
	// With one processor, one turn is all there is.
	if ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond); len(give) > 0 && cap(give) > 1 {
		done, err := b.take(ctx)
		cancel()
		if err != nil {
			t.Errorf("one cluster takes the turns of another: %v", err)
		} else {
			done()
		}
	} else {
		cancel()
	}
	for _, done := range give {
		done()
	}
	if done, err := a.take(t.Context()); err != nil {
		t.Error(err)
	} else {
		done()
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
