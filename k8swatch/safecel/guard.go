package safecel

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// What one call may make or do. Costs are charged after a call, which is too
// late for those that make much out of little.
const (
	maxText  = 64 << 10
	maxRange = 8 << 10
	maxPairs = 1 << 20
)

// guards say of the arguments of a function whether it may be called.
var guards = map[string]func(args []ref.Val) bool{
	"replace":         guardReplace,
	"join":            guardJoin,
	"format":          guardFormat,
	"lists.range":     func(args []ref.Val) bool { n, ok := args[0].(types.Int); return !ok || n <= maxRange },
	"indexOf":         guardSearch,
	"lastIndexOf":     guardSearch,
	"distinct":        func(args []ref.Val) bool { return pairs(args[0], args[0]) },
	"flatten":         small,
	"sets.contains":   guardSets,
	"sets.equivalent": guardSets,
	"sets.intersects": guardSets,
	"split":           func(args []ref.Val) bool { return length(args[0]) <= maxText },
	"quantity":        guardNumber,
	"isQuantity":      guardNumber,
	"strings.quote":   func(args []ref.Val) bool { return length(args[0]) <= maxText },
}

func guardReplace(args []ref.Val) bool {
	s, ok1 := args[0].(types.String)
	from, ok2 := args[1].(types.String)
	to, ok3 := args[2].(types.String)
	if !ok1 || !ok2 || !ok3 || len(s) > maxText {
		return len(s) <= maxText
	}
	return len(s)+strings.Count(string(s), string(from))*len(to) <= maxText
}

func guardJoin(args []ref.Val) bool {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return true
	}
	separator := uint64(0)
	if len(args) > 1 {
		separator = length(args[1])
	}
	size, n := uint64(0), elements(list)
	for i := uint64(0); i < n; i++ {
		if size += separator + 1 + length(list.Get(types.Int(i))); size > maxText {
			return false
		}
	}
	return true
}

// widePrecision is a verb with three digits or more.
var widePrecision = regexp.MustCompile(`%\.0*[1-9][0-9]{2}`)

func guardFormat(args []ref.Val) bool {
	text, ok := args[0].(types.String)
	if !ok {
		return true
	}
	return !widePrecision.MatchString(string(text)) &&
		uint64(len(text))+deep(args[1], maxText)*bytesPerCost <= maxText
}

// small reports whether all values together can be looked at whole. A value may
// be of any size though nothing large was given: a list that holds a list ten
// times, which holds a list ten times, takes no room.
func small(args []ref.Val) bool {
	n := uint64(0)
	for _, arg := range args {
		if n += deep(arg, ExpressionBudget); n >= ExpressionBudget {
			return false
		}
	}
	return true
}

// guardSearch is about texts, where what is searched for is compared at every
// place of what is searched, and about lists.
func guardSearch(args []ref.Val) bool {
	return length(args[0])*length(args[1]) <= maxPairs && small(args[:2]) && pairs(args[0], args[1])
}

// comparisons are the operators that have no function which could be replaced.
var comparisons = map[string]func(a, b ref.Val) ref.Val{
	operators.Equals:    func(a, b ref.Val) ref.Val { return types.Equal(a, b) },
	operators.NotEquals: func(a, b ref.Val) ref.Val { return types.Bool(types.Equal(a, b) != types.True) },
	operators.In: func(element, in ref.Val) ref.Val {
		if container, ok := in.(traits.Container); ok && in.Type().HasTrait(traits.ContainerType) {
			return container.Contains(element)
		}
		return types.ValOrErr(in, "no such overload")
	},
}

// guardComparison puts small before the comparisons.
func guardComparison(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := step.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 2 {
		return step, nil
	}
	compare, ok := comparisons[call.Function()]
	if !ok {
		return step, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		if !small(args) {
			return tooMuch()
		}
		return compare(args[0], args[1])
	}), nil
}

func guardSets(args []ref.Val) bool { return pairs(args[0], args[1]) }

// pairs reports whether each element of one list can be compared with each of the
// other, all that the elements hold included.
func pairs(a, b ref.Val) bool {
	n, m := max(1, elementsOf(a)), max(1, elementsOf(b))
	if n > maxPairs || m > maxPairs {
		return false
	}
	da, db := deep(a, ExpressionBudget), deep(b, ExpressionBudget)
	return da < ExpressionBudget && db < ExpressionBudget && n*db <= maxPairs && m*da <= maxPairs
}

// bigExponent is one that a number would have to be written out for.
var bigExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{2}`)

func guardNumber(args []ref.Val) bool {
	s, ok := args[0].(types.String)
	return !ok || len(s) <= 128 && !bigExponent.MatchString(string(s))
}

// guarded puts a guard before the functions of an environment that have one.
// Their declarations stay as they are.
func guarded(env *cel.Env) (*cel.Env, error) {
	var options []cel.EnvOption
	for name, allow := range guards {
		declared, ok := env.Functions()[name]
		if !ok {
			continue
		}
		bindings, err := declared.Bindings()
		if err != nil {
			return nil, err
		}
		byID := make(map[string]*functions.Overload, len(bindings))
		for _, b := range bindings {
			byID[b.Operator] = b
		}
		var overloads []cel.FunctionOpt
		for _, o := range declared.OverloadDecls() {
			b := byID[o.ID()]
			if b == nil {
				continue
			}
			overload := cel.Overload
			if o.IsMemberFunction() {
				overload = cel.MemberOverload
			}
			overloads = append(overloads, overload(o.ID(), o.ArgTypes(), o.ResultType(), binding(len(o.ArgTypes()), b, allow)))
		}
		options = append(options, cel.Function(name, overloads...))
	}
	for _, option := range options {
		var err error
		if env, err = option(env); err != nil {
			return nil, err
		}
	}
	return env, nil
}

func binding(arity int, original *functions.Overload, allow func([]ref.Val) bool) cel.OverloadOpt {
	switch {
	case arity == 1 && original.Unary != nil:
		return cel.UnaryBinding(func(v ref.Val) ref.Val {
			if !allow([]ref.Val{v}) {
				return tooMuch()
			}
			return original.Unary(v)
		})
	case arity == 2 && original.Binary != nil:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			if !allow([]ref.Val{a, b}) {
				return tooMuch()
			}
			return original.Binary(a, b)
		})
	}
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val {
		if !allow(args) {
			return tooMuch()
		}
		return original.Function(args...)
	})
}

func tooMuch() ref.Val { return types.WrapErr(errTooMuch) }
