package safecel

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

var shared = sync.OnceValue(New)

func compile(e string) (authenticationcel.CompilationResult, error) {
	return shared().CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{Expression: e})
}

// API-2: what would hold up or fill the process is refused at once.
func TestInspectRefuses(t *testing.T) {
	r := strings.Repeat
	tests := map[string]struct{ expression, want string }{
		"empty literals":       {"[" + r("{},", 1300) + "{'a':1}].size()>0", "too many empty"},
		"comparisons":          {r("1==1||", 680) + "true", "too complex"},
		"lists in lists":       {r("[", 200) + r("]", 200) + " == []", "nested too deep"},
		"maps in maps":         {r("{'a':", 9) + "1" + r("}", 9) + " == {}", "nested too deep"},
		"selects":              {"claims" + r(".a", 100), "nested too deep"},
		"optMap":               {"claims[?'a']" + r(".optMap(x,x)", 30) + ".hasValue()", "at most 3 optMap"},
		"optFlatMap":           {"claims[?'a']" + r(".optFlatMap(x,optional.of(x))", 30) + ".hasValue()", "at most 3 optMap"},
		"pattern":              {"claims.s.matches('" + r("a{1000}", 400) + "')", "too complex"},
		"nested pattern":       {"claims.s.matches('((a{30}){30}){1}b{900}c{900}d{900}')", "too complex"},
		"pattern of find":      {"claims.s.find('" + r("a{1000}", 400) + "')", "too complex"},
		"pattern of matches()": {"matches(claims.s, '" + r("a{1000}", 400) + "')", "too complex"},
		"pattern of a claim":   {"claims.s.matches(claims.p)", "string literal"},
		"pattern built":        {"claims.s.findAll('a' + 'b').size() == 1", "string literal"},
		"source":               {"'" + r("a", MaxSource) + "'", "at most 4096 bytes"},
	}
	compile("true") // the environment is made once
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := compile(test.expression)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error = %v, want one with %q", err, test.want)
			}
			t.Logf("%d bytes refused in %v", len(test.expression), time.Since(began))
		})
	}
}

// The dearest expressions that pass.
func TestDearestExpressions(t *testing.T) {
	r := strings.Repeat
	compile("true")
	for name, expression := range map[string]string{
		"literals":    "[" + r("{},", 31) + r("{'a':1},", 120) + "{'a':1}].size()>0",
		"comparisons": "[" + strings.TrimSuffix(r("1==1,", 99), ",") + "].size() == 1",
		"nested":      "[" + strings.TrimSuffix(r(r("[", 6)+"1"+r("]", 6)+",", 50), ",") + "].size() == 1",
		"deep":        r("[", 7) + strings.TrimSuffix(r("[1],", 150), ",") + r("]", 7) + " == []",
		"optMap":      "claims[?'a']" + r(".optMap(x,x)", 3) + ".hasValue()",
		"macros":      r("claims.all(a,", 25) + "true" + r(")", 25),
		"pattern":     "claims.s.matches('a{900}b{90}')",
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var result authenticationcel.CompilationResult
		var err error
		took := cpuTime(t, func() { result, err = compile(expression) })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		t.Logf("%s: %d nodes, %v, %d KiB", name, Nodes(result), took, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10)
		if took > 2*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		runtime.KeepAlive(result)
	}
}

