package authn

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// claims are the members of a JSON object, each as the provider wrote it.
type claims map[string]json.RawMessage

// What is wrong with a payload.
var (
	errNoObject = errors.New("the claims are not a JSON object")
	errMembers  = errors.New("the claims have too many members")
	errPayload  = errors.New("the claims are not well-formed text, or have a name twice")
)

// parseClaims reads a claims object (AUTH-10). It looks at the bytes before
// encoding/json does, because that decoder repairs: it puts U+FFFD where the
// text is not valid UTF-8 and where an escape is half a surrogate pair, and
// of two members with one name it takes the last. kube-apiserver accepts all
// of that. Here such a payload is refused: two spellings must not become one
// name, and nobody but the provider decides which of two values counts.
//
// How many members there may be is looked at before room is made for any: a map
// takes forty times the bytes of what it is read from (AUTH-13).
func parseClaims(payload []byte) (claims, error) {
	switch {
	case !json.Valid(payload) || !bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")):
		return nil, errNoObject
	case idp.Measure(payload).TooManyMembers():
		return nil, errMembers
	case !utf8.Valid(payload):
		return nil, errPayload
	}
	s := scanner{data: payload}
	if !s.value() {
		return nil, errPayload
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, errPayload
	}
	return c, nil
}

// peekClaims reads iss, aud, azp, exp and nbf of a payload whose signature is not
// verified yet, and nothing more: to look at all of a payload that anybody
// may have written costs a hundred times as much. A name that is spelled with
// escapes is passed over. Whoever uses the claims holds them against what
// parseClaims reads after the verification.
func peekClaims(payload []byte) (claims, error) {
	c := make(claims, 5)
	err := eachMember(payload, func(quoted, value []byte) bool {
		switch name := quoted[1 : len(quoted)-1]; string(name) {
		case "iss", "aud", "azp", "exp", "nbf":
			if _, twice := c[string(name)]; twice {
				return false
			}
			c[string(name)] = value
		}
		return true
	})
	return c, err
}

// eachMember visits the members of a JSON object, each with its name in
// quotes as it is written. It is an error when visit returns false.
func eachMember(object []byte, visit func(quoted, value []byte) bool) error {
	if !json.Valid(object) {
		return errPayload
	}
	s := scanner{data: object}
	if s.space(); s.data[s.pos] != '{' {
		return errPayload
	}
	s.pos++
	for {
		if s.space(); s.data[s.pos] == '}' {
			return nil
		}
		start := s.pos
		s.skip()
		quoted := s.data[start:s.pos]
		s.space()
		s.pos++ // the colon
		s.space()
		start = s.pos
		s.skip()
		if !visit(quoted, s.data[start:s.pos]) {
			return errPayload
		}
		s.comma()
	}
}

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
