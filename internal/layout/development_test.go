package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goFolders are the folders of the repository that hold Go code, in all of its
// modules.
func goFolders(t *testing.T) []string {
	t.Helper()
	folders := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != top && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			folder, err := filepath.Rel(top, filepath.Dir(path))
			folders[filepath.ToSlash(folder)] = true
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(folders))
}

// folderRow is a row of a table of folders: the folder and a sentence about it.
var folderRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_./-]+)` \\| *(.*?) *\\|$")

// describedFolders are the folders that the tables below a heading describe.
func describedFolders(text, heading string) (folders []string, problems []string) {
	_, section, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		return nil, []string{"there is no section " + heading}
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range folderRow.FindAllStringSubmatch(section, -1) {
		folder := strings.TrimSuffix(row[1], "/")
		folders = append(folders, folder)
		if len(strings.Fields(row[2])) < 3 {
			problems = append(problems, folder+" has no sentence")
		}
	}
	slices.Sort(folders)
	return folders, problems
}

// The tables of docs/development.md have each folder with Go code, once, with a
// sentence, and no folder that does not exist.
func TestDevelopmentNamesEveryPackage(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/development.md")
	rooms, problems := describedFolders(text, "Rooms")
	tests, more := describedFolders(text, "Tests")
	for _, problem := range append(problems, more...) {
		t.Error(problem)
	}
	described, folders := append(rooms, tests...), goFolders(t)
	for _, folder := range folders {
		if n := len(described) - len(slices.DeleteFunc(slices.Clone(described), func(s string) bool { return s == folder })); n != 1 {
			t.Errorf("docs/development.md describes %s %d times, not once", folder, n)
		}
	}
	for _, folder := range described {
		if !slices.Contains(folders, folder) {
			t.Errorf("docs/development.md describes %s, which has no Go code", folder)
		}
	}
}

func TestDescribedFolders(t *testing.T) {
	t.Parallel()
	folders, problems := describedFolders("# x\n\n## Rooms\n\n| `b/c` | does this and that |\n| `a/` | |\n\n## Next\n\n| `d` | is elsewhere, not here |\n", "Rooms")
	if diff := cmp.Diff([]string{"a", "b/c"}, folders); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a has no sentence"}, problems); diff != "" {
		t.Error(diff)
	}
	if _, problems := describedFolders("# x\n", "Rooms"); len(problems) != 1 {
		t.Errorf("%q", problems)
	}
}

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeCall   = regexp.MustCompile("(?:^|[\n`(])make ([a-z][a-z-]*)")
)

// The pages name only targets that the Makefile has, and the development page
// has all of those that the Makefile explains.
func TestPagesNameMakeTargets(t *testing.T) {
	t.Parallel()
	makefile := page(t, "Makefile")
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		targets[m[1]] = true
	}
	named := map[string]bool{}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "docs/development.md", "docs/upgrades.md", "docs/install-host.md"} {
		for _, m := range makeCall.FindAllStringSubmatch(page(t, name), -1) {
			if !targets[m[1]] {
				t.Errorf("%s names make %s, which the Makefile does not have", name, m[1])
			}
			if name == "docs/development.md" {
				named[m[1]] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):.* ## `).FindAllStringSubmatch(makefile, -1) {
		if !named[m[1]] {
			t.Errorf("docs/development.md does not name make %s", m[1])
		}
	}
}

// codeLink is a link from a name of the code to the file that declares it.
var codeLink = regexp.MustCompile("\\[`([A-Za-z_.]+)`\\]\\(\\.\\./([^)#]+\\.go)\\)")

// The functions, methods and types that docs/development.md links are in the
// files that it names, and a walk has ten steps at most.
func TestDevelopmentNamesExistingCode(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/development.md")
	links := codeLink.FindAllStringSubmatch(text, -1)
	for _, link := range links {
		if err := declares(filepath.Join(top, filepath.FromSlash(link[2])), link[1]); err != nil {
			t.Error(err)
		}
	}
	if len(links) < 15 {
		t.Errorf("%d links to code", len(links))
	}
	walks := 0
	for _, section := range strings.Split(text, "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(title, "A ") && !strings.HasPrefix(title, "An ") {
			continue
		}
		body, _, _ = strings.Cut(body, "\n## ")
		walks++
		if steps := len(regexp.MustCompile(`(?m)^\d+\. `).FindAllString(body, -1)); steps == 0 || steps > 10 {
			t.Errorf("%s: %d steps", title, steps)
		}
	}
	if walks == 0 {
		t.Error("docs/development.md has no walk")
	}
}

func TestDeclares(t *testing.T) {
	t.Parallel()
	const self = "development_test.go"
	for name, want := range map[string]bool{"declares": true, "TestDeclares": true, "page": true, "nowhere": false, "T.page": false} {
		if err := declares(self, name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if declares("absent.go", "page") == nil {
		t.Error("a file that is not there declares a function")
	}
}

// declares returns an error unless a file declares a function, a type or, named
// as Type.Method, a method.
func declares(path, name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("reading the file that declares %s: %w", name, err)
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if functionName(d) == name {
				return nil
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.Name == name {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("%s does not declare %s", path, name)
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	receiver := d.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.Ident:
			return r.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// The pages name the versions that go.mod pins.
func TestPagesNamePinnedVersions(t *testing.T) {
	t.Parallel()
	mod := page(t, "go.mod")
	pinned := func(module string) string {
		m := regexp.MustCompile(`(?m)^\s` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(mod)
		if m == nil {
			t.Fatalf("go.mod does not have %s", module)
		}
		return m[1]
	}
	caddy := pinned("github.com/caddyserver/caddy/v2")
	for name, want := range map[string]string{
		"README.md":        "xcaddy build " + caddy + " ",
		"docs/upgrades.md": "Caddy " + caddy + ", client-go and apiserver " + pinned("k8s.io/client-go") + ",",
	} {
		if !strings.Contains(page(t, name), want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
}