func variable(t testing.TB, payload map[string]any) traits.Mapper {
	t.Helper()
	data, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatal(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(plain).(traits.Mapper)
}

func run(ctx context.Context, t testing.TB, e string, v traits.Mapper) (any, error) {
	t.Helper()
	result, err := compile(e)
	if err != nil {
		t.Fatalf("%s: %v", e, err)
	}
	out, err := authenticationcel.NewClaimsMapper([]authenticationcel.CompilationResult{result}).EvalClaimMapping(ctx, v)
	if err != nil {
		return nil, err
	}
	return out.EvalResult.Value(), nil
}

// AUTH-10: no expression makes megabytes, or runs for long, out of one token.
func TestRunsAreBounded(t *testing.T) {
	list := make([]any, 5000)
	for i := range list {
		list[i] = 0
	}
	claims := variable(t, map[string]any{"l": list, "s": strings.Repeat("s", 12<<10), "one": "s", "n": 1_000_000_000})
	for name, expression := range map[string]string{
		"shared text":      "dyn(claims.l).map(x, string(claims.s))",
		"replace":          "string(claims.s).replace('s', string(claims.s)).size() == 1",
		"replace nothing":  "string(claims.s).replace('', string(claims.s)).size() == 1",
		"replace, limited": "string(claims.s).replace('s', string(claims.s), 1000).size() == 1",
		"replace, dynamic": "dyn(claims.s).replace('s', claims.s).size() == 1",
		"join":             "dyn(claims.l).map(x, claims.s).join(claims.s).size() == 1",
		"join one":         "dyn(claims.l).map(x, 'a').join(claims.s).size() == 1",
		"format list":      "'%s'.format([dyn(claims.l).map(x, claims.s)]).size() == 1",
		"format precision": "'%.999999999f'.format([1.0]).size() == 1",
		"doubling":         "[claims.s]" + strings.Repeat(".map(x, x+x)", 8) + ".size() == 1 && [claims.s].map(x, x+x).map(x, x+x).map(x, x+x).map(x, x+x).map(x, [x+x, x+x, x+x, x+x]).all(x, x.all(y, y + y + y + y + y + y + y + y == ''))",
		"doubling lists":   "[claims.l]" + strings.Repeat(".map(x, dyn(x)+dyn(x))", 10) + ".size() == 1",
		"range":            "lists.range(1000000000).size() == 1",
		"range of a claim": "lists.range(int(claims.n)).size() == 1",
		"distinct":         "dyn(claims.l).map(x, string(x)).distinct().size() == 1",
		"sets":             "sets.contains(dyn(claims.l), dyn(claims.l)) && sets.intersects(claims.l, claims.l)",
		"nested all":       "dyn(claims.l).all(a, dyn(claims.l).all(b, dyn(claims.l).all(c, a == 0.0)))",
		"quantity":         "isQuantity('1e999999999')",
		"equality":         strings.Repeat("dyn(claims.l).map(x, claims.s) == dyn(claims.l).map(x, claims.s) && ", 8) + "true",
		"regex":            "dyn(claims.l).all(x, claims.s.matches('(s|t)*(u|v)*s{100}$'))",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var err error
			took := cpuTime(t, func() { _, err = run(WithBudget(t.Context()), t, expression, claims) })
			runtime.ReadMemStats(&after)
			mib := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%v, %d MiB allocated in all: %.80v", took, mib, err)
			if err == nil {
				t.Error("no error")
			}
			if mib > 40 || took > 3*time.Second {
				t.Error("took too much")
			}
		})
	}
}

// What people write is not in the way of the bounds.
func TestHonestExpressions(t *testing.T) {
	groups := make([]any, 500)
	for i := range groups {
		groups[i] = "4b2f9a10-7f6c-4f3a-9c55-0123456789ab"
	}
	claims := variable(t, map[string]any{"sub": "alice", "groups": groups, "aud": []any{"a", "b"}, "s": "a.b.c"})
	for _, expression := range []string{
		"dyn(claims.groups).map(g, 'team:' + g)",
		"dyn(claims.groups).filter(g, g.startsWith('4b') && g != 'admin').map(g, 'x-' + g.lowerAscii())",
		"dyn(claims.groups).exists(g, g in ['a', 'b', 'c'])",
		"dyn(claims.groups).all(g, g.matches('^[-a-z0-9]{1,253}$'))",
		"dyn(claims.groups).map(g, g.replace('-', '')).size() == 500",
		"claims.sub.split('@')[0] + '%s-%.2f'.format(['x', 1.5])",
		"claims.s.split('.').join('-')",
		"lists.range(3).size() == 3 && sets.contains(claims.aud, ['a'])",
		"dyn(claims.aud).distinct().map(a, string(a)).sort().size() == 2",
		"claims[?'sub'].optMap(s, s + 'x').orValue('none')",
		"quantity('1.5Gi').isGreaterThan(quantity('1e3'))",
	} {
		if _, err := run(WithBudget(t.Context()), t, expression, claims); err != nil {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

func TestBudgetIsShared(t *testing.T) {
	list := make([]any, 1500)
	for i := range list {
		list[i] = "x"
	}
	claims := variable(t, map[string]any{"l": list})
	const e = "dyn(claims.l).all(a, a == 'x' && a != 'y' && a != 'z')"
	ctx := WithBudget(t.Context())
	ran := 0
	var err error
	for ; ran < 1000 && err == nil; ran++ {
		_, err = run(ctx, t, e, claims)
	}
	if err == nil || !strings.Contains(err.Error(), ErrBudget.Error()) {
		t.Fatalf("after %d runs: %v", ran, err)
	}
	t.Logf("%d runs", ran)
	if ran < 3 {
		t.Errorf("only %d runs", ran)
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := run(WithBudget(ctx), t, "true", variable(t, nil)); err == nil {
		t.Error("an expression ran after the end of its context")
	}
}

func TestNoBudgetIsBoundedToo(t *testing.T) {
	list := make([]any, 5000)
	claims := variable(t, map[string]any{"l": list})
	if _, err := run(t.Context(), t, "dyn(claims.l).all(a, dyn(claims.l).all(b, true))", claims); err == nil {
		t.Error("no error")
	}
}
