package safecel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
)

// tokenSize is how much of each kind of value the claims of these tests hold,
// in bytes of JSON: with it a token has about the size of the largest headers.
const tokenSize = 30 << 10

// largeClaims are claims by the kind of their value. Each has two that are equal
// and yet not the same, so that a comparison looks at all of both.
func largeClaims(t testing.TB) traits.Mapper {
	many := func(n int, element func(i int) any) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = element(i)
		}
		return list
	}
	object := map[string]any{}
	for i := range tokenSize / 12 {
		object[fmt.Sprintf("k%05d", i)] = i
	}
	nested := map[string]any{"a": map[string]any{"b": object}}
	claims := map[string]any{
		"s_a": strings.Repeat("a", tokenSize), "s_ab": strings.Repeat("a", tokenSize/2) + "b",
		"s_x": strings.Repeat("x", tokenSize), "s_b": "b", "s_sp": strings.Repeat("a ", tokenSize/2),
		"l_n": many(tokenSize/4, func(i int) any { return i }), "l_s": many(tokenSize/12, func(i int) any { return fmt.Sprint("name-", i) }),
		"l_m": many(tokenSize/24, func(i int) any { return map[string]any{"a": i, "b": "x"} }),
		"l_l": []any{many(tokenSize/4, func(i int) any { return i })},
		"m":   object, "m_m": nested, "n": 7, "b": true,
	}
	for name, value := range maps.Clone(claims) {
		claims[name+"_2"] = value
	}
	return variable(t, claims)
}

// kinds are the claims that may be an argument of a type.
var kinds = map[types.Kind][]string{
	types.StringKind: {"s_a", "s_ab", "s_sp", "s_b"},
	types.ListKind:   {"l_n", "l_s", "l_m", "l_l"},
	types.MapKind:    {"m", "m_m"},
	types.IntKind:    {"n"}, types.UintKind: {"n"}, types.DoubleKind: {"n"},
	types.BoolKind: {"b"},
}

func argumentsOf(kind types.Kind) []string {
	switch kind {
	case types.DynKind, types.AnyKind, types.TypeParamKind:
		return slices.Concat(kinds[types.StringKind], kinds[types.ListKind], kinds[types.MapKind])
	}
	return kinds[kind]
}

var infix = map[string]string{
	operators.Equals: "==", operators.NotEquals: "!=", operators.Add: "+", operators.In: "in", operators.OldIn: "in",
	operators.Less: "<", operators.LessEquals: "<=", operators.Greater: ">", operators.GreaterEquals: ">=",
}

// callOf writes a call; operators that cannot be costly are left out.
func callOf(function string, member bool, args []string) string {
	if op, ok := infix[function]; ok {
		return args[0] + " " + op + " " + args[1]
	}
	switch {
	case strings.ContainsAny(function, "@_!?-"):
		return ""
	case member:
		return args[0] + "." + function + "(" + strings.Join(args[1:], ", ") + ")"
	}
	return function + "(" + strings.Join(args, ", ") + ")"
}

// combinations are all choices of one of each list, at most three arguments.
func combinations(lists [][]string) [][]string {
	all := [][]string{nil}
	for i, list := range lists {
		var next [][]string
		for _, begun := range all {
			for _, name := range list {
				if i > 0 && len(begun) > 0 && begun[len(begun)-1] == name {
					name += "_2"
				}
				next = append(next, append(slices.Clone(begun), name))
			}
		}
		all = next
	}
	return all
}

// calls are calls of every function and operator of the environment that
// kube-apiserver offers, with large arguments of every type.
func calls(env *cel.Env) []string {
	written := map[string]bool{}
	for name, function := range env.Functions() {
		for _, overload := range function.OverloadDecls() {
			if len(overload.ArgTypes()) > 3 {
				continue // replace and split with a limit, which have less to do
			}
			var lists [][]string
			for _, arg := range overload.ArgTypes() {
				lists = append(lists, argumentsOf(arg.Kind()))
			}
			for _, choice := range combinations(lists) {
				args := make([]string, len(choice))
				for i, claim := range choice {
					args[i] = "dyn(claims." + claim + ")"
				}
				if call := callOf(name, overload.IsMemberFunction(), args); call != "" {
					written[call] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(written))
}

// AUTH-17: no function of kube-apiserver's environment takes long on a large
// token, however often an expression calls it.
func TestNoFunctionMultiplies(t *testing.T) {
	compile("true")
	claims := largeClaims(t)
	var slowest time.Duration
	var which string
	ran := 0
	for _, call := range calls(shared().env) {
		expression := "lists.range(2600).all(i, [" + call + "].size() == 1)"
		if _, err := compile(expression); err != nil {
			continue // refused, or not for these types
		}
		ran++
		ctx, cancel := context.WithTimeout(WithBudget(t.Context()), 10*time.Second)
		var err error
		took := cpuTime(t, func() { _, err = run(ctx, t, expression, claims) })
		cancel()
		if took > slowest {
			slowest, which = took, call
		}
		if took > 300*time.Millisecond {
			t.Errorf("%s took %v: %v", call, took, err)
		}
	}
	t.Logf("%d calls, the slowest took %v: %s", ran, slowest, which)
	if ran < 100 {
		t.Errorf("only %d calls were made", ran)
	}
}

// AUTH-17: what is cheap once is charged as often as it is called.
func TestManyCheapCalls(t *testing.T) {
	compile("true")
	claims := variable(t, map[string]any{"s": strings.Repeat("é", 15<<10), "b": true, "l": make([]any, 7000)})
	for _, call := range []string{"size(claims.s)", "claims.s.size()", "size(claims.l)", "int(claims.b)", "[claims.s].size()"} {
		expression := "lists.range(300).all(i, [" + strings.Repeat(call+",", 60) + "0].size() > 0)"
		var err error
		took := cpuTime(t, func() { _, err = run(WithBudget(t.Context()), t, expression, claims) })
		t.Logf("%s: %v", call, took)
		if took > 100*time.Millisecond {
			t.Errorf("%s took %v: %v", call, took, err)
		}
	}
}
