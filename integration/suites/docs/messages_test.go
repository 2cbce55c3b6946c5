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

// answerCalls are the functions that make an answer, and which argument is its
// message.
var answerCalls = map[string]int{"refuse": 3, "unavailable": 1, "badGateway": 1, "notServed": 1, "badAnswer": 0}

// answeredMessages are the messages of the proxy's answers, as their formats.
func answeredMessages(t *testing.T) (messages []string) {
	t.Helper()
	add := func(e ast.Expr) {
		if format := formatOf(e); strings.ReplaceAll(format, "%s", "") != "" {
			messages = append(messages, format)
		}
	}
	for _, folder := range []string{"request", "authn", "upstream"} {
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
					if f, ok := n.Fun.(*ast.Ident); ok {
						if at, answers := answerCalls[f.Name]; answers && len(n.Args) > at {
							add(n.Args[at])
						}
					}
				case *ast.CompositeLit:
					if isIdent(n.Type, "Unauthenticated") { // what package authn refuses a token for
						if reason, ok := n.Elts[0].(*ast.KeyValueExpr); ok {
							add(reason.Value)
						}
					}
					for _, e := range n.Elts {
						if field, ok := e.(*ast.KeyValueExpr); ok && isAnswer(n.Type) && isIdent(field.Key, "Message") {
							add(field.Value)
						}
					}
				}
				return true
			})
		}
	}
	return messages
}

// isAnswer reports whether a type has the message of an answer.
func isAnswer(e ast.Expr) bool { return isIdent(e, "Refusal") || isIdent(e, "Failure") }

func isIdent(e ast.Expr, name string) bool {
	identifier, ok := e.(*ast.Ident)
	return ok && identifier.Name == name
}

// formatOf is the text of a string expression, with %s for each part that is not
// a literal.
func formatOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return formatOf(e.X) + formatOf(e.Y)
	}
	return "%s"
}
