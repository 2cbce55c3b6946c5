package claims

import (
	"context"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

const (
	// maxRemembered bounds what lookups remembers, in bytes.
	maxRemembered      = 256 << 10
	rememberedOverhead = 64 // of a key, beside its bytes
)

// lookups are those of one evaluation in its maps. An expression may look up a key of
// 32 KiB 80,000 times before cel-go looks at the context, at next to no cost: so a key is
// unescaped once, and a lookup fails when the context has ended (AUTH-17). It is not safe
// for use by several goroutines.
type lookups struct {
	ctx        context.Context // of the evaluation, which calls Find without one
	remembered map[string]unescaped
	left       int
}

type unescaped struct {
	plain string
	ok    bool
}

func newLookups(ctx context.Context) *lookups {
	return &lookups{ctx: ctx, remembered: map[string]unescaped{}, left: maxRemembered}
}

// unescape is cel.Unescape, which takes a millisecond for a key of 32 KiB.
func (l *lookups) unescape(key string) (plain string, ok bool) {
	if u, seen := l.remembered[key]; seen {
		return u.plain, u.ok
	}
	plain, ok = cel.Unescape(key)
	if size := len(key) + len(plain) + rememberedOverhead; size <= l.left {
		l.left -= size
		l.remembered[key] = unescaped{plain, ok}
	}
	return plain, ok
}

// ended is the error of a lookup after the end of the evaluation, or nil.
func (l *lookups) ended() ref.Val {
	if err := l.ctx.Err(); err != nil {
		return types.WrapErr(err)
	}
	return nil
}

func (l *lookups) celValue(value any) ref.Val {
	return l.unescaping(types.DefaultTypeAdapter.NativeToValue(value))
}

// unescaping makes the escaped names work at every depth.
func (l *lookups) unescaping(value ref.Val) ref.Val {
	switch v := value.(type) {
	case traits.Mapper:
		return unescapingMap{v, l}
	case traits.Lister:
		return unescapingList{v, l}
	}
	return value
}

type unescapingMap struct {
	traits.Mapper
	keys *lookups
}

func (m unescapingMap) Find(key ref.Val) (ref.Val, bool) {
	if err := m.keys.ended(); err != nil {
		return err, true
	}
	if name, ok := key.(types.String); ok {
		if plain, ok := m.keys.unescape(string(name)); ok {
			key = types.String(plain)
		}
	}
	value, ok := m.Mapper.Find(key)
	return m.keys.unescaping(value), ok
}

type unescapingList struct {
	traits.Lister
	keys *lookups
}

func (l unescapingList) Get(index ref.Val) ref.Val {
	return l.keys.unescaping(l.Lister.Get(index))
}

// lazyMap is a lazy.MapValue, whose values are made when they are first read, with the
// lookups of its evaluation.
type lazyMap struct {
	*lazy.MapValue
	keys  *lookups
	names []string
	read  map[string]ref.Val
	value map[string]func() any
}

func newLazyMap(ctx context.Context, typeName string) *lazyMap {
	return &lazyMap{
		MapValue: lazy.NewMapValue(types.NewObjectType(typeName)), keys: newLookups(ctx),
		read: map[string]ref.Val{}, value: map[string]func() any{},
	}
}

func (m *lazyMap) add(name string, value func() any) {
	m.Append(name, nil) // counted there, read here
	m.names = append(m.names, name)
	m.value[name] = value
}

func (m *lazyMap) Find(key ref.Val) (ref.Val, bool) {
	if err := m.keys.ended(); err != nil {
		return err, true
	}
	name, ok := key.(types.String)
	if !ok {
		return m.MapValue.Find(key)
	}
	plain, ok := m.keys.unescape(string(name))
	if !ok {
		return nil, false
	}
	if value, ok := m.read[plain]; ok {
		return value, true
	}
	decode, ok := m.value[plain]
	if !ok {
		return nil, false
	}
	value := m.keys.celValue(decode())
	m.read[plain] = value
	return value, true
}

func (m *lazyMap) Get(key ref.Val) ref.Val {
	if value, found := m.Find(key); found {
		return value
	}
	return types.NewErr("no such key")
}

func (m *lazyMap) Contains(key ref.Val) ref.Val {
	value, found := m.Find(key)
	if types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(found)
}

// Equal says whether the other is the same map, as lazy.MapValue does.
func (m *lazyMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*lazyMap); ok {
		return types.Bool(m == o)
	}
	return types.MaybeNoSuchOverloadErr(other)
}

// Iterator goes over the values, as that of lazy.MapValue does.
func (m *lazyMap) Iterator() traits.Iterator {
	return &lazyIterator{Iterator: m.MapValue.Iterator(), of: m}
}

type lazyIterator struct {
	traits.Iterator
	of   *lazyMap
	next int
}

func (i *lazyIterator) HasNext() ref.Val { return types.Bool(i.next < len(i.of.names)) }

func (i *lazyIterator) Next() ref.Val {
	name := i.of.names[i.next]
	i.next++
	return i.of.Get(types.String(name))
}
