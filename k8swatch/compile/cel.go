package compile

import (
	"fmt"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/digest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

// The compiled expressions that are kept to be shared: their number, some 15
// KiB each, and their nodes, some 300 bytes each.
const (
	maxSharedExpressions = 512
	maxSharedNodes       = 32 << 10
)

// What the expressions of one object may amount to together. The compiler
// works for all clusters in turn: an object that takes seconds holds up the
// withdrawal of another.
const (
	maxObjectSource = 32 << 10
	maxObjectNodes  = 2_000
)

// sharedCEL compiles each expression once for all objects. Clusters of one
// installation mostly map the claims of one identity provider in the same way,
// and the programs of a thousand copies would fill 80 MB. A program holds no
// state and may run on many goroutines.
type sharedCEL struct {
	compiler authenticationcel.Compiler
	results  *simplelru.LRU[string, authenticationcel.CompilationResult]
	nodes    int // of results
	maxNodes int
}

func newSharedCEL(maxNodes int) *sharedCEL {
	s := &sharedCEL{compiler: safecel.New(), maxNodes: maxNodes}
	// The only error is a size below one.
	s.results, _ = simplelru.NewLRU(maxSharedExpressions, func(_ string, r authenticationcel.CompilationResult) {
		s.nodes -= safecel.Nodes(r)
	})
	return s
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
	key := digest.Of("expression", variable, fmt.Sprint(e.ReturnTypes()), e.GetExpression())
	result, ok := s.results.Get(key)
	if !ok {
		var err error
		if result, err = compile(e); err != nil {
			return result, err
		}
		s.results.Add(key, result)
		s.nodes += safecel.Nodes(result)
		for s.nodes > s.maxNodes {
			if _, _, ok := s.results.RemoveOldest(); !ok {
				break
			}
		}
	}
	result.ExpressionAccessor = e
	return result, nil
}

// objectCEL is the compiler for one object: it stops when the object has had
// its share.
type objectCEL struct {
	authenticationcel.Compiler
	source, nodes int
}

func (o *objectCEL) CompileClaimsExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	return o.compile(e, o.Compiler.CompileClaimsExpression)
}

func (o *objectCEL) CompileUserExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	return o.compile(e, o.Compiler.CompileUserExpression)
}

func (o *objectCEL) compile(
	e authenticationcel.ExpressionAccessor,
	compile func(authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error),
) (authenticationcel.CompilationResult, error) {
	var none authenticationcel.CompilationResult
	if o.source += len(e.GetExpression()); o.source > maxObjectSource {
		return none, safecel.Refuse(fmt.Sprintf("the expressions of the object must have at most %d bytes together", maxObjectSource))
	}
	if o.nodes > maxObjectNodes {
		return none, safecel.Refuse(fmt.Sprintf("the expressions of the object are too complex: they must have at most %d nodes together", maxObjectNodes))
	}
	result, err := compile(e)
	if err != nil {
		// What fails has cost as much as what does not.
		o.nodes += len(e.GetExpression()) / bytesPerNode
		return result, err
	}
	o.nodes += safecel.Nodes(result)
	return result, nil
}

// bytesPerNode is how long the source of a node is at least.
const bytesPerNode = 3
