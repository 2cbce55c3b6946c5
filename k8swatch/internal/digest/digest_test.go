package digest

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// Two sequences of values hash alike only when they are the same sequence, wherever
// a value begins and ends.
func TestSequencesHashApart(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "ab", "a\x00", `"a", "b"`, "\xff", "\ufffd"})
	value := rapid.OneOf(
		rapid.Map(word, func(s string) any { return s }),
		rapid.Map(word, func(s string) any { return []byte(s) }),
		rapid.Map(rapid.SliceOfN(word, 0, 2), func(l []string) any { return l }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.IntRange(0, 2), func(n int) any { return n }),
		rapid.Just(any(nil)),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOfN(value, 0, 3).Draw(t, "a"), rapid.SliceOfN(value, 0, 3).Draw(t, "b")
		if (Of("test", a...) == Of("test", b...)) != (len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)) {
			t.Fatalf("%#v and %#v", a, b)
		}
	})
}

func TestPurposesHashApart(t *testing.T) {
	if Of("one") == Of("two") {
		t.Error("the purpose is not in the digest")
	}
}
