package claims

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// slowMapper takes as long as it is let.
type slowMapper struct{ authenticationcel.ClaimsMapper }

func (slowMapper) EvalClaimMapping(ctx context.Context, _ traits.Mapper) (authenticationcel.EvaluationResult, error) {
	<-ctx.Done()
	return authenticationcel.EvaluationResult{}, ctx.Err()
}

// AUTH-17: the expressions over one token end after a second, and the turn with them.
func TestEvaluationIsBoundedInTime(t *testing.T) {
	m := compile(t, apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: claim("sub", ""), Groups: expression("claims.groups")}})
	m.mapper.Groups = slowMapper{}
	c, err := Parse([]byte(`{"sub":"alice"}`))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m.turns = newTurns(2).ForCluster("test")
		began := time.Now()
		if _, err := m.Identity(t.Context(), c, 0); err != ErrSlow || time.Since(began) != evaluationLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// A caller's own end is no verdict on the expressions.
		ctx, cancel := context.WithTimeout(t.Context(), evaluationLimit/2)
		defer cancel()
		if _, err := m.Identity(ctx, c, 0); err != ErrBusy {
			t.Errorf("got %v", err)
		}
		if m.turns.running != 0 {
			t.Error("a turn was not given back")
		}
	})
}

// lateMapper takes too long, and then says a name.
type lateMapper struct{ authenticationcel.ClaimsMapper }

func (lateMapper) EvalClaimMapping(ctx context.Context, _ traits.Mapper) (authenticationcel.EvaluationResult, error) {
	<-ctx.Done()
	return authenticationcel.EvaluationResult{EvalResult: types.String("alice")}, nil
}

// AUTH-17: what an expression made of lookups that failed because time was over is no
// identity.
func TestLateNameIsNone(t *testing.T) {
	m := compile(t, apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: expression("claims.sub")}})
	m.mapper.Username = lateMapper{}
	synctest.Test(t, func(t *testing.T) {
		m.turns = newTurns(2).ForCluster("test")
		if id, err := m.Identity(t.Context(), Claims{}, 0); err != ErrSlow {
			t.Errorf("got %v, %v", id, err)
		}
	})
}
