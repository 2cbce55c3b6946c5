package claims

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// What an identity may amount to in memory. An apiserver is told no more than 64
// groups and 8 KiB (ID-2); in Passthrough required_group looks at all groups.
const (
	MaxIdentityBytes  = 64 << 10
	MaxIdentityValues = 1024
)

// allowance is what is left of these bounds while an identity is made.
type allowance struct {
	bytes, values int
	// exceeded says that a value was left out.
	exceeded bool
}

func newAllowance() *allowance {
	return &allowance{bytes: MaxIdentityBytes, values: MaxIdentityValues}
}

// take counts a value, and reports whether it is within the bounds.
func (a *allowance) take(s string) bool {
	a.bytes -= len(s)
	a.values--
	a.exceeded = a.exceeded || a.bytes < 0 || a.values < 0
	return !a.exceeded
}

// takeAll is take for the values of a list.
func (a *allowance) takeAll(list []string) bool {
	for _, s := range list {
		if !a.take(s) {
			return false
		}
	}
	return true
}

// Plain is the identity of a name and groups that an apiserver told (AUTH-8).
func Plain(name string, groups []string) *identity.Identity {
	a := newAllowance()
	if !a.take(name) || !a.takeAll(groups) {
		// A part of an identity is another identity (ID-2).
		return &identity.Identity{TooLarge: true}
	}
	return &identity.Identity{Name: name, Groups: distinct(slices.Clone(groups)), EmptyName: isBlank(name)}
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

// detach copies the strings of an identity, so that an identity which is cached
// for minutes does not keep a whole token in memory through a substring. It is
// also the last look at what expressions returned: text that is not UTF-8 is not
// a name.
func detach(id *identity.Identity) (*identity.Identity, error) {
	ok := true
	keep := func(s string) string {
		ok = ok && utf8.ValidString(s)
		return strings.Clone(s)
	}
	id.Name, id.UID = keep(id.Name), keep(id.UID)
	for i, group := range id.Groups {
		id.Groups[i] = keep(group)
	}
	for _, values := range id.Extra {
		for i, value := range values {
			values[i] = keep(value)
		}
	}
	if !ok {
		return nil, ErrClaim
	}
	return id, nil
}

func isBlank(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsSpace(r) }) < 0
}
