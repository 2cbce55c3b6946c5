package digest

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Two sequences of fields hash alike only when they are the same sequence,
// wherever a field begins and ends.
func TestSequencesHashApart(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "ab", "a\x00", "\x00\x00\x00\x00\x00\x00\x00\x01a"})
	sum := func(words []string) string {
		d := New("test")
		for _, w := range words {
			d.Text(w)
		}
		return d.Sum()
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(word, 0, 4).Draw(t, "a"), rapid.SliceOfN(word, 0, 4).Draw(t, "b")
		if (sum(a) == sum(b)) != slices.Equal(a, b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

func TestPurposesAndListsHashApart(t *testing.T) {
	list := func(fields ...string) string {
		d := New("test")
		var all [][]byte
		for _, f := range fields {
			all = append(all, []byte(f))
		}
		d.List(all)
		d.Text("end")
		return d.Sum()
	}
	if list("a", "b") == list("a") || list("a", "end") == list("a") {
		t.Error("a list hashes like another")
	}
	if New("one").Sum() == New("two").Sum() {
		t.Error("the purpose is not in the digest")
	}
	yes, no := New("test"), New("test")
	yes.Bool(true)
	no.Bool(false)
	if yes.Sum() == no.Sum() {
		t.Error("true hashes like false")
	}
}
