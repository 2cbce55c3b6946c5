package faults

import (
	"context"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// AUTH-13: hundreds of people, each with a token of their own, are told within
// the limits that a provider does not answer, few of them by asking it. Users of
// another provider are served meanwhile, and it heals for all at once.
func TestAUTH13CrowdAtAMuteProvider(t *testing.T) {
	t.Parallel()
	const (
		people = 150
		// An endpoint holds 16 calls at a time; once it has failed 32 times it is
		// asked five times a second.
		calls = 16 + 32 + 5*int(answerLimit/time.Second)
	)
	near := openSite(t, wayTo("oidc-userinfo"))
	sites := map[string]*site{"near": near}
	names := []string{"jwt-keys", "oidc-userinfo", "oidc-introspection", "exchange"}
	for _, name := range names {
		sites[name] = openSite(t, wayTo(name))
	}
	w := newWorld(t, proxy.Options{LogLevel: "WARN"}, sites)
	before, _ := memory(t, w.px.PID())
	tokens := map[string][]string{}
	for _, name := range names {
		s := sites[name]
		s.idp.SetFault(s.endpoint, oidc.Slow(time.Hour))
		for range people {
			tokens[name] = append(tokens[name], s.token(s))
		}
	}
	neighbours := []*neighbour{{near, "near"}}
	quiet := w.measure(t, neighbours, 2*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan measures)
	go func() { busy <- w.measureUntil(t, ctx, neighbours) }()
	began := time.Now()
	each(names, func(name string) error {
		s := sites[name]
		each(tokens[name], func(token string) error { w.mustBeUnavailable(t, name, token); return nil })
		t.Logf("%s: %d people were told after %v at most; %d calls", name, people, time.Since(began).Round(time.Millisecond), s.idp.Calls(s.endpoint))
		if n := s.idp.Calls(s.endpoint); n > calls {
			t.Errorf("%s: the mute endpoint was called %d times", name, n)
		}
		return nil
	})
	cancel()
	(<-busy).hold(t, quiet)
	now, peak := memory(t, w.px.PID())
	t.Logf("memory: %d MiB before, %d now, at most %d", before>>20, now>>20, peak>>20)
	if peak-before > maxGrowth {
		t.Errorf("the proxy grew by %d MiB", (peak-before)>>20)
	}
	each(names, func(name string) error {
		sites[name].idp.Repair(sites[name].endpoint)
		w.mustHeal(t, name, sites[name])
		return nil
	})
}
