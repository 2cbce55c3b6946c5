package authn

import (
	"encoding/json"
	"errors"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// The shapes a claim may have (AUTH-10). Every validator reads claims through
// these; none of them guesses inside a string or repairs a value.

// text is a claim that is a JSON string.
func (c claims) text(name string) (string, bool) {
	raw := c[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// isNull reports whether a claim is present and null.
func (c claims) isNull(name string) bool { return string(c[name]) == "null" }

// isTrue reports whether a claim is the JSON boolean true.
func (c claims) isTrue(name string) bool { return string(c[name]) == "true" }

// textOrList is a claim that is a string, an array of strings, null or
// absent. An array with anything but strings in it is refused, null included,
// of which encoding/json would make an empty string.
func (c claims) textOrList(name string) ([]string, bool) {
	raw := c[name]
	if len(raw) == 0 || string(raw) == "null" {
		return nil, true
	}
	if s, ok := c.text(name); ok {
		return []string{s}, true
	}
	if raw[0] != '[' {
		return nil, false
	}
	var values []*string
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, false
	}
	list := make([]string, len(values))
	for i, value := range values {
		if value == nil {
			return nil, false
		}
		list[i] = *value
	}
	return list, true
}

// What an identity may amount to in memory. An apiserver is told no more than
// 64 groups and 8 KiB (ID-2); in Passthrough the whole is asked for a group.
const (
	maxIdentityBytes  = 64 << 10
	maxIdentityValues = 1024
)

// room is what is left of that.
type room struct {
	bytes, values int
	// full says that something did not go in.
	full bool
}

func newRoom() *room { return &room{bytes: maxIdentityBytes, values: maxIdentityValues} }

// take makes room for a value, and reports whether there was any.
func (r *room) take(s string) bool {
	r.bytes -= len(s)
	r.values--
	r.full = r.full || r.bytes < 0 || r.values < 0
	return !r.full
}

// takeAll is take for the values of a list.
func (r *room) takeAll(list []string) bool {
	for _, s := range list {
		if !r.take(s) {
			return false
		}
	}
	return true
}

var errShape = errors.New("an expression returned neither a string nor a list of strings")

// celTextOrList is textOrList for what an expression returned. As documented
// for kube-apiserver's structured authentication "", [] and null mean that
// there is nothing, and empty strings in a list are left out. It stops when
// there is no room: a list may name one long string a thousand times.
func celTextOrList(value ref.Val, r *room) ([]string, error) {
	switch v := value.(type) {
	case types.String:
		if v == "" {
			return nil, nil
		}
		if !r.take(string(v)) {
			return nil, nil
		}
		return []string{string(v)}, nil
	case types.Null:
		return nil, nil
	case traits.Lister:
		size, ok := v.Size().(types.Int)
		if !ok {
			return nil, errShape
		}
		var list []string
		for i := range size {
			s, ok := v.Get(i).(types.String)
			if !ok {
				return nil, errShape
			}
			if s != "" {
				if !r.take(string(s)) {
					return nil, nil
				}
				list = append(list, string(s))
			}
		}
		return list, nil
	}
	return nil, errShape
}

// distinct drops exact duplicates and keeps the order.
func distinct(list []string) []string {
	if len(list) < 2 {
		return list
	}
	seen := make(map[string]struct{}, len(list))
	kept := list[:0]
	for _, s := range list {
		if _, ok := seen[s]; !ok {
			seen[s] = struct{}{}
			kept = append(kept, s)
		}
	}
	return kept
}
