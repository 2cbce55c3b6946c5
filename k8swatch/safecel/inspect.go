package safecel

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// What an expression may amount to. The type-checker takes time by the square
// of the nodes, and by more of nested literals.
const (
	MaxSource = 4 << 10
	MaxNodes  = 400

	maxDepth        = 64
	maxLiteralDepth = 8
	// Each empty literal is a type of its own until the checker settled it.
	maxEmptyLiterals = 32
	// optMap and optFlatMap repeat what they stand on, so a chain of them
	// doubles with each.
	maxOptionalMaps = 3
	// instructionsPerNode weighs a pattern: an instruction takes some 40 bytes.
	instructionsPerNode = 8
)

// inspect measures an expression, macros expanded. It stops at the limits.
func inspect(env *cel.Env, source string) (nodes int, err error) {
	if len(source) > MaxSource {
		return 0, fmt.Errorf("must have at most %d bytes", MaxSource)
	}
	// To be seen before the parser expands them.
	if strings.Count(source, "optMap")+strings.Count(source, "optFlatMap") > maxOptionalMaps {
		return 0, fmt.Errorf("must have at most %d optMap or optFlatMap", maxOptionalMaps)
	}
	parsed, issues := env.Parse(source)
	if issues.Err() != nil {
		return 0, nil // the compiler says it better
	}
	i := &inspection{}
	i.walk(parsed.NativeRep().Expr(), 0, 0)
	return i.nodes, i.err
}

type inspection struct {
	nodes, empty int
	err          error
}

func (i *inspection) refuse(format string, args ...any) {
	if i.err == nil {
		i.err = fmt.Errorf(format, args...)
	}
}

func (i *inspection) count(nodes int) {
	if i.nodes += nodes; i.nodes > MaxNodes {
		i.refuse("is too complex: it must have at most %d nodes, macros expanded and patterns counted", MaxNodes)
	}
}

func (i *inspection) walk(e ast.Expr, depth, literals int) {
	i.count(1)
	if depth++; depth > maxDepth {
		i.refuse("is nested too deep: at most %d levels are allowed", maxDepth)
	}
	if i.err != nil {
		return
	}
	switch e.Kind() {
	case ast.CallKind:
		i.call(e.AsCall(), depth, literals)
	case ast.SelectKind:
		i.walk(e.AsSelect().Operand(), depth, literals)
	case ast.ListKind:
		literals = i.literal(literals, e.AsList().Size())
		for _, element := range e.AsList().Elements() {
			i.walk(element, depth, literals)
		}
	case ast.MapKind:
		literals = i.literal(literals, e.AsMap().Size())
		for _, entry := range e.AsMap().Entries() {
			i.walk(entry.AsMapEntry().Key(), depth, literals)
			i.walk(entry.AsMapEntry().Value(), depth, literals)
		}
	case ast.StructKind:
		literals = i.literal(literals, 1)
		for _, field := range e.AsStruct().Fields() {
			i.walk(field.AsStructField().Value(), depth, literals)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		for _, part := range []ast.Expr{c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
			i.walk(part, depth, literals)
		}
	}
}

func (i *inspection) literal(depth, size int) int {
	if size == 0 {
		if i.empty++; i.empty > maxEmptyLiterals {
			i.refuse("has too many empty lists and maps: at most %d are allowed", maxEmptyLiterals)
		}
	}
	if depth++; depth > maxLiteralDepth {
		i.refuse("has lists or maps nested too deep: at most %d levels are allowed", maxLiteralDepth)
	}
	return depth
}

func (i *inspection) call(c ast.CallExpr, depth, literals int) {
	if c.IsMemberFunction() {
		i.walk(c.Target(), depth, literals)
	}
	for _, arg := range c.Args() {
		i.walk(arg, depth, literals)
	}
	pattern := -1
	switch c.FunctionName() {
	case "matches":
		pattern = len(c.Args()) - 1 // also called as matches(text, pattern)
	case "find", "findAll":
		pattern = 0
	}
	if pattern < 0 || pattern >= len(c.Args()) {
		return
	}
	arg := c.Args()[pattern]
	if arg.Kind() != ast.LiteralKind {
		i.refuse("must have the pattern of %s as a string literal", c.FunctionName())
		return
	}
	if text, ok := arg.AsLiteral().(types.String); ok {
		i.count(instructions(string(text)) / instructionsPerNode)
	}
}

// instructions estimates the size of a compiled pattern without compiling it.
func instructions(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return programSize(parsed)
}

func programSize(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n += len(re.Rune) / 16 // ranges share an instruction
	}
	for _, sub := range re.Sub {
		n += programSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}
