package authn

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkFairLRU compares the accounts of a fairLRU with what it holds.
func checkFairLRU[V any](t rapid.TB, l *fairLRU[V]) {
	t.Helper()
	entries, bytes := 0, 0
	for of, s := range l.shares {
		own := 0
		for element := s.entries.Front(); element != nil; element = element.Next() {
			entry := element.Value.(*fairEntry[V])
			if entry.key.scope != of || entry.share != s || l.entries[entry.key] != element {
				t.Fatalf("an entry is not where it belongs")
			}
			own += entry.size
			entries++
		}
		if own != s.bytes || s.entries.Len() == 0 || s.place.Value != s {
			t.Fatalf("a share of %d entries with %d bytes counts %d", s.entries.Len(), own, s.bytes)
		}
		bytes += own
	}
	switch {
	case entries != len(l.entries), bytes != l.bytes, l.order.Len() != len(l.shares):
		t.Fatalf("%d entries with %d bytes of %d scopes; counted %d, %d, %d", entries, bytes, len(l.shares), len(l.entries), l.bytes, l.order.Len())
	case entries > l.maxEntries, bytes > l.maxBytes:
		t.Fatalf("%d entries of %d, %d bytes of %d", entries, l.maxEntries, bytes, l.maxBytes)
	}
}

// held are the keys of a scope, the one used last first.
func held[V any](l *fairLRU[V], of scope) (keys []cacheKey) {
	if s := l.shares[of]; s != nil {
		for element := s.entries.Front(); element != nil; element = element.Next() {
			keys = append(keys, element.Value.(*fairEntry[V]).key)
		}
	}
	return keys
}

// AUTH-12: the bounds hold, a scope is an LRU of its own, and one that is within
// its part of the bounds loses nothing to another.
func TestFairLRUProperty(t *testing.T) {
	scopes := make([]scope, 5)
	for i := range scopes {
		scopes[i] = newScope("uid", fmt.Sprint(i))
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := newFairLRU[int](rapid.IntRange(1, 20).Draw(rt, "entries"), rapid.IntRange(0, 200).Draw(rt, "bytes"))
		now := time.Unix(1_900_000_000, 0)
		model := map[cacheKey]int{}
		for step := range rapid.IntRange(0, 120).Draw(rt, "steps") {
			key := cacheKey{scope: rapid.SampledFrom(scopes).Draw(rt, "scope"), token: digest(fmt.Sprint(rapid.IntRange(0, 25).Draw(rt, "token")))}
			before := map[scope][]cacheKey{}
			bytes := map[scope]int{}
			for of, s := range l.shares {
				before[of], bytes[of] = held(l, of), s.bytes
			}
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				l.drop(key.scope)
				delete(before, key.scope)
			case 1:
				l.remove(&key)
				before[key.scope] = slices.DeleteFunc(before[key.scope], func(k cacheKey) bool { return k == key })
			case 2, 3:
				if value, ok := l.get(&key); ok {
					if value != model[key] {
						rt.Fatalf("got %d, want %d", value, model[key])
					}
					before[key.scope] = slices.Insert(slices.DeleteFunc(before[key.scope], func(k cacheKey) bool { return k == key }), 0, key)
				}
			default:
				model[key] = step
				l.add(&key, step, rapid.IntRange(0, 60).Draw(rt, "size"), now, now.Add(time.Hour))
				n := len(before)
				if before[key.scope] == nil {
					n++
				}
				for of, keys := range before {
					within := len(keys) <= l.maxEntries/n && bytes[of] <= l.maxBytes/n
					if after := held(l, of); of != key.scope && !slices.Equal(after, keys) {
						if within {
							rt.Fatalf("a scope of %d bytes and %d entries lost some to another of %d", bytes[of], len(keys), n)
						}
						if len(after) > 0 && !slices.Equal(after, keys[:len(after)]) {
							rt.Fatal("it did not lose those that it used least recently")
						}
					}
				}
				checkFairLRU(rt, l)
				continue
			}
			for of, keys := range before {
				if !slices.Equal(held(l, of), keys) {
					rt.Fatal("what was not added to changed")
				}
			}
			checkFairLRU(rt, l)
		}
	})
}

// What a configuration left that is gone makes room first: nobody asks for it,
// and no other scope's entries ever would.
func TestFairLRUGivesUpTheEndedFirst(t *testing.T) {
	now := time.Now()
	l := newFairLRU[int](10, 0)
	gone, used := newScope("uid", "gone"), newScope("uid", "used")
	for i := range 3 {
		l.add(&cacheKey{scope: gone, token: digest(fmt.Sprint(i))}, i, 0, now, now.Add(time.Minute))
	}
	for i := range 7 {
		l.add(&cacheKey{scope: used, token: digest(fmt.Sprint(i))}, i, 0, now, now.Add(time.Hour))
	}
	now = now.Add(time.Minute)
	for i := range 3 {
		l.add(&cacheKey{scope: used, token: digest(fmt.Sprint("more", i))}, i, 0, now, now.Add(time.Hour))
	}
	if n := len(held(l, used)); n != 10 || len(l.shares) != 1 {
		t.Errorf("%d entries in use are left of 10, of %d scopes", n, len(l.shares))
	}
}

// Of scopes that hold the same, the one gives something up that added nothing
// for the longest time.
func TestFairLRUMoreScopesThanEntries(t *testing.T) {
	now := time.Now()
	l := newFairLRU[int](3, 0)
	key := func(i int) *cacheKey { return &cacheKey{scope: newScope("uid", fmt.Sprint(i))} }
	for i := range 10 {
		l.add(key(i), i, 0, now, now.Add(time.Hour))
	}
	for i := range 10 {
		if _, ok := l.get(key(i)); ok != (i >= 7) {
			t.Errorf("scope %d: %t", i, ok)
		}
	}
}

// BenchmarkFairLRUFull adds to one that is full, of so many scopes.
func BenchmarkFairLRUFull(b *testing.B) {
	for _, n := range []int{2, 100, 600} {
		b.Run(fmt.Sprint("scopes=", n), func(b *testing.B) {
			now := time.Now()
			l := newFairLRU[int](625, 625)
			scopes := make([]scope, n)
			for i := range scopes {
				scopes[i] = newScope("uid", fmt.Sprint(i))
			}
			var key cacheKey
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key.scope = scopes[i%n]
				key.token[0], key.token[1], key.token[2], key.token[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
				l.add(&key, i, 1, now, now.Add(time.Hour))
			}
		})
	}
}
