package caddymodule

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Duration is a span of time: a number of whole seconds (`300` or `"300"`), or
// a duration string as Caddy reads it (`"5m"`, `"1d"`).
type Duration time.Duration

// parseDuration reads a duration and refuses one that is not positive.
func parseDuration(s string) (Duration, error) {
	var d time.Duration
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if d, err = caddy.ParseDuration(s); err != nil {
		return 0, fmt.Errorf("%q is neither a duration nor whole seconds", s)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not longer than zero", s)
	}
	return Duration(d), nil
}

// UnmarshalJSON reads whole seconds or a string.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	parsed, err := parseDuration(s)
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// MarshalJSON writes a string that UnmarshalJSON reads.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}
