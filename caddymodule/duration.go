package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Duration is a span of time longer than zero, as it was written: a number of
// whole seconds (`300` or `"300"`), or a duration string as Caddy reads it
// (`"5m"`, `"1d"`). It is read with the options, so that an error names the
// option; the empty one is an option that is absent.
type Duration string

// parseDuration reads a duration and refuses one that is not positive.
func parseDuration(s string) (time.Duration, error) {
	var d time.Duration
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		d = time.Duration(n) * time.Second
	} else if d, err = caddy.ParseDuration(s); err != nil {
		return 0, fmt.Errorf("%q is neither a duration nor whole seconds", s)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not longer than zero: leave the option out for its default", s)
	}
	return d, nil
}

// UnmarshalJSON takes whole seconds or a string. An empty string would pass for
// an option that is absent.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	if s == "" {
		return errors.New("a duration is empty: leave the option out for its default")
	}
	*d = Duration(s)
	return nil
}
