package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/proxyauthk8s/caddy-proxyauthk8s/"
	top    = "../.."
)

// source is a Go file of the root module.
type source struct {
	path string // from the top of the repository, with slashes
	*ast.File
}

// dir is the folder of the file, which is also the name of its package within
// the module.
func (s source) dir() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// imports are the import paths of a file.
func (s source) imports() []string {
	var all []string
	for _, spec := range s.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			all = append(all, name)
		}
	}
	return all
}

// tree is all Go code of the repository.
type tree struct {
	// lines are the lengths of all Go files, those of other modules included.
	lines map[string]int
	// skipping are the files that skip tests, of other modules as well.
	skipping []string
	sources  []source
	fset     *token.FileSet
}

// skips is a call that skips a test.
var skips = regexp.MustCompile(`[.]Skip(f|Now)?[(]`)

// readTree reads the repository once for all tests.
var readTree = sync.OnceValues(func() (tree, error) {
	all := tree{lines: map[string]int{}, fset: token.NewFileSet()}
	var modules []string // folders with a go.mod of their own
	err := fs.WalkDir(os.DirFS(top), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || name == "bin") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(top, name, "go.mod")); err == nil && name != "." {
				modules = append(modules, name)
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			return err
		}
		all.lines[name] = strings.Count(string(text), "\n")
		if skips.Match(text) {
			all.skipping = append(all.skipping, name)
		}
		for _, other := range modules {
			if within(name, other) {
				return nil
			}
		}
		file, err := parser.ParseFile(all.fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		all.sources = append(all.sources, source{name, file})
		return nil
	})
	return all, err
})

func theTree(t *testing.T) tree {
	t.Helper()
	all, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
