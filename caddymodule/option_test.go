package caddymodule

import (
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/google/go-cmp/cmp"
)

// sample is a module with an option of each kind.
type sample struct {
	Text, Switch string
	Set          []string
	Duration     Duration
	Block        *sample

	text string
	on   bool
	set  []string
	span time.Duration
}

func (s *sample) table() []option {
	return []option{
		{name: "text", value: asText(&s.Text, &s.text), check: oneOf("a", "b"), variable: "SAMPLE_TEXT", fallback: "a"},
		{name: "switch", value: asSwitch("on", &s.Switch, &s.on), check: oneOf("on", "off"), fallback: "on"},
		{name: "set", value: asSet(&s.Set, &s.set), check: namespaces("namespace")},
		{name: "duration", value: asDuration(&s.Duration, &s.span, time.Second), variable: "SAMPLE_DURATION"},
		{name: "block", block: &block{
			open: func() []option {
				s.Block = new(sample)
				return []option{{name: "inner", value: asText(&s.Block.Text, &s.Block.text), check: oneOf("x")}}
			},
			table: func() []option { return nil },
		}},
		{name: "later", planned: true},
	}
}

// An option is taken from the configuration, else from its environment
// variable, else from its default.
func TestFillOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		given    sample
		env      map[string]string
		want     sample
		errParts []string
	}{
		"defaults": {want: sample{text: "a", on: true}},
		"given": {
			given: sample{Text: "b", Switch: "off", Set: []string{"z", "y", "z"}, Duration: "2s"},
			env:   map[string]string{"SAMPLE_TEXT": "a", "SAMPLE_DURATION": "9s"},
			want:  sample{text: "b", set: []string{"y", "z"}, span: 2 * time.Second},
		},
		"environment": {
			env:  map[string]string{"SAMPLE_TEXT": "b", "SAMPLE_DURATION": "90"},
			want: sample{text: "b", on: true, span: 90 * time.Second},
		},
		"nanoseconds in JSON": {given: sample{Duration: "1500000000"}, want: sample{text: "a", on: true, span: 1500 * time.Millisecond}},
		"all faults at once": {
			given:    sample{Text: "c", Switch: "yes", Set: []string{"A"}, Duration: "30"},
			errParts: []string{`text: unknown value "c": must be one of a, b`, `switch: unknown value "yes"`, `namespace "A": `, "duration: 30ns is shorter than 1s"},
		},
		"faults of the environment": {
			env: map[string]string{"SAMPLE_TEXT": "c", "SAMPLE_DURATION": "soon"},
			errParts: []string{
				`environment variable SAMPLE_TEXT: unknown value "c"`,
				`environment variable SAMPLE_DURATION: "soon" is neither a duration nor whole seconds`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"SAMPLE_TEXT", "SAMPLE_DURATION"} {
				t.Setenv(variable, tc.env[variable])
			}
			s := tc.given
			err := fillOptions(s.table())
			for _, part := range tc.errParts {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want an error with %s", err, part)
				}
			}
			if tc.errParts != nil {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := sample{text: s.text, on: s.on, set: s.set, span: s.span}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(sample{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The Caddyfile sets the fields of the module and nothing else: neither the
// environment nor a default gets into the JSON.
func TestUnmarshalBlock(t *testing.T) {
	t.Setenv("SAMPLE_TEXT", "b")
	for name, tc := range map[string]struct {
		input string
		want  sample
		err   string
	}{
		"nothing":          {input: "sample"},
		"an empty block":   {input: "sample {\n}"},
		"all":              {input: "sample {\n text b\n switch off\n set z y\n duration 5\n block {\n inner x\n }\n}", want: sample{Text: "b", Switch: "off", Set: []string{"z", "y"}, Duration: "5s", Block: &sample{Text: "x"}}},
		"a block of none":  {input: "sample {\n block\n}", want: sample{Block: &sample{}}},
		"an argument":      {input: "sample x", err: "wrong argument count"},
		"no argument":      {input: "sample {\n text\n}", err: "wrong argument count"},
		"an empty one":     {input: "sample {\n text \"\"\n}", err: "wrong argument count"},
		"two arguments":    {input: "sample {\n duration 1s 2s\n}", err: "wrong argument count"},
		"none in a set":    {input: "sample {\n set\n}", err: "wrong argument count"},
		"a block's":        {input: "sample {\n block x\n}", err: "wrong argument count"},
		"unknown":          {input: "sample {\n txt a\n}", err: "unknown option txt: must be one of text, switch, set, duration, block, at Testfile:2"},
		"unknown inside":   {input: "sample {\n block {\n text a\n }\n}", err: "unknown option text: must be one of inner, at Testfile:3"},
		"inside, outside":  {input: "sample {\n inner x\n}", err: "inner belongs in block { }, at Testfile:2"},
		"twice":            {input: "sample {\n text a\n text b\n}", err: "text is given twice, at Testfile:3"},
		"twice inside":     {input: "sample {\n block {\n inner x\n inner x\n }\n}", err: "inner is given twice, at Testfile:4"},
		"of a later one":   {input: "sample {\n later {\n x\n }\n}", err: "later is not supported by this version, at Testfile:2"},
		"a wrong value":    {input: "sample {\n text c\n}", err: `text: unknown value "c": must be one of a, b, at Testfile:2`},
		"a short duration": {input: "sample {\n duration 10ms\n}", err: "duration: 10ms is shorter than 1s, at Testfile:2"},
		"no duration":      {input: "sample {\n duration soon\n}", err: `duration: "soon" is neither a duration nor whole seconds, at Testfile:2`},
	} {
		t.Run(name, func(t *testing.T) {
			var s sample
			err := unmarshalBlock(caddyfile.NewTestDispenser(tc.input), s.table())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want an error with %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := sample{Text: s.Text, Switch: s.Switch, Set: s.Set, Duration: s.Duration}
			if s.Block != nil {
				got.Block = &sample{Text: s.Block.Text}
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(sample{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	// A module without options.
	if err := unmarshalBlock(caddyfile.NewTestDispenser("sample {\n x\n}"), nil); err == nil || !strings.Contains(err.Error(), "unknown option x, at Testfile:2") {
		t.Errorf("%v", err)
	}
}
