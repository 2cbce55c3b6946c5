package safecel

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// maxPatternWork bounds the bytes of a text times the instructions of the
// pattern it is held against: that loop cannot be interrupted.
const maxPatternWork = 1 << 20

// patternCall is a call of matches, find or findAll with a literal pattern.
type patternCall struct {
	instructions int
}

// patternPrefix begins the name such a call is planned under. The name tells
// the cost of a run, and keeps cel-go from putting its own code in place.
const patternPrefix = "safecel.pattern "

func (p patternCall) name() string { return patternPrefix + strconv.Itoa(p.instructions) }

func parsePatternCall(name string) (p patternCall, ok bool) {
	size, ok := strings.CutPrefix(name, patternPrefix)
	if !ok {
		return p, false
	}
	n, err := strconv.Atoi(size)
	return patternCall{n}, err == nil
}

func (p patternCall) work(length uint64) uint64 { return (length + 1) * uint64(p.instructions+1) }

// cost weighs what Go's matcher for short texts does against the other one.
func (p patternCall) cost(length uint64) uint64 {
	n := p.work(length)
	if n < 64<<10 {
		return 1 + n/1000
	}
	return 1 + n/100
}

// literalPatterns compiles the pattern of a call when its program is made, and
// measures the text before a run.
func literalPatterns(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := step.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) < 2 {
		return step, nil
	}
	var run func(re *regexp.Regexp, text string, args []ref.Val) ref.Val
	switch call.Function() {
	case "matches":
		run = func(re *regexp.Regexp, text string, _ []ref.Val) ref.Val { return types.Bool(re.MatchString(text)) }
	case "find":
		run = func(re *regexp.Regexp, text string, _ []ref.Val) ref.Val { return types.String(re.FindString(text)) }
	case "findAll":
		run = findAll
	default:
		return step, nil
	}
	literal, ok := call.Args()[1].(interpreter.InterpretableConst)
	if !ok {
		return step, nil
	}
	pattern, ok := literal.Value().(types.String)
	if !ok {
		return step, nil
	}
	re, err := regexp.Compile(string(pattern))
	if err != nil {
		return nil, err
	}
	p := patternCall{instructions(string(pattern))}
	return interpreter.NewCall(call.ID(), p.name(), "", call.Args(), func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		if p.work(uint64(len(text))) > maxPatternWork {
			return tooMuch()
		}
		return run(re, string(text), args)
	}), nil
}

func findAll(re *regexp.Regexp, text string, args []ref.Val) ref.Val {
	limit := -1
	if len(args) > 2 {
		n, ok := args[2].(types.Int)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[2])
		}
		limit = int(max(n, -1))
	}
	return types.NewStringList(types.DefaultTypeAdapter, re.FindAllString(text, limit))
}
