package proxy

import (
	"strings"
	"testing"
)

// report is one as the race detector writes it, with other output around.
const report = `{"level":"info","msg":"a line"}
==================
WARNING: DATA RACE
Write at 0x00c000a1c0d8 by goroutine 151:
  github.com/caddyserver/caddy/v2/modules/caddyhttp.(*Server).serve()
      /src/server.go:101 +0x5c
  net/http.(*conn).serve()
      /go/src/net/http/server.go:2092 +0x2ad

Previous read at 0x00c000a1c0d8 by goroutine 148:
  github.com/caddyserver/caddy/v2.(*Context).Value()
      /src/context.go:55 +0x44

Goroutine 151 (running) created at:
  net/http.(*Server).Serve()
      /go/src/net/http/server.go:3360 +0x8ec
==================
`

func TestUnknownRaces(t *testing.T) {
	for name, tc := range map[string]struct {
		output string
		want   int
	}{
		"none":                  {"{}\n", 0},
		"one":                   {report, 1},
		"two":                   {report + report, 2},
		"a stack that was lost": {"WARNING: DATA RACE\nWrite at 0x00c0 by goroutine 1:\n  [failed to restore the stack]\n==================\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unknownRaces(tc.output, nil); len(got) != tc.want {
				t.Errorf("%d reports: %q", len(got), got)
			}
		})
	}
	known, err := knownRaces("# a comment\n\ngithub.com/caddyserver/caddy/v2.(*Context).Value github.com/caddyserver/caddy/v2/modules/caddyhttp.(*Server).serve for this test\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := unknownRaces(report, known); len(got) != 0 {
		t.Errorf("a known race was reported: %q", got)
	}
	other := strings.Replace(report, "(*Context).Value", "(*Context).Other", 1)
	if got := unknownRaces(report+other, known); len(got) != 1 {
		t.Errorf("beside a known race: %q", got)
	}
}

func TestKnownRaces(t *testing.T) {
	if _, err := knownRaces(racesFile); err != nil {
		t.Error(err)
	}
	for name, line := range map[string]string{
		"no reason":   "a.F b.G",
		"the product": "github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule.F b.G because it is ours",
	} {
		if _, err := knownRaces(line); err == nil {
			t.Errorf("%s: the line was taken", name)
		}
	}
}
