package caddymodule

import (
	"encoding/json"
	"testing"
	"time"
)

// Section 15: a duration, or whole seconds.
func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		`"300s"`: 300 * time.Second,
		`"300"`:  300 * time.Second,
		`300`:    300 * time.Second,
		`"5m"`:   5 * time.Minute,
		`"1d"`:   24 * time.Hour,
		`"0"`:    0, `"-1s"`: 0, `0`: 0, `"x"`: 0, `""`: 0, `1.5`: 0, `{}`: 0, `"99999999999"`: 0,
	} {
		t.Run(in, func(t *testing.T) {
			var d Duration
			err := json.Unmarshal([]byte(in), &d)
			if time.Duration(d) != want || (err == nil) != (want > 0) {
				t.Fatalf("got %v, %v", time.Duration(d), err)
			}
			if err != nil {
				return
			}
			b, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			var again Duration
			if err := json.Unmarshal(b, &again); err != nil || again != d {
				t.Errorf("%s does not read back: %v, %v", b, again, err)
			}
		})
	}
}
