package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// What is wrong with a text.
var (
	ErrNoObject       = errors.New("it is not a JSON object")
	ErrTooManyMembers = errors.New("it has too many members")
	ErrAmbiguous      = errors.New("it is not well-formed text, or has a name twice")
)

// Object reads a JSON object: its members, each as it is written. How many
// there may be is looked at before room is made for any (idp.Extent): a map
// takes forty times the bytes of what it is read from.
func Object(text []byte) (map[string]json.RawMessage, error) {
	switch {
	case !json.Valid(text) || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")):
		return nil, ErrNoObject
	case idp.Measure(text).TooManyMembers():
		return nil, ErrTooManyMembers
	case !utf8.Valid(text):
		return nil, ErrAmbiguous
	}
	s := scanner{data: text}
	if !s.value() {
		return nil, ErrAmbiguous
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, ErrAmbiguous
	}
	return members, nil
}

// EachMember visits the members of a JSON object, each with its name in quotes
// as it is written. It is an error when visit returns false. It looks into no
// value, and leaves the name twice to visit.
func EachMember(object []byte, visit func(quoted, value []byte) bool) error {
	if !json.Valid(object) {
		return ErrAmbiguous
	}
	s := scanner{data: object}
	if s.space(); s.data[s.pos] != '{' {
		return ErrAmbiguous
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
			return ErrAmbiguous
		}
		s.comma()
	}
}
