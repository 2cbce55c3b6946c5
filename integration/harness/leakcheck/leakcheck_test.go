package leakcheck

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// errorLog is a test that keeps its errors.
type errorLog struct {
	testing.TB
	errors []string
}

func (l *errorLog) Helper() {}
func (l *errorLog) Errorf(format string, args ...any) {
	l.errors = append(l.errors, fmt.Sprintf(format, args...))
}

func TestAbsent(t *testing.T) {
	const first, second = "0123456789abcdefghij", "ABCDEFGHIJKLMNOPQRST"
	p := Pieces{}.Add("the first", first)
	p.AddBearer("the second", second)
	entry := base64.RawURLEncoding.EncodeToString([]byte(second))
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"nothing of them", nil},
		{first[:15] + " " + first[5:], nil},
		{"x" + first[2:18] + "y", []string{`log: a piece of the first: "23456789abcdefgh" in "x23456789abcdefghy"`}},
		{first[4:] + second[:16], []string{
			`log: a piece of the first: "456789abcdefghij" in "456789abcdefghijABCDEFGHIJKLMNOP"`,
			`log: a piece of the second: "ABCDEFGHIJKLMNOP" in "456789abcdefghijABCDEFGHIJKLMNOP"`,
		}},
		{entry[3:19], []string{fmt.Sprintf("log: a piece of the second, as a subprotocol: %q in %[1]q", entry[3:19])}},
	} {
		log := &errorLog{TB: t}
		p.Absent(log, "log", c.text)
		if d := cmp.Diff(c.want, log.errors); d != "" {
			t.Errorf("%q: %s", c.text, d)
		}
		if got := p.Has(c.text); got != (c.want != nil) {
			t.Errorf("%q: Has is %t", c.text, got)
		}
	}
}
