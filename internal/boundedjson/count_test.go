package boundedjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCount(t *testing.T) {
	for text, want := range map[string]Counts{
		`null`:                            {},
		`"a:b,{[\"\\"`:                    {},
		`{}`:                              {},
		`[]`:                              {},
		`[1, 2 ,"]",[]]`:                  {Separators: 3},
		`{"a":1,"b":2}`:                   {Widest: 2, Members: 2},
		`{"a":{"b":{},"c":2,"\"}":3}}`:    {Widest: 3, Members: 4},
		`{"a":[{"b":1},{"b":1}],"c:,":0}`: {Widest: 2, Members: 4, Separators: 1},
	} {
		if diff := cmp.Diff(want, Count([]byte(text))); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// AUTH-13: where the bounds are.
func TestTooManyMembers(t *testing.T) {
	object := func(n int) string {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf(`"%d":0`, i))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	list := func(n int, of string) string { return "[" + strings.Repeat(of+",", n-1) + of + "]" }
	for _, tt := range []struct {
		name, text string
		tooMany    bool
	}{
		{"an object", object(maxMembers), false},
		{"one more", object(maxMembers + 1), true},
		{"within another", `{"a":` + object(maxMembers+1) + `}`, true},
		{"many objects", list(10, object(1000)), false},
		{"one more member", `{"a":` + list(10, object(1000)) + `}`, true},
		{"many small ones", list(10_001, object(1)), true},
		{"a long list", list(400_000, "0"), false},
	} {
		if got := Count([]byte(tt.text)).TooManyMembers(); got != tt.tooMany {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// What is valid JSON can be counted, and the members are those that the
// decoder sees.
func FuzzCount(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":1},2,"\"}"],"c":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		want := membersOf(json.NewDecoder(bytes.NewReader(text)))
		if got := Count(text).Members; got != want {
			t.Errorf("%s: %d members, want %d", text, got, want)
		}
	})
}

// membersOf counts the members of the next value.
func membersOf(d *json.Decoder) (n int) {
	token, _ := d.Token()
	object := token == json.Delim('{')
	if !object && token != json.Delim('[') {
		return 0
	}
	for d.More() {
		if object {
			_, _ = d.Token()
			n++
		}
		n += membersOf(d)
	}
	_, _ = d.Token()
	return n
}
