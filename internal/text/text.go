package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark ends a text that was cut.
const mark = "..."

// OneLine puts a text on one line of at most limit bytes: valid UTF-8, each
// control character and line separator replaced by a space.
func OneLine(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}

// Quote puts a text in quotes, as Go writes it: on one line, printable. It
// quotes the first limit characters and marks a longer text after the quote.
func Quote(s string, limit int) string {
	if utf8.RuneCountInString(s) > limit {
		return strconv.Quote(string([]rune(s)[:limit])) + mark
	}
	return strconv.Quote(s)
}

// Escape writes what is not printable as Go does (\n, \u200b, \x00) and cuts
// the result to limit characters.
func Escape(s string, limit int) string {
	var out strings.Builder
	written := 0
	for _, r := range s {
		piece := string(r)
		if !unicode.IsPrint(r) {
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		out.WriteString(piece)
		if written += utf8.RuneCountInString(piece); written > limit {
			break
		}
	}
	return Cut(out.String(), limit)
}

// Cut returns a text of at most limit characters, of which the last three are
// dots when the text was longer.
func Cut(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-len(mark)]) + mark
}

// Mask replaces each control character of C0 and C1 by a question mark.
func Mask(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f {
			return '?'
		}
		return r
	}, s)
}
