package compile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

func withRules(expressions ...string) *v1.ProxyKubeApi {
	return withJWT(func(a *v1.JWTAuthenticator) {
		for _, e := range expressions {
			a.ClaimValidationRules = append(a.ClaimValidationRules, v1.ClaimValidationRule{Expression: ptr.To(e), Message: "m"})
		}
	})
}

// API-2: an object whose expressions would hold up all others is told so.
func TestDearExpressionsAreRefused(t *testing.T) {
	const rule = "spec.auth_config.jwt[0].claim_validation_rules[0].expression: "
	r := strings.Repeat
	for name, test := range map[string]struct {
		object *v1.ProxyKubeApi
		want   string
	}{
		"literals": {withRules("[" + r("{},", 1300) + "{'a':1}].size()>0"), rule + "has too many empty lists and maps"},
		"nodes":    {withRules(r("1==1||", 680) + "true"), rule + "is too complex"},
		"nested":   {withRules(r("[", 200) + r("]", 200) + " == []"), rule + "has lists or maps nested too deep"},
		"optMap":   {withRules("claims[?'a']" + r(".optMap(x,x)", 30) + ".hasValue()"), rule + "must have at most 3 optMap"},
		"pattern":  {withRules("'x'.matches('" + r("a{1000}", 400) + "')"), rule + "is too complex"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(test.object)
			began := time.Now()
			k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, test.want)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func manyRules(n int, expression func(i int) string) *v1.ProxyKubeApi {
	var all []string
	for i := range n {
		all = append(all, expression(i))
	}
	return withRules(all...)
}

func TestExpressionsOfOneObjectAreBoundedTogether(t *testing.T) { // API-2
	t.Run("source", func(t *testing.T) {
		b := newBench(t)
		b.put(manyRules(9, func(i int) string {
			return fmt.Sprintf("'%d' != '%s'", i, strings.Repeat("a", 4000))
		}))
		k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "claim_validation_rules[8].expression: the expressions of the object must have at most 32768 bytes")
	})
	t.Run("nodes", func(t *testing.T) {
		b := newBench(t)
		b.put(withRules("true"))
		b.compile() // the environment is made once
		b.put(manyRules(64, func(i int) string {
			return fmt.Sprintf("[%d,%s1].size()>0", i, strings.Repeat("{'a':1}.size(),", 75))
		}))
		began := time.Now()
		k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "the expressions of the object are too complex")
		t.Logf("the dearest object took %v", time.Since(began))
	})
	t.Run("that fail", func(t *testing.T) {
		b := newBench(t)
		b.put(manyRules(64, func(i int) string { return fmt.Sprintf("[%d%s", i, strings.Repeat(",1", 400)) }))
		k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "too complex")
	})
	t.Run("what people write", func(t *testing.T) {
		b := newBench(t)
		b.put(manyRules(64, func(i int) string {
			return fmt.Sprintf("claims.team%d in ['a', 'b'] && has(claims.sub) && claims.sub.startsWith('x')", i)
		}))
		k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
	})
}

func TestSharedExpressionsAreBoundedByNodes(t *testing.T) {
	const maxNodes = 100
	s := newSharedCEL(maxNodes)
	for i := range 20 {
		e := &authenticationcel.ClaimMappingExpression{Expression: fmt.Sprintf("[%d%s]", i, strings.Repeat(",1", 10))}
		if _, err := s.CompileClaimsExpression(e); err != nil {
			t.Fatal(err)
		}
	}
	sum := 0
	for _, r := range s.results.Values() {
		sum += safecel.Nodes(r)
	}
	if sum != s.nodes || sum > maxNodes || sum == 0 {
		t.Errorf("%d nodes held, %d counted, at most %d wanted", sum, s.nodes, maxNodes)
	}
}

type panicking struct{ authenticationcel.Compiler }

func (panicking) CompileClaimsExpression(authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	panic("over one object")
}

// A panic over one object closes that object and no other.
func TestPanicClosesOneObject(t *testing.T) {
	b := newBench(t)
	b.Compiler.cel = func() authenticationcel.Compiler { return panicking{} }
	b.put(withRules("true"))
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonInvalidSpec, "cannot be processed")
	b.put(withRules())
	k8stest.WantReady(t, b.compile(), k8swatch.ReasonServing)
}
