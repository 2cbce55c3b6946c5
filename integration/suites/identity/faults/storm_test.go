package faults

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

const (
	// workers send at the same time.
	workers = 40
	// refusedBurst and refusedRate are how many tokens of one address an endpoint
	// may refuse at once, and a second, and refusedLate how many wait for that: an
	// attacker who makes up tokens causes no more calls.
	refusedBurst, refusedRate, refusedLate = 500, 25, 10
	// regulars are the good tokens that come again and again during a storm.
	regulars = 60
	// maxGrowth is what the proxy may grow by. What it remembers of tokens is at
	// most 10,000 entries of 4 KiB on average, 40 MiB, and of refused ones and
	// of those an endpoint accepted 10,000 digests each, some 4 MiB. As much
	// again may be garbage that was not collected yet, and the rest is for what
	// is under way.
	maxGrowth = 128 << 20
)

// bearer is a token of a storm.
type bearer struct {
	cluster, token string
	user           string // whose it is, empty for a bad one
	kind           string
	// asked says that only a provider can tell that it is bad.
	asked bool
}

// target is a cluster in a storm.
type target struct {
	*site
	name string
	good []func(s *site, i int) bearer
	// asks says that the provider is asked about opaque tokens.
	asks bool
}

// signedFor is a token of a user of its own; with ES256, as all here, for
// signing many takes its time.
func signedFor(s *site, i int) bearer {
	name := fmt.Sprintf("user-%d", i)
	return bearer{kind: "JWT", user: name, token: s.idp.Mint(s.idp.Claims(oidc.Alice, map[string]any{"preferred_username": name}), oidc.Sign{KeyID: oidc.E1})}
}

// signedAlice is for those who take the name from userinfo.
func signedAlice(s *site, _ int) bearer {
	return bearer{kind: "JWT", user: oidc.Alice, token: s.idp.Mint(s.idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: oidc.E1})}
}

func opaqueAlice(s *site, _ int) bearer {
	return bearer{kind: "opaque", user: oidc.Alice, token: s.opaque()}
}

func machine(s *site, _ int) bearer {
	return bearer{kind: "API token", user: oidc.Robot, token: s.machine()}
}

func newTargets(t *testing.T) []*target {
	return []*target{
		{name: "jwt", site: openSite(t, wayTo("jwt-keys")), good: []func(*site, int) bearer{signedFor}},
		{name: "oidc", site: openSite(t, wayTo("oidc-userinfo")), good: []func(*site, int) bearer{signedAlice, opaqueAlice}, asks: true},
		{name: "exchange", site: openSite(t, wayTo("exchange")), good: []func(*site, int) bearer{signedFor, machine}, asks: true},
	}
}

func wayTo(name string) way {
	return ways[slices.IndexFunc(ways, func(w way) bool { return w.name == name })]
}

