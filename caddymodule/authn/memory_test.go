package authn

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkMemoryLimit compares the accounts of a memoryLimit with what its memories hold.
func checkMemoryLimit[V any](t rapid.TB, p *memoryLimit[V]) {
	t.Helper()
	entries, bytes := 0, 0
	for m := range p.memories {
		own := 0
		for _, entry := range m.lru.Values() {
			own += entry.bytes
		}
		if own != m.bytes {
			t.Fatalf("a memory of %d bytes counts %d", own, m.bytes)
		}
		entries += m.lru.Len()
		bytes += own
	}
	switch {
	case entries != p.entries, bytes != p.bytes:
		t.Fatalf("%d entries with %d bytes; counted %d, %d", entries, bytes, p.entries, p.bytes)
	case entries > p.maxEntries, bytes > p.maxBytes:
		t.Fatalf("%d entries of %d, %d bytes of %d", entries, p.maxEntries, bytes, p.maxBytes)
	}
}

// AUTH-12: the bounds hold, a memory is an LRU of its own, and one that is within
// its part of the bounds loses nothing to another.
func TestPoolProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newMemoryLimit[int](rapid.IntRange(1, 20).Draw(rt, "entries"), rapid.IntRange(0, 200).Draw(rt, "bytes"))
		memories := make([]*memory[int], 5)
		for i := range memories {
			memories[i] = p.newMemory()
		}
		model := make([]map[tokenDigest]int, len(memories))
		for step := range rapid.IntRange(0, 120).Draw(rt, "steps") {
			n := rapid.IntRange(0, len(memories)-1).Draw(rt, "memory")
			m, key := memories[n], digest(fmt.Sprint(rapid.IntRange(0, 25).Draw(rt, "token")))
			if model[n] == nil {
				model[n] = map[tokenDigest]int{}
			}
			var before [5][]tokenDigest
			var bytes [5]int
			holding := 0
			for i, other := range memories {
				before[i], bytes[i] = other.lru.Keys(), other.bytes
				if len(before[i]) > 0 || i == n {
					holding++
				}
			}
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				m.close()
				memories[n] = p.newMemory()
				before[n] = nil
			case 1:
				m.remove(&key)
				before[n] = slices.DeleteFunc(before[n], func(k tokenDigest) bool { return k == key })
			case 2, 3:
				if value, ok := m.get(&key); ok {
					if value != model[n][key] {
						rt.Fatalf("got %d, want %d", value, model[n][key])
					}
					before[n] = append(slices.DeleteFunc(before[n], func(k tokenDigest) bool { return k == key }), key)
				}
			default:
				model[n][key] = step
				m.add(&key, step, rapid.IntRange(0, 60).Draw(rt, "size"))
				for i, keys := range before {
					if after := memories[i].lru.Keys(); i != n && !slices.Equal(after, keys) {
						if len(keys) <= p.maxEntries/holding && bytes[i] <= p.maxBytes/holding {
							rt.Fatalf("a memory of %d bytes and %d entries lost some to another of %d", bytes[i], len(keys), holding)
						}
						if !slices.Equal(after, keys[len(keys)-len(after):]) {
							rt.Fatal("it did not lose those that it used least recently")
						}
					}
				}
				checkMemoryLimit(rt, p)
				continue
			}
			for i, keys := range before {
				if !slices.Equal(memories[i].lru.Keys(), keys) {
					rt.Fatal("what was not added to changed")
				}
			}
			checkMemoryLimit(rt, p)
		}
	})
}

// With more clusters than entries, the last one to come is remembered.
func TestPoolOfMoreMemoriesThanEntries(t *testing.T) {
	p := newMemoryLimit[int](3, 0)
	var key tokenDigest
	for i := range 10 {
		m := p.newMemory()
		m.add(&key, i, 0)
		if value, ok := m.get(&key); !ok || value != i {
			t.Errorf("memory %d: %d, %t", i, value, ok)
		}
		checkMemoryLimit(t, p)
	}
}

// BenchmarkPoolFull adds to one that is full, of so many clusters.
func BenchmarkPoolFull(b *testing.B) {
	for _, n := range []int{2, 100, 600} {
		b.Run(fmt.Sprint("memories=", n), func(b *testing.B) {
			p := newMemoryLimit[int](10_000, 10_000)
			memories := make([]*memory[int], n)
			for i := range memories {
				memories[i] = p.newMemory()
			}
			var key tokenDigest
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				key[0], key[1], key[2], key[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
				memories[i%n].add(&key, i, 1)
			}
		})
	}
}
