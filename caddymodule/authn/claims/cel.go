package claims

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

// celClaims is the variable `claims` of an expression, as kube-apiserver
// presents it: numbers are doubles, and names that are no CEL identifiers are
// reached escaped (claims.foo__dot__bar). It is made for one evaluation at a
// time and decodes a claim when an expression first reads it.
func celClaims(ctx context.Context, c Claims) *lazyMap {
	variable := newLazyMap(ctx, "kubernetes.claims")
	for _, name := range slices.Sorted(maps.Keys(c)) {
		raw := c[name]
		variable.add(name, func() any {
			var value any
			if err := json.Unmarshal(raw, &value); err != nil {
				return types.NewErr("claim cannot be decoded") // a number out of range
			}
			return value
		})
	}
	return variable
}

// watchedClaims is claims while a username is made of it. It notes whether
// email was read, in whatever way: by name, by index, through an alias, or by
// going through all claims (AUTH-11).
type watchedClaims struct {
	*lazyMap
	has       bool
	readEmail bool
}

func watch(variable *lazyMap) *watchedClaims {
	_, has := variable.value["email"]
	return &watchedClaims{lazyMap: variable, has: has}
}

func (w *watchedClaims) note(key ref.Val) {
	if name, ok := key.(types.String); ok {
		plain, ok := w.keys.unescape(string(name))
		w.readEmail = w.readEmail || w.has && ok && plain == "email"
	}
}

func (w *watchedClaims) Find(key ref.Val) (ref.Val, bool) {
	w.note(key)
	return w.lazyMap.Find(key)
}

func (w *watchedClaims) Get(key ref.Val) ref.Val {
	w.note(key)
	return w.lazyMap.Get(key)
}

func (w *watchedClaims) Contains(key ref.Val) ref.Val {
	w.note(key)
	return w.lazyMap.Contains(key)
}

func (w *watchedClaims) Iterator() traits.Iterator {
	w.readEmail = w.readEmail || w.has
	return w.lazyMap.Iterator()
}

// Unwatched is the map below, for what an expression costs (safecel.Watched).
func (w *watchedClaims) Unwatched() traits.Mapper { return w.lazyMap }

// Equal compares what is watched: the map below knows only itself.
func (w *watchedClaims) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*watchedClaims); ok {
		other = o.lazyMap
	}
	return w.lazyMap.Equal(other)
}

var _ safecel.Watched = (*watchedClaims)(nil)

// celUser is the variable `user` of a user validation rule.
func celUser(ctx context.Context, id *identity.Identity) traits.Mapper {
	variable := newLazyMap(ctx, "kubernetes.UserInfo")
	for _, field := range []struct {
		name  string
		value any
	}{
		{"username", id.Name},
		{"uid", id.UID},
		{"groups", id.Groups},
		{"extra", id.Extra},
	} {
		variable.add(field.name, func() any { return field.value })
	}
	return variable
}

var errShape = errors.New("an expression returned neither a string nor a list of strings")

// celTextOrList is Claims.textOrList for what an expression returned. As
// documented for kube-apiserver's structured authentication "", [] and null mean
// that there is nothing, and empty strings in a list are left out. It stops at
// the bounds of an identity: a list may name one long string a thousand times.
func celTextOrList(value ref.Val, a *allowance) ([]string, error) {
	switch v := value.(type) {
	case types.String:
		if v == "" || !a.take(string(v)) {
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
			if s == "" {
				continue
			}
			if !a.take(string(s)) {
				return nil, nil
			}
			list = append(list, string(s))
		}
		return list, nil
	}
	return nil, errShape
}