// openSite is a site without a fault.
func openSite(t *testing.T, w way) *site {
	t.Helper()
	s, err := newSite(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	if err := s.front.set(open); err != nil {
		t.Fatal(err)
	}
	return s
}

// bad are the kinds of bad tokens, and the clusters whose provider is asked about
// one.
var bad = []struct {
	kind  string
	asked []string
	token func(s *site, other *oidc.Provider) string
}{
	{"unknown kid", nil, func(s *site, _ *oidc.Provider) string {
		return s.idp.Mint(s.idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: oidc.E1, Header: map[string]any{"kid": rand.Text()}})
	}},
	{"bad signature", nil, func(s *site, _ *oidc.Provider) string {
		return oidc.FlipSignatureBit(s.idp.Mint(s.idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: oidc.E1}))
	}},
	{"expired", nil, func(s *site, _ *oidc.Provider) string {
		return s.idp.Mint(s.idp.Claims(oidc.Alice, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), oidc.Sign{KeyID: oidc.E1})
	}},
	{"foreign issuer", nil, func(_ *site, other *oidc.Provider) string {
		return other.Mint(other.Claims(oidc.Alice, nil), oidc.Sign{KeyID: oidc.E1})
	}},
	{"malformed", nil, func(*site, *oidc.Provider) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","x":"`+rand.Text())) + ".e30.AAAA"
	}},
	{"opaque", []string{"oidc", "exchange"}, func(*site, *oidc.Provider) string { return "~" + rand.Text() + rand.Text() }}, // see oidc.APIToken
	{"like an API token", []string{"exchange"}, func(_ *site, other *oidc.Provider) string {
		return other.Mint(map[string]any{"token_id": rand.Text()}, oidc.Sign{KeyID: oidc.E1})
	}},
}

// AUTH-5, AUTH-12, AUTH-13: as many good tokens as are remembered, then four times as
// many bad ones, while those who came before and those with a signed token are served.
func TestAUTH12Storm(t *testing.T) { storm(t, 10_000, 40_000) }

func storm(t *testing.T, goodOnes, badOnes int) {
	targets := newTargets(t)
	sites := map[string]*site{}
	for _, g := range targets {
		sites[g.name] = g.site
	}
	w := newWorld(t, proxy.Options{LogLevel: "WARN"}, sites)
	before, _ := memory(t, w.px.PID())
	t.Logf("memory: %d MiB", before>>20)
	known := w.serveMany(t, targets, goodOnes)
	w.refuseMany(t, targets, badOnes, known[len(known)-regulars:])
	if _, peak := memory(t, w.px.PID()); peak-before > maxGrowth {
		t.Errorf("the proxy grew by %d MiB", (peak-before)>>20)
	}
}

// serveMany sends good tokens, each for the first time, and returns them. Each
// is seen under its own name and costs what it must.
func (w *world) serveMany(t *testing.T, targets []*target, n int) []bearer {
	list := make([]bearer, n)
	asked, began := calls(targets), time.Now()
	sendAll(t, n, func(i int) {
		g := targets[i%len(targets)]
		list[i] = g.good[i/len(targets)%len(g.good)](g.site, i)
		list[i].cluster = g.name
		w.mustServe(t, &list[i])
	})
	took := time.Since(began)
	w.measured(t, fmt.Sprint(n, " good tokens"), began)
	for _, g := range targets {
		report(t, g, asked[g.name])
		wantCalls(t, g, asked[g.name], took, count(list, g.name))
	}
	return list
}

// refuseMany sends bad tokens, and good ones in the same time.
func (w *world) refuseMany(t *testing.T, targets []*target, n int, known []bearer) {
	other := oidc.Start(t, oidc.Options{})
	asked, began := calls(targets), time.Now()
	stop := w.serveMeanwhile(t, targets, known)
	codes := newTally()
	sendAll(t, n, func(i int) {
		g := targets[i%len(targets)]
		k := bad[i/len(targets)%len(bad)]
		codes.add(w.mustRefuse(t, &bearer{cluster: g.name, token: k.token(g.site, other), kind: k.kind, asked: slices.Contains(k.asked, g.name)}))
	})
	took, meanwhile := time.Since(began), stop()
	w.measured(t, fmt.Sprint(n, " bad tokens"), began)
	codes.log(t, "bad tokens")
	meanwhile.log(t, "good tokens meanwhile")
	for _, g := range targets {
		report(t, g, asked[g.name])
		wantFewCalls(t, g, asked[g.name], took, meanwhile)
		wantRefusals(t, g, took, codes)
		if g.asks && (meanwhile.of[g.name+from(distant)] == 0 || meanwhile.of[g.name+from(noisy)] < 5) {
			t.Errorf("%s: few new good tokens that the provider has to be asked about were accepted", g.name)
		}
		if m := w.notice(g.name); m != "" {
			t.Errorf("%s: refused tokens are no fault of the provider: %s", g.name, m)
		}
	}
}

func (w *world) measured(t *testing.T, what string, began time.Time) {
	now, peak := memory(t, w.px.PID())
	t.Logf("%s in %v; memory: %d MiB, at most %d", what, time.Since(began).Round(time.Second), now>>20, peak>>20)
}

// sendAll calls f for 0 to n-1, for so many at a time as there are workers.
func sendAll(t *testing.T, n int, f func(i int)) {
	var next atomic.Int64
	atOnce(workers, func() {
		for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
			f(i)
		}
	})
}

// atOnce runs f n times at once.
func atOnce(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

func (c *caller) mustServe(t *testing.T, b *bearer) {
	a, err := c.ask(context.WithoutCancel(t.Context()), b.cluster, b.token)
	if err == nil {
		err = a.good(b.user)
	}
	if err != nil {
		t.Errorf("a good %s: %v", b.kind, err)
	}
}

// mustRefuse is a 401. What only a provider can judge may also be beyond the
// limits.
func (w *world) mustRefuse(t *testing.T, b *bearer) string {
	a, err := w.ask(context.WithoutCancel(t.Context()), b.cluster, b.token)
	if err != nil {
		t.Error(err)
		return "none"
	}
	if a.Code != http.StatusUnauthorized && (!b.asked || a.limited() != nil) {
		t.Errorf("%s, %s: code %d: %s", b.cluster, b.kind, a.Code, a.text())
	}
	return outcome(b, a.Code)
}

func outcome(b *bearer, code int) string { return fmt.Sprint(b.cluster, ", ", b.kind, ": ", code) }

// tally counts how tokens ended.
type tally struct {
	mu *sync.Mutex
	of map[string]int
}

func newTally() tally { return tally{new(sync.Mutex), map[string]int{}} }

func (c tally) add(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[key]++
}

func (c tally) log(t *testing.T, what string) {
	for _, key := range slices.Sorted(maps.Keys(c.of)) {
		t.Logf("%s: %s: %d", what, key, c.of[key])
	}
}
