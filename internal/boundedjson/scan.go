package boundedjson

import (
	"encoding/json"
	"strconv"
)

// The functions of this file walk over text that is valid JSON, so that every
// value is complete.

// repeatsName reports whether an object has two members with one name, at any
// depth.
func repeatsName(text []byte) bool {
	var open []map[string]struct{} // the names of each object around; nil for an array
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '{', '[':
			open = append(open, nil)
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			end := skipString(text, at)
			if next := skipSpace(text, end); next < len(text) && text[next] == ':' {
				name, names := decode(text[at:end]), &open[len(open)-1]
				if _, twice := (*names)[name]; twice {
					return true
				}
				if *names == nil {
					*names = make(map[string]struct{})
				}
				(*names)[name] = struct{}{}
			}
			at = end - 1
		}
	}
	return false
}

// decode reads a string without lone surrogates.
func decode(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s) // the text is valid
	return s
}

// hasLoneSurrogate reports whether an escape is half of a surrogate pair.
func hasLoneSurrogate(text []byte) bool {
	for at := 0; at < len(text); at++ {
		if text[at] != '\\' { // which occurs in strings only
			continue
		}
		if at++; text[at] != 'u' {
			continue
		}
		first := codeUnit(text[at:])
		at += 4
		switch {
		case first < 0xd800 || first > 0xdfff:
			continue
		case first >= 0xdc00 || text[at+1] != '\\' || text[at+2] != 'u':
			return true
		}
		if second := codeUnit(text[at+2:]); second < 0xdc00 || second > 0xdfff {
			return true
		}
		at += 6
	}
	return false
}

// codeUnit reads the u of an escape and its four digits.
func codeUnit(escape []byte) uint64 {
	n, _ := strconv.ParseUint(string(escape[1:5]), 16, 16) // the text is valid
	return n
}

// skipString returns the end of the string that begins at start.
func skipString(text []byte, start int) int {
	at := start + 1
	for ; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// skipValue returns the end of the member's value that begins at start.
func skipValue(text []byte, start int) int {
	depth := 0
	for at := start; ; at++ {
		switch text[at] {
		case '"':
			at = skipString(text, at) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at
			}
			depth--
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return at
			}
		}
	}
}

func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}
