package k8swatch

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxQuoted bounds what a message repeats of a text somebody else wrote.
	maxQuoted = 256
	// maxMessage bounds the message of a condition, in bytes: every
	// condition of an object is written and read together.
	maxMessage = 4096
)

// quoted makes a text that somebody else wrote safe to stand in a message: in
// quotes, on one line, printable, at most maxQuoted characters of it.
func quoted(s string) string {
	if utf8.RuneCountInString(s) > maxQuoted {
		return strconv.Quote(string([]rune(s)[:maxQuoted])) + "..."
	}
	return strconv.Quote(s)
}

// bounded puts a message on one line of at most limit bytes and cuts between
// characters.
func bounded(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	const mark = "..."
	if len(s) <= limit {
		return s
	}
	cut := limit - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
