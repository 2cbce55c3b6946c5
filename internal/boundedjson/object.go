package boundedjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

// What is wrong with a text.
var (
	ErrNoObject       = errors.New("it is not a JSON object")
	ErrTooManyMembers = errors.New("it has too many members")
	ErrAmbiguous      = errors.New("it is not well-formed text, or has a name twice")
)

// Object reads a JSON object: its members, each value as it is written. It
// limits how many members there may be before it makes room for any (AUTH-13).
func Object(text []byte) (map[string]json.RawMessage, error) {
	switch {
	case !json.Valid(text) || !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")):
		return nil, ErrNoObject
	case Count(text).TooManyMembers():
		return nil, ErrTooManyMembers
	case !utf8.Valid(text) || hasLoneSurrogate(text) || repeatsName(text):
		return nil, ErrAmbiguous
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, ErrAmbiguous
	}
	return members, nil
}

// Number reads a JSON number, or a text that is written as one: providers have
// "3600" for 3600.
func Number(value []byte) (float64, bool) {
	if len(value) > 1 && value[0] == '"' {
		value = value[1 : len(value)-1]
	}
	if len(value) == 0 || value[0] != '-' && (value[0] < '0' || value[0] > '9') || !json.Valid(value) {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(value), 64)
	return n, err == nil || math.IsInf(n, 0)
}

// EachMember visits the members of a JSON object, each with its name in quotes
// as it is written. It does not look into values and does not mind a name that
// is there twice. The error is ErrAmbiguous for a text that is no object, and
// when visit returns false.
func EachMember(object []byte, visit func(quoted, value []byte) bool) error {
	if !json.Valid(object) {
		return ErrAmbiguous
	}
	at := skipSpace(object, 0)
	if object[at] != '{' {
		return ErrAmbiguous
	}
	for {
		if at = skipSpace(object, at+1); object[at] == '}' { // at+1 passes { or a comma
			return nil
		}
		end := skipString(object, at)
		quoted := object[at:end]
		at = skipSpace(object, skipSpace(object, end)+1) // the colon
		end = skipValue(object, at)
		if !visit(quoted, object[at:end]) {
			return ErrAmbiguous
		}
		if at = skipSpace(object, end); object[at] == '}' {
			return nil
		}
	}
}
