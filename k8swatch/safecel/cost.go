package safecel

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// costs charges a call for the values it was given and what it made of them:
// 1 for ten bytes of text and 1 for an element, as cel-go's own rules do where
// they know the types. It never charges less than kube-apiserver.
type costs struct{ library.CostEstimator }

const bytesPerCost = 10

func (c *costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if p, ok := parsePatternCall(function); ok {
		n := p.cost(length(args[0])) + deep(result, ExpressionBudget)
		return &n
	}
	n := work(function, args, result)
	if n >= ExpressionBudget {
		// It is over, and kube-apiserver's rules look at all of a value: they would
		// take for ever.
		return &n
	}
	if known := c.CostEstimator.CallCost(function, overload, args, result); known != nil {
		n = max(n, *known)
	}
	return &n
}

// listCosts replaces the costs that cel-go has for functions of lists: it counts
// the elements of a list, and not what the elements hold, which these functions
// look at as well.
func listCosts() cel.ProgramOption {
	var trackers []interpreter.CostTrackerOption
	for _, id := range []string{"list_flatten", "list_flatten_int"} {
		trackers = append(trackers, interpreter.OverloadCostTracker(id, func(args []ref.Val, result ref.Val) *uint64 {
			n := 1 + deep(args[0], ExpressionBudget) + deep(result, ExpressionBudget)
			return &n
		}))
	}
	trackers = append(trackers, interpreter.OverloadCostTracker("list_distinct", func(args []ref.Val, _ ref.Val) *uint64 {
		n := 1 + elementsOf(args[0])*deep(args[0], ExpressionBudget)
		return &n
	}))
	for _, id := range []string{"list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list"} {
		trackers = append(trackers, interpreter.OverloadCostTracker(id, func(args []ref.Val, _ ref.Val) *uint64 {
			// Each element of one list is compared with all of the other, and
			// sets.equivalent does it both ways.
			n := 1 + elementsOf(args[0])*deep(args[1], ExpressionBudget) + elementsOf(args[1])*deep(args[0], ExpressionBudget)
			return &n
		}))
	}
	return cel.CostTrackerOptions(trackers...)
}

func elementsOf(v ref.Val) uint64 {
	if list, ok := v.(traits.Lister); ok {
		return elements(list)
	}
	return 0
}

func work(function string, args []ref.Val, result ref.Val) uint64 {
	switch function {
	case "_&&_", "_||_", "!_", "@not_strictly_false", "_?_:_", "_[_]", "_[?_]", "dyn", "type":
		return 1 // these look at no more than one value
	case "size":
		return 1 + text(args[0]) // the characters of a text are counted each time
	case "_+_":
		// A list is not copied, so that map and filter, which append to
		// theirs, are not charged for all of it each time.
		if list, ok := args[len(args)-1].(traits.Lister); ok {
			return max(1, elements(list))
		}
		return 1 + text(result)
	}
	n := 1 + text(result)
	for _, arg := range args {
		n += deep(arg, ExpressionBudget)
	}
	return n
}

func length(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case types.Bytes:
		return uint64(len(v))
	}
	return 0
}

func text(v ref.Val) uint64 { return length(v) / bytesPerCost }

func elements(list traits.Lister) uint64 {
	n, _ := list.Size().(types.Int)
	return uint64(max(n, 0))
}

// deep is the cost of looking at all of a value. It stops soon after limit.
func deep(v ref.Val, limit uint64) uint64 {
	switch v := v.(type) {
	case types.String, types.Bytes:
		return text(v)
	case traits.Lister:
		size := elements(v)
		n := size
		for i := uint64(0); i < size && n < limit; i++ {
			n += deep(v.Get(types.Int(i)), limit-n)
		}
		return n
	case *types.Optional:
		if v.HasValue() {
			return deep(v.GetValue(), limit)
		}
	case traits.Mapper:
		return deepMap(v, limit)
	}
	return 0
}

// Watched is a map that notes what an expression reads of it. What it costs to
// look at is measured on the map below, which notes nothing.
type Watched interface{ Unwatched() traits.Mapper }

// deepMap counts an entry, what its key is made of and what its value is.
func deepMap(m traits.Mapper, limit uint64) uint64 {
	if watched, ok := m.(Watched); ok {
		m = watched.Unwatched()
	}
	n := uint64(0)
	for i := m.Iterator(); n < limit && i.HasNext() == types.True; {
		key := i.Next()
		n += 1 + text(key)
		if value, ok := m.Find(key); ok && n < limit {
			n += deep(value, limit-n)
		}
	}
	return n
}
