package safecel

import (
	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Compiler is kube-apiserver's compiler of authentication expressions within
// the bounds of this package. It may be used from several goroutines.
type Compiler struct {
	inner authenticationcel.Compiler
	env   *cel.Env
}

// New makes a Compiler. It takes a while.
func New() *Compiler {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	set, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{guarded},
		ProgramOptions: []cel.ProgramOption{
			cel.CustomDecoratorV2(literalPatterns),
			cel.CustomDecoratorV2(guardComparison),
			cel.CostTracking(&costs{}),
			listCosts(),
			cel.CostLimit(ExpressionBudget),
			cel.InterruptCheckFrequency(interruptEvery),
		},
	})
	if err != nil {
		// The options are constants.
		panic("safecel: making the environment: " + err.Error())
	}
	return &Compiler{inner: authenticationcel.NewCompiler(set), env: set.StoredExpressionsEnv()}
}

// CompileClaimsExpression compiles an expression over claims.
func (c *Compiler) CompileClaimsExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	return c.compile(e, c.inner.CompileClaimsExpression)
}

// CompileUserExpression compiles an expression over user.
func (c *Compiler) CompileUserExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	return c.compile(e, c.inner.CompileUserExpression)
}

func (c *Compiler) compile(
	e authenticationcel.ExpressionAccessor,
	compile func(authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error),
) (authenticationcel.CompilationResult, error) {
	nodes, err := inspect(c.env, e.GetExpression())
	if err != nil {
		return authenticationcel.CompilationResult{}, Refuse(err.Error())
	}
	result, err := compile(e)
	if err != nil {
		return result, err
	}
	result.Program = &metered{Program: result.Program, nodes: nodes}
	return result, nil
}

// Refuse is the error of a compiler that refuses an expression.
func Refuse(detail string) error {
	return &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: detail}
}

// Nodes is the measure of what a Compiler compiled.
func Nodes(result authenticationcel.CompilationResult) int {
	if m, ok := result.Program.(*metered); ok {
		return m.nodes
	}
	return 0
}

var _ authenticationcel.Compiler = (*Compiler)(nil)
