package k8swatch

import (
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// maxSharedExpressions bounds the compiled expressions that are kept to be
// shared, some 20 KiB each.
const maxSharedExpressions = 512

// sharedCEL compiles each expression once for all objects. Clusters of one
// installation mostly map the claims of one identity provider in the same way,
// and the programs of a thousand copies would fill 80 MB. A program holds no
// state and may run on many goroutines.
type sharedCEL struct {
	compiler authenticationcel.Compiler
	results  *lru.Cache[string, authenticationcel.CompilationResult]
}

func newSharedCEL() *sharedCEL {
	results, err := lru.New[string, authenticationcel.CompilationResult](maxSharedExpressions)
	if err != nil {
		// Only a size below one is refused.
		panic("k8swatch: making a cache of expressions: " + err.Error())
	}
	return &sharedCEL{compiler: authenticationcel.NewDefaultCompiler(), results: results}
}

func (s *sharedCEL) CompileClaimsExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	return s.compile("claims", e, s.compiler.CompileClaimsExpression)
}

func (s *sharedCEL) CompileUserExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	return s.compile("user", e, s.compiler.CompileUserExpression)
}

// compile shares the program and gives each caller the accessor it came with,
// which holds the message of its own rule.
func (s *sharedCEL) compile(
	variable string, e authenticationcel.ExpressionAccessor,
	compile func(authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error),
) (authenticationcel.CompilationResult, error) {
	d := newDigest("expression")
	d.string(variable)
	d.string(fmt.Sprint(e.ReturnTypes()))
	d.string(e.GetExpression())
	key := d.sum()
	result, ok := s.results.Get(key)
	if !ok {
		var err error
		if result, err = compile(e); err != nil {
			return result, err
		}
		s.results.Add(key, result)
	}
	result.ExpressionAccessor = e
	return result, nil
}
