package k8swatch

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTextsAreSafeToShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		s = strings.Repeat(s, rapid.IntRange(1, 30).Draw(t, "times"))
		limit := rapid.IntRange(10, 400).Draw(t, "limit")
		got := bounded(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("bounded: %q", got)
		}
		if q := quoted(s); !utf8.ValidString(q) || strings.ContainsFunc(q, unicode.IsControl) || !strings.HasPrefix(q, `"`) || len(q) > 12*maxQuoted {
			t.Fatalf("quoted: %q", q)
		}
	})
}

func TestBounded(t *testing.T) {
	tests := map[string]struct {
		text  string
		limit int
		want  string
	}{
		"short":         {"abc", 10, "abc"},
		"just fits":     {"abcdefghij", 10, "abcdefghij"},
		"cut":           {"abcdefghijk", 10, "abcdefg..."},
		"cut in a rune": {"abcdefé ijk", 10, "abcdef..."},
		"lines":         {"a\r\nb\u2028c", 10, "a  b c"},
		"invalid UTF-8": {"a\xffb", 10, "a\uFFFDb"},
		"control, C1":   {"a\u0085b", 10, "a b"},
		"beyond ASCII":  {"élodie", 10, "élodie"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := bounded(test.text, test.limit); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
