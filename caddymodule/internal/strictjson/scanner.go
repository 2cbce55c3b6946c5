package strictjson

import (
	"encoding/json"
	"strconv"
)

// scanner walks over JSON that is known to be valid. Its methods report
// whether what they read is free of lone surrogates and of repeated names.
// Its recursion ends where json.Valid's does, at 10,000 levels.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) value() bool {
	s.space()
	switch s.data[s.pos] {
	case '{':
		return s.object()
	case '[':
		return s.array()
	case '"':
		_, ok := s.text()
		return ok
	}
	s.scalar()
	return true
}

// scalar passes over a number or literal.
func (s *scanner) scalar() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return
		}
		s.pos++
	}
}

// skip passes over a value without looking into it.
func (s *scanner) skip() {
	for depth := 0; ; {
		switch s.data[s.pos] {
		case '"':
			for s.pos++; s.data[s.pos] != '"'; s.pos++ {
				if s.data[s.pos] == '\\' {
					s.pos++
				}
			}
			s.pos++
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case ',', ':', ' ', '\t', '\r', '\n':
			s.pos++
		default:
			s.scalar()
		}
		if depth == 0 {
			return
		}
	}
}

func (s *scanner) object() bool {
	var seen map[string]struct{}
	s.pos++
	for {
		if s.space(); s.data[s.pos] == '}' {
			s.pos++
			return true
		}
		name, ok := s.text()
		if !ok {
			return false
		}
		if _, twice := seen[name]; twice {
			return false
		}
		if seen == nil {
			seen = make(map[string]struct{})
		}
		seen[name] = struct{}{}
		s.space()
		s.pos++ // the colon
		if !s.value() {
			return false
		}
		s.comma()
	}
}

func (s *scanner) array() bool {
	s.pos++
	for {
		if s.space(); s.data[s.pos] == ']' {
			s.pos++
			return true
		}
		if !s.value() {
			return false
		}
		s.comma()
	}
}

// text reads a string and returns it decoded.
func (s *scanner) text() (string, bool) {
	start := s.pos
	escaped := false
	for s.pos++; s.data[s.pos] != '"'; s.pos++ {
		if s.data[s.pos] != '\\' {
			continue
		}
		escaped = true
		if s.pos++; s.data[s.pos] == 'u' && !s.codePoint() {
			return "", false
		}
	}
	s.pos++
	if !escaped {
		return string(s.data[start+1 : s.pos-1]), true
	}
	var decoded string
	err := json.Unmarshal(s.data[start:s.pos], &decoded)
	return decoded, err == nil
}

// codePoint reads \uXXXX, or the two that make a surrogate pair, from the u of
// the first to its last digit. It refuses half a pair.
func (s *scanner) codePoint() bool {
	first := s.hex()
	switch {
	case first < 0xd800 || first > 0xdfff:
		return true
	case first >= 0xdc00, s.data[s.pos+1] != '\\', s.data[s.pos+2] != 'u':
		return false
	}
	s.pos += 2
	second := s.hex()
	return 0xdc00 <= second && second <= 0xdfff
}

// hex reads the four digits after a u and stays on the last.
func (s *scanner) hex() uint64 {
	n, _ := strconv.ParseUint(string(s.data[s.pos+1:s.pos+5]), 16, 32)
	s.pos += 4
	return n
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) comma() {
	if s.space(); s.data[s.pos] == ',' {
		s.pos++
	}
}
