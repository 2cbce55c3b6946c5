package faults

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// calls are the calls of each target's provider so far.
func calls(targets []*target) map[string]map[oidc.Endpoint]int {
	all := map[string]map[oidc.Endpoint]int{}
	for _, g := range targets {
		all[g.name] = g.idp.AllCalls()
	}
	return all
}

// since is how many calls of an endpoint there were since then.
func (s *site) since(before map[oidc.Endpoint]int, e oidc.Endpoint) int {
	return s.idp.Calls(e) - before[e]
}

// report prints what a provider was asked since then.
func report(t *testing.T, g *target, before map[oidc.Endpoint]int) {
	var parts []string
	for _, e := range slices.Sorted(maps.Keys(g.idp.AllCalls())) {
		parts = append(parts, fmt.Sprintf("%s %d", e, g.since(before, e)))
	}
	t.Logf("provider of %s: %s", g.name, strings.Join(parts, ", "))
}

// count are the good tokens of a cluster by kind.
func count(list []bearer, cluster string) map[string]int {
	n := map[string]int{}
	for _, b := range list {
		if b.cluster == cluster {
			n[b.kind]++
		}
	}
	return n
}

// wantCalls holds the calls for good tokens against one for each, and the keys
// read once and again when they are old.
func wantCalls(t *testing.T, g *target, before map[oidc.Endpoint]int, took time.Duration, tokens map[string]int) {
	want := map[oidc.Endpoint]int{}
	switch g.name {
	case "oidc":
		want[oidc.Userinfo], want[oidc.Introspection] = tokens["JWT"]+tokens["opaque"], tokens["opaque"]
	case "exchange":
		want[oidc.Token] = tokens["API token"]
	}
	for _, e := range []oidc.Endpoint{oidc.Userinfo, oidc.Introspection, oidc.Token, oidc.Elsewhere, oidc.Other} {
		if got := g.since(before, e); got != want[e] {
			t.Errorf("%s: %d calls of %s for good tokens, want %d", g.name, got, e, want[e])
		}
	}
	for _, e := range []oidc.Endpoint{oidc.Discovery, oidc.Keys} {
		if got, most := g.since(before, e), 1+oldKeys(took); got < 1 || got > most {
			t.Errorf("%s: %d calls of %s for good tokens within %v, at most %d", g.name, got, e, took, most)
		}
	}
}

// wantFewCalls holds the calls during a storm against what it may cost: one
// reading of the keys in five seconds (AUTH-5), and so many refusals of an endpoint.
// Beside it there are good tokens, the regulars once in token_cache_ttl (30 s)
// and each new one once.
func wantFewCalls(t *testing.T, g *target, before map[oidc.Endpoint]int, took time.Duration, served tally) {
	strange := served.of[g.name+from(noisy)] + served.of[g.name+from(distant)]
	// One may have been given up in the end.
	good := regulars*int(took/(30*time.Second)+1) + strange + 1
	refused := refusedBurst + refusedLate + refusedRate*int(took/time.Second+1)
	for e, most := range map[oidc.Endpoint]int{
		oidc.Discovery:     1 + oldKeys(took),
		oidc.Keys:          keyReads(took),
		oidc.Introspection: refused + good,
		oidc.Token:         refused + good,
		oidc.Userinfo:      served.of[g.name+", signed"] + good,
		oidc.Elsewhere:     0,
		oidc.Other:         0,
	} {
		if got := g.since(before, e); got > most {
			t.Errorf("%s: %d calls of %s in a storm of %v, at most %d", g.name, got, e, took, most)
		}
	}
}

// oldKeys is how often keys are read in some time since they are old.
func oldKeys(d time.Duration) int { return int(d / (4 * time.Minute)) }

// unknownKeyPause is the least time between two readings for unknown kids (AUTH-5).
const unknownKeyPause = 5 * time.Second

// keyReads is how often keys may be read in some time, those for unknown kids
// included.
func keyReads(d time.Duration) int { return 1 + int(d/unknownKeyPause) + oldKeys(d) }

var residentLines = regexp.MustCompile(`(?s)VmHWM:\s+(\d+) kB.*VmRSS:\s+(\d+) kB`)

// memory is what a process holds, and the most it has held, in bytes.
func memory(t *testing.T, pid int) (now, peak int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := residentLines.FindSubmatch(status)
	if found == nil {
		t.Fatalf("no memory of process %d", pid)
	}
	size := func(kib []byte) int64 {
		n, err := strconv.ParseInt(string(bytes.TrimSpace(kib)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
	return size(found[2]), size(found[1])
}
