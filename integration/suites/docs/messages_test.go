package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Each message of the proxy's own answers stands in the table of diagnose.md.
func TestMessagesAreDiagnosed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "diagnose.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := toldMessages(string(text))
	messages := answeredMessages(t)
	if len(messages) < 45 || len(told) < 45 {
		t.Errorf("%d messages in the code, %d on the page", len(messages), len(told))
	}
	for _, m := range messages {
		if !tells(told, m) {
			t.Errorf("docs/diagnose.md does not have %q", m)
		}
	}
	for _, absent := range []string{"the token is green", "the path has a dot", ""} {
		if tells(told, absent) {
			t.Errorf("a page that lacks %q passes", absent)
		}
	}
}

// shortened is what stands on the page for what it leaves out.
var shortened = regexp.MustCompile(` ?…|<[a-z]+>`)

// toldMessages are the code spans in the first column of the rows that begin
// with a status code, each as the parts that are not left out.
func toldMessages(page string) (told [][]string) {
	row := regexp.MustCompile(`(?m)^\| ([45]\d\d[^|]*)\|`)
	span := regexp.MustCompile("`([^`]+)`")
	for _, r := range row.FindAllStringSubmatch(page, -1) {
		for _, s := range span.FindAllStringSubmatch(r[1], -1) {
			told = append(told, shortened.Split(s[1], -1))
		}
	}
	return told
}

// tells reports whether one of the messages on a page is this one: what it
// does not leave out is there, in order, and from end to end where it leaves
// nothing out.
func tells(told [][]string, message string) bool {
	for _, parts := range told {
		rest, found := strings.CutPrefix(message, parts[0])
		for _, part := range parts[1:] {
			var ok bool
			_, rest, ok = strings.Cut(rest, part)
			found = found && ok
		}
		if last := parts[len(parts)-1]; found && (rest == "" || last == "") {
			return true
		}
	}
	return false
}

// answeredMessages are the messages of the proxy's answers, as their formats.
func answeredMessages(t *testing.T) (messages []string) {
	t.Helper()
	add := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil && s != "%s" {
				messages = append(messages, s)
			}
		}
	}
	// The calls that make an answer, and where their message stands.
	answers := map[string]int{"refuse": 3, "unavailable": 1, "badGateway": 1, "forbidden": 1}
	for _, folder := range []string{".", "authn"} {
		files, err := filepath.Glob(filepath.Join(repository(t), "caddymodule", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && answers[f.Name] > 0 && len(n.Args) > answers[f.Name] {
						add(n.Args[answers[f.Name]])
					}
				case *ast.ValueSpec:
					if n.Names[0].Name == "reasonTexts" {
						for _, e := range n.Values[0].(*ast.CompositeLit).Elts {
							add(e.(*ast.KeyValueExpr).Value)
						}
					}
				}
				return true
			})
		}
	}
	return messages
}
