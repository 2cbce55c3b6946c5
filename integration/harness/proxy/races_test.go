package proxy

import (
	"errors"
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

// reportOf is a report of accesses in two functions.
func reportOf(first, second string) string {
	return strings.NewReplacer(
		"github.com/caddyserver/caddy/v2/modules/caddyhttp.(*Server).serve()", first+"()",
		"github.com/caddyserver/caddy/v2.(*Context).Value()", second+"()",
	).Replace(report)
}

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

// What races.txt lists is no failure, and a race of the same functions with others
// is one.
func TestKnownRaces(t *testing.T) {
	known, err := knownRaces(racesFile)
	if err != nil {
		t.Error(err)
	}
	for pair := range known {
		listed := reportOf(pair[1], pair[0])
		if got := unknownRaces(listed, known); len(got) != 0 {
			t.Errorf("a listed race fails a run: %q", got)
		}
		for _, other := range []string{reportOf(pair[0], "net/http.(*conn).serve"), reportOf("net/http.(*conn).serve", pair[1])} {
			if got := unknownRaces(listed+other, known); len(got) != 1 {
				t.Errorf("%d races that are not listed, want 1: %q", len(got), other)
			}
		}
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

// A run with the race detector tests no program that was built without it.
func TestRaceRunBuildsItsProgram(t *testing.T) {
	t.Setenv(raceVariable, "1")
	t.Setenv(BinaryVariable, "/bin/true")
	if file, err := buildBinary(t.Context()); !errors.Is(err, errRaceBinary) {
		t.Errorf("it tests %q, %v", file, err)
	}
}
