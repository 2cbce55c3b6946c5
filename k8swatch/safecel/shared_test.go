package safecel

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// sharedList is an expression in which a variable is a list of lists of lists, ten
// of each, down to the number of levels: 10 to that power values in little room.
func sharedList(levels int, condition string) string {
	variable := func(i int) string { return fmt.Sprintf("v%d", i) }
	expression := strings.ReplaceAll(condition, "LIST", variable(levels))
	for i := levels; i > 0; i-- {
		ten := strings.TrimSuffix(strings.Repeat(variable(i-1)+",", 10), ",")
		expression = fmt.Sprintf("[[%s]].exists(%s, %s)", ten, variable(i), expression)
	}
	return "[1].exists(v0, " + expression + ")"
}

// AUTH-17: what looks at all of a value is refused before it runs when the value
// is large because its parts are shared.
func TestSharedPartsCostWhatTheyHold(t *testing.T) {
	compile("true")
	for _, condition := range []string{
		"LIST == LIST", "LIST != LIST", "[LIST] == [LIST]", "{'a': LIST} == {'a': LIST}", "optional.of(LIST) == optional.of(LIST)",
		"LIST in [LIST]", "[LIST].indexOf(LIST) == 0", "[LIST].lastIndexOf(LIST) == 0",
		"[LIST, LIST].distinct().size() == 1", "[LIST].flatten(20).size() == 1", "LIST.flatten().size() == 1",
		"sets.contains([LIST], [LIST])", "sets.equivalent([LIST], [LIST])", "sets.intersects([LIST], [LIST])",
		"[LIST].reverse().size() == 2", "'%s'.format([LIST]) == ''", "[LIST, LIST].slice(0, 1) == [LIST]",
	} {
		for _, levels := range []int{9, 14} {
			t.Run(fmt.Sprintf("%s %d", condition, levels), func(t *testing.T) {
				var err error
				took := cpuTime(t, func() { _, err = run(WithBudget(t.Context()), t, sharedList(levels, condition), variable(t, nil)) })
				if took > 2*time.Second {
					t.Errorf("took %v: %v", took, err)
				}
			})
		}
	}
}
