package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Duration is a span of time longer than zero, written as Caddy writes one in
// JSON: a string (`"5m"`, `"1d"`) or a number of nanoseconds. It is kept as it
// was written and read with the other options, so that an error names the
// option. An empty Duration is an option that is absent.
type Duration string

// UnmarshalJSON refuses an empty string, which would pass for an option that is
// absent.
func (d *Duration) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	if text == "" {
		return errors.New("a duration is empty: leave the option out for its default")
	}
	*d = Duration(text)
	return nil
}

// parseDuration reads a duration that must be longer than zero. A whole number
// without a unit counts seconds in the Caddyfile and in the environment, and
// nanoseconds in JSON.
func parseDuration(text, unit string) (time.Duration, error) {
	withUnit := text
	if _, err := strconv.Atoi(text); err == nil {
		withUnit += map[string]string{"seconds": "s", "nanoseconds": "ns"}[unit]
	}
	d, err := caddy.ParseDuration(withUnit)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a duration nor whole %s", text, unit)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not longer than zero: leave the option out for its default", text)
	}
	return d, nil
}
