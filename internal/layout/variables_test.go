package layout

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// The rule of package variables. A variable may be
//
//   - blank, as an interface guard is;
//   - made by one of the constructors below, which make a value that is not
//     changed afterwards or that computes something once;
//   - a table: a composite literal, or the result of a function literal;
//   - an error or an answer, which requests share: a pointer to a composite
//     literal, of type Refusal or under a name that begins with err;
//   - embedded from a file;
//   - listed in mutable with a reason.
//
// No variable may be assigned, nor a part of it, nor may its address be taken.

// constructors make values that nothing changes.
var constructors = []string{
	"errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer", "sets.New", "sets.NewString", "uuid.MustParse",
	"time.Date", "sync.OnceValue", "sync.OnceValues",
	"SchemeGroupVersion.WithKind", "SchemeGroupVersion.WithResource",
	"refuse", "unavailable", "badGateway", "warning", // they make a Refusal, or text
}

// mutable are the variables that the rule does not allow, with the reason why
// each is there all the same.
var mutable = map[string]string{
	"caddymodule.process":      "the one Process, which all instances of the Caddy modules share",
	"internal/version.stamped": "the linker sets it",
}

func TestNoMutablePackageVariables(t *testing.T) {
	packages, fset := map[string][]source{}, theTree(t).fset
	for _, s := range theTree(t).sources {
		if !s.isTest() {
			packages[s.dir()] = append(packages[s.dir()], s)
		}
	}
	found := map[string]bool{}
	for dir, files := range packages {
		specs := packageVariables(files)
		for name, v := range specs {
			full := dir + "." + name
			found[full] = true
			if !v.immutable() && mutable[full] == "" {
				t.Errorf("%s may be changed: %s", full, fset.Position(v.spec.Pos()))
			}
		}
		for _, s := range files {
			for name, where := range changed(s, specs) {
				if full := dir + "." + name; mutable[full] == "" {
					t.Errorf("%s is changed: %s", full, fset.Position(where))
				}
			}
		}
	}
	for name := range mutable {
		if !found[name] {
			t.Errorf("%s is listed and does not exist", name)
		}
	}
}

type variable struct {
	decl  *ast.GenDecl
	spec  *ast.ValueSpec
	name  string
	value ast.Expr // nil for none
}

func packageVariables(files []source) map[string]variable {
	all := map[string]variable{}
	for _, s := range files {
		for _, d := range s.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, d := range decl.Specs {
				spec := d.(*ast.ValueSpec)
				for i, name := range spec.Names {
					v := variable{decl: decl, spec: spec, name: name.Name}
					if i < len(spec.Values) {
						v.value = spec.Values[i]
					}
					if name.Name != "_" {
						all[name.Name] = v
					}
				}
			}
		}
	}
	return all
}

func (v variable) immutable() bool {
	switch value := v.value.(type) {
	case nil:
		return v.embedded()
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		literal, ok := value.X.(*ast.CompositeLit)
		return ok && (strings.HasPrefix(strings.ToLower(v.name), "err") || types.ExprString(literal.Type) == "Refusal")
	case *ast.CallExpr:
		if _, literal := value.Fun.(*ast.FuncLit); literal {
			return true
		}
		return slices.Contains(constructors, types.ExprString(value.Fun))
	}
	return false
}

func (v variable) embedded() bool {
	for _, doc := range []*ast.CommentGroup{v.decl.Doc, v.spec.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	return false
}

// changed finds the package variables that a file changes, or of which it takes
// the address.
func changed(s source, specs map[string]variable) map[string]token.Pos {
	all := map[string]token.Pos{}
	note := func(e ast.Expr) {
		name := root(e)
		if name == nil {
			return
		}
		v, known := specs[name.Name]
		// What the parser resolved to something else is a local of that name.
		if known && (name.Obj == nil || name.Obj.Decl == v.spec) {
			all[name.Name] = name.Pos()
		}
	}
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					note(e)
				}
			}
		case *ast.IncDecStmt:
			note(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (f.Name == "delete" || f.Name == "clear" || f.Name == "copy") {
				note(n.Args[0])
			}
		}
		return true
	})
	return all
}

// root is the variable that an expression is a part of, nil for none.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}
