package caddymodule

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Section 15: in JSON a duration is written as in all of Caddy, a string or
// nanoseconds. What is none, zero or less is an error that names the option,
// never its default.
func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		`"300s"`:       300 * time.Second,
		`300000000000`: 300 * time.Second,
		`"5m"`:         5 * time.Minute,
		`"1d"`:         24 * time.Hour,
		// Seconds in an older configuration are an error, not nanoseconds.
		`300`: 0, `"300"`: 0,
		`"0"`: 0, `"0s"`: 0, `"-1s"`: 0, `0`: 0, `-0`: 0, `null`: 0, `"x"`: 0, `1.5`: 0, `{}`: 0, `"99999999999999999999"`: 0,
	} {
		for _, option := range []string{"upstream_client_ttl", "token_cache_ttl", "probe_interval"} {
			t.Run(option+" "+in, func(t *testing.T) {
				clearEnv(t)
				var app App
				if err := caddy.StrictUnmarshalJSON([]byte(`{"directory": "`+t.TempDir()+`", "`+option+`": `+in+`}`), &app); err != nil {
					t.Fatal(err)
				}
				o, err := app.options()
				got := map[string]time.Duration{"upstream_client_ttl": o.UpstreamClientTTL, "token_cache_ttl": o.TokenCacheTTL, "probe_interval": o.ProbeInterval}[option]
				if want > 0 && (err != nil || got != want) {
					t.Fatalf("got %v, %v", got, err)
				}
				if want == 0 && (err == nil || !strings.HasPrefix(err.Error(), option+": ")) {
					t.Fatalf("got %v, want an error that begins with %s", err, option)
				}
				b, err := json.Marshal(&app)
				if err != nil {
					t.Fatal(err)
				}
				var again App
				if err := json.Unmarshal(b, &again); err != nil || again.TokenCacheTTL+again.ProbeInterval+again.UpstreamClientTTL != app.TokenCacheTTL+app.ProbeInterval+app.UpstreamClientTTL {
					t.Errorf("%s does not read back: %v", b, err)
				}
			})
		}
	}
	var d Duration
	if err := json.Unmarshal([]byte(`""`), &d); err == nil || !strings.Contains(err.Error(), "a duration is empty") {
		t.Errorf("an empty duration: %v", err)
	}
}

// A number without a unit counts seconds in the Caddyfile and the environment.
func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"300": 300 * time.Second, "300s": 300 * time.Second, "1d": 24 * time.Hour, "99999999999": 0, "0": 0, "-0": 0, "1.5": 0, "": 0,
	} {
		if got, err := parseDuration(text, "seconds"); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
