package boundedjson

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// AUTH-10: the text is looked at before Go's decoder repairs it.
func TestObject(t *testing.T) {
	tests := []struct {
		name, payload string
		ok            bool
	}{
		{"object", `{"sub":"alice","n":[1,-2.5e3,{"a":null}],"t":true}`, true},
		{"empty object", ` {} `, true},
		{"UTF-8", `{"sub":"élodie 日本 🚀"}`, true},
		{"escaped", `{"sub":"\u00e9\u65e5\ud83d\ude80\"\\\/\b\n"}`, true},
		{"a replacement character that was written", `{"sub":"\ufffd�"}`, true},
		{"NUL in a value is the identity's business", `{"sub":"a\u0000b"}`, true},
		{"one name at two depths", `{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}`, true},
		{"names that differ in case", `{"sub":"a","SUB":"b"}`, true},
		{"nothing", ``, false},
		{"not JSON", `{"sub":"alice"`, false},
		{"two values", `{} {}`, false},
		{"null", `null`, false},
		{"array", `[{"sub":"alice"}]`, false},
		{"string", `"alice"`, false},
		{"byte order mark", "\ufeff{}", false},
		{"invalid UTF-8 in a value", "{\"sub\":\"al\xffice\"}", false},
		{"invalid UTF-8 in a claim that is not mapped", "{\"sub\":\"alice\",\"x\":\"\xc3\x28\"}", false},
		{"invalid UTF-8 in a name", "{\"s\xffub\":1}", false},
		{"overlong UTF-8", "{\"sub\":\"\xc0\xaf\"}", false},
		{"surrogate in UTF-8", "{\"sub\":\"\xed\xa0\x80\"}", false},
		{"high surrogate alone", `{"sub":"a\ud800"}`, false},
		{"high surrogate before a character", `{"sub":"\ud800x"}`, false},
		{"high surrogate before an escape", `{"sub":"\ud800\n"}`, false},
		{"high surrogate before another", `{"sub":"\ud800\ud800"}`, false},
		{"high surrogate before a plain code point", `{"sub":"\uD83Da\u0041"}`, false},
		{"low surrogate alone", `{"sub":"\udc00"}`, false},
		{"low before high", `{"sub":"\ude80\ud83d"}`, false},
		{"lone surrogate in a name", `{"\ud800":1}`, false},
		{"lone surrogate deep down", `{"a":[[{"b":"\ud800"}]]}`, false},
		{"backslash before u is no escape", `{"sub":"\\ud800"}`, true},
		{"a name twice", `{"sub":"alice","sub":"root"}`, false},
		{"a name twice, equal", `{"sub":"alice","sub":"alice"}`, false},
		{"a name twice, once escaped", `{"sub":"alice","s\u0075b":"root"}`, false},
		{"a name twice, deep down", `{"a":[{"roles":[],"roles":["admin"]}]}`, false},
		{"the empty name twice", `{"":1,"":2}`, false},
		{"too deep", strings.Repeat("[", 20000), false},
		{"deep", `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Object([]byte(tt.payload))
			if (err == nil) != tt.ok || (c != nil) != tt.ok {
				t.Errorf("got %v, %v; want ok %t", c, err, tt.ok)
			}
		})
	}
}

// What is accepted is read by another decoder without repairs or repeated
// names; what is refused has one of the two, or is no object.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{"sub":"alice","groups":["dev","ops"]}`, `{"a":"\ud83d\ude80"}`, `{"a":"\ud83d"}`, `{"a":1,"a":2}`,
		`{"a":{"b":1,"\u0062":2}}`, `{"iss" : "a\\" , "aud":["x","}"],"exp":1 ,"nbf":{"exp":2},"n":-1.5}`, "{\"a\":\"\xff\"}", `[]`, `{"a":[true,false,null,-1.5e+3]} `, `{"a":"\ufffd"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := Object(payload)
		var plain map[string]any
		notObject := json.Unmarshal(payload, &plain) != nil || plain == nil
		var other any
		strict, otherErr := kjson.UnmarshalStrict(payload, &other)
		repeated := len(strict) > 0
		if otherErr != nil && !notObject {
			return // a number that does not fit: only one of the decoders minds
		}
		if notObject {
			var raw map[string]json.RawMessage
			if notObject = json.Unmarshal(payload, &raw) != nil || raw == nil; !notObject {
				return // the same
			}
		}
		repaired := !utf8.Valid(payload) || repairs(payload)
		if want := !notObject && !repeated && !repaired; (err == nil) != want {
			t.Errorf("accepted %t, but object %t, repeated %t, repaired %t", err == nil, !notObject, repeated, repaired)
		}
		if err == nil && len(c) != len(plain) {
			t.Errorf("%d claims, want %d", len(c), len(plain))
		}
	})
}

// repairs reports whether encoding/json puts replacement characters where
// the valid JSON has none.
func repairs(payload []byte) bool {
	written := strings.Count(string(payload), "\ufffd")
	unescaped := strings.ReplaceAll(string(payload), `\\`, "")
	written += strings.Count(strings.ToLower(unescaped), `\ufffd`)
	read := 0
	decoder := json.NewDecoder(strings.NewReader(string(payload)))
	for {
		token, err := decoder.Token()
		if err != nil {
			return read > written
		}
		if s, ok := token.(string); ok {
			read += strings.Count(s, "\ufffd")
		}
	}
}

// AUTH-16: a number may be written as a text, and what only a lenient parser takes
// for a number is none.
func TestNumber(t *testing.T) {
	for text, want := range map[string]float64{
		`3600`: 3600, `"3600"`: 3600, `-1.5e3`: -1500, `"-1.5e3"`: -1500, `"0"`: 0, `1e999`: math.Inf(1),
	} {
		if got, ok := Number([]byte(text)); !ok || got != want {
			t.Errorf("%s is %v, %t", text, got, ok)
		}
	}
	for _, text := range []string{
		``, `"`, `""`, `null`, `true`, `[1]`, `{}`, `"Infinity"`, `"NaN"`, `"0x10"`, `"1_000"`, `"+1"`, `" 1"`, `"1 "`, `"01"`, `"1,5"`, `"\u0031"`, `"true"`,
	} {
		if got, ok := Number([]byte(text)); ok {
			t.Errorf("%s is %v", text, got)
		}
	}
}
