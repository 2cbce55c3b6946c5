package safecel

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// What may be spent, in units of cel-go's cost: some 20 for each element that
// is mapped. The time grows by the square within one expression, since cel-go
// searches a stack of all that a comprehension has seen.
const (
	// ExpressionBudget bounds one run of one expression. kube-apiserver
	// allows a million, which takes many seconds.
	ExpressionBudget = 30_000
	// TokenBudget bounds all expressions a token is mapped by.
	TokenBudget = 60_000

	interruptEvery = 64
)

// ErrBudget says that the expressions of one token took too long.
var ErrBudget = errors.New("the expressions cost too much")

// errTooMuch says that a guard kept a function from being called.
var errTooMuch = errors.New("a call would make too much of its arguments")

// IsBudget reports whether an expression failed because of what it cost, or would have
// cost.
func IsBudget(err error) bool {
	var cancelled interpreter.EvalCancelledError
	return errors.Is(err, ErrBudget) || errors.Is(err, errTooMuch) ||
		errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded
}

type budget struct{ left uint64 }

type budgetKey struct{}

// WithBudget gives all expressions that are run with the context one budget
// of TokenBudget together. They must not run at the same time.
func WithBudget(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{left: TokenBudget})
}

// metered charges the budget of the context for what a program costs.
type metered struct {
	cel.Program
	nodes int
}

func (m *metered) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("running an expression: %w", context.Cause(ctx))
	}
	b, _ := ctx.Value(budgetKey{}).(*budget)
	if b == nil {
		return m.Program.ContextEval(ctx, input)
	}
	if b.left == 0 {
		return nil, nil, ErrBudget
	}
	value, details, err := m.Program.ContextEval(ctx, input)
	cost := uint64(ExpressionBudget)
	if details != nil {
		if actual := details.ActualCost(); actual != nil {
			cost = *actual
		}
	}
	// An expression is not free because it is a constant.
	cost++
	b.left -= min(b.left, cost)
	return value, details, err
}
