package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Whatever the text is, what comes out is one line within its limit.
func TestTextsAreSafeToShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		s = strings.Repeat(s, rapid.IntRange(1, 30).Draw(t, "times"))
		limit := rapid.IntRange(10, 400).Draw(t, "limit")
		if got := OneLine(s, limit); len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("OneLine: %q", got)
		}
		if got := Escape(s, limit); utf8.RuneCountInString(got) > limit || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("Escape: %q", got)
		}
		if got := Quote(s, limit); !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || !strings.HasPrefix(got, `"`) || len(got) > 12*limit {
			t.Fatalf("Quote: %q", got)
		}
		if got := Mask(s); strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("Mask: %q", got)
		}
		if got := Cut(s, limit); utf8.RuneCountInString(got) > limit {
			t.Fatalf("Cut: %q", got)
		}
	})
}

func TestTexts(t *testing.T) {
	oneLine := func(s string) string { return OneLine(s, 10) }
	escape := func(s string) string { return Escape(s, 10) }
	quote := func(s string) string { return Quote(s, 3) }
	cut := func(s string) string { return Cut(s, 10) }
	for name, tt := range map[string]struct {
		of         func(string) string
		give, want string
	}{
		"OneLine, short":           {oneLine, "abc", "abc"},
		"OneLine, just fits":       {oneLine, "abcdefghij", "abcdefghij"},
		"OneLine, cut":             {oneLine, "abcdefghijk", "abcdefg..."},
		"OneLine, cut in a rune":   {oneLine, "abcdefé ijk", "abcdef..."},
		"OneLine, lines":           {oneLine, "a\r\nb\u2028c", "a  b c"},
		"OneLine, invalid UTF-8":   {oneLine, "a\xffb", "a\uFFFDb"},
		"OneLine, C1":              {oneLine, "a\u0085b", "a b"},
		"OneLine, beyond ASCII":    {oneLine, "élodie", "élodie"},
		"Quote, whole":             {quote, "a\nb", `"a\nb"`},
		"Quote, cut":               {quote, "abcd", `"abc"...`},
		"Escape, lines":            {escape, "a\nb\u200bc", `a\nb\u2...`},
		"Escape, just fits":        {escape, "éééééééééé", "éééééééééé"},
		"Escape, cut":              {escape, "ééééééééééé", "ééééééé..."},
		"Escape, invalid UTF-8":    {escape, "a\xffb", "a\uFFFDb"},
		"Escape, control":          {escape, "a\x7f", `a\x7f`},
		"Escape, quote":            {escape, "it's", "it's"},
		"Cut, just fits":           {cut, "éééééééééé", "éééééééééé"},
		"Cut, too long":            {cut, "ééééééééééé", "ééééééé..."},
		"Mask, escape sequences":   {Mask, "\x1b[31mred\u009b0m\x7f", "?[31mred?0m?"},
		"Mask, nothing to replace": {Mask, "élodie\u200b", "élodie\u200b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.of(tt.give); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
