package differential

import (
	"os"
	"strings"
	"testing"
)

// elsewhere are the differences that no bearer of the table shows, and the test
// that does.
var elsewhere = map[string]string{
	"expired, but asked before": "integration/suites/identity/differential/expiry_test.go: func (w *world) expiry(",
	"unknown kid":               "integration/suites/identity/differential/provider_test.go: func (w *world) keyFetches(",
	"bad signature, known kid":  "integration/suites/identity/differential/provider_test.go: func (w *world) keyFetches(",
	"provider unreachable":      "integration/suites/identity/differential/provider_test.go: func (w *world) providerAway(",
	"withdrawn key":             "caddymodule/authn/keys/set_test.go: func TestRotation(",
	"x5c, padding of a JWK":     "caddymodule/authn/keys/jwk_test.go: func TestOddMembersCostNoKey(",
	"pattern of matches, find":  "k8swatch/safecel/safecel_test.go: func TestInspectRefuses(",
	"size of an expression":     "k8swatch/compile/cel_test.go: func TestDearExpressionsAreRefused(",
	"environment proxies":       "caddymodule/authn/keys/read_test.go: func TestConnectionFaults(",
}

// documented: the table of differences in caddymodule/authn/doc.go and the table
// here name the same ones.
func documented(t *testing.T, all []section) {
	subjects := map[string]bool{}
	for _, s := range documentedSubjects(t) {
		subjects[s] = true
	}
	shown := map[string]bool{}
	for _, s := range all {
		for _, r := range s.rows {
			if r.proxy == same || r.proxy.subject == forwarding {
				continue
			}
			if shown[r.proxy.subject] = true; !subjects[r.proxy.subject] {
				t.Errorf("%s: %s: doc.go has no difference %q", s.config, r.name, r.proxy.subject)
			}
		}
	}
	for subject, test := range elsewhere {
		if !subjects[subject] || shown[subject] {
			t.Errorf("%q is in the table, or not in doc.go", subject)
		}
		file, function, _ := strings.Cut(test, ": ")
		if text := read(t, file); !strings.Contains(text, function) {
			t.Errorf("%q: no %s in %s", subject, function, file)
		}
	}
	for subject := range subjects {
		if !shown[subject] && elsewhere[subject] == "" {
			t.Errorf("no bearer shows the documented difference %q", subject)
		}
	}
}

// documentedSubjects is the first column of the table in the package comment. A
// subject that is indented goes on with the one above; where its line has
// nothing else, it is that one.
func documentedSubjects(t *testing.T) []string {
	t.Helper()
	const prefix, columns = "//\t", 28
	_, body, found := strings.Cut(read(t, "caddymodule/authn/doc.go"), "//\tsubject ")
	if !found {
		t.Fatal("doc.go has no table")
	}
	var subjects []string
	above := ""
	for l := range strings.Lines(body) {
		l, ok := strings.CutPrefix(strings.TrimRight(l, "\n"), prefix)
		if !ok || strings.HasPrefix(l, "---") {
			continue
		}
		subject, rest := l, ""
		if len(l) > columns {
			subject, rest = l[:columns], l[columns:]
		}
		subject = strings.TrimRight(subject, " ")
		switch part, indented := strings.CutPrefix(subject, "  "); {
		case subject == "":
		case !indented:
			above = subject
			subjects = append(subjects, subject)
		case strings.TrimSpace(rest) == "":
			subjects[len(subjects)-1] += " " + part
		default:
			subjects = append(subjects, above+" "+part)
		}
	}
	return subjects
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("../../../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
