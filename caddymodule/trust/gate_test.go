package trust

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

var (
	trusted     = probe.Verdict{Trust: v1.TrustTrusted}
	rejected    = probe.Verdict{Trust: v1.TrustRejected, Message: "401"}
	notHonoured = probe.Verdict{Trust: v1.TrustNotHonoured, Message: "another"}
	unknown     = probe.Verdict{Trust: v1.TrustUnknown, Message: "503"}
	named       = probe.Verdict{Trust: v1.TrustUnknown, Message: "403", NamesAssertedUser: true}
)

// TRUST-3, TRUST-4: the table of Gate, and sequences of three.
func TestGateVerdicts(t *testing.T) {
	verdicts := map[string]probe.Verdict{"T": trusted, "R": rejected, "H": notHonoured, "U": unknown, "N": named}
	for sequence, open := range map[string]bool{
		"T": true, "R": false, "H": false, "U": false, "N": true,
		"NT": true, "NR": false, "NH": false, "NN": true, "NU": false,
		"TT": true, "TR": false, "TH": false, "TN": true, "TU": true,
		"RT": true, "RR": false, "RH": false, "RN": false, "RU": false,
		"HT": true, "HR": false, "HH": false, "HN": false, "HU": false,
		"UT": true, "UR": false, "UN": true, "UU": false,
		"TUU": true, "TUN": true, "TUR": false, "TRU": false, "TRN": false, "TRT": true, "RUT": true, "RNT": true, "NUN": true, "NTU": true,
	} {
		checkSequence(t, verdicts, sequence, open)
	}
}

// checkSequence observes verdicts, each a letter, and looks at the gate.
func checkSequence[V Verdict](t *testing.T, verdicts map[string]V, sequence string, open bool) {
	t.Run(sequence, func(t *testing.T) {
		g := NewGate[V](nil)
		for _, v := range strings.Split(sequence, "") {
			g.Observe(verdicts[v])
		}
		if g.Open() != open {
			t.Errorf("open: %t", g.Open())
		}
	})
}

// CERT-9: the same table for a client certificate, which nothing short of a
// proof opens.
func TestGateOfClientCert(t *testing.T) {
	verdicts := map[string]probe.CertVerdict{
		"P": {Seen: probe.SeenAnonymous}, "I": {Seen: probe.SeenIdentity, Message: "carol"}, "U": {Seen: probe.SeenUnknown, Message: "503"},
	}
	for sequence, open := range map[string]bool{
		"P": true, "I": false, "U": false,
		"PP": true, "PI": false, "PU": true, "IP": true, "II": false, "IU": false, "UP": true, "UI": false, "UU": false,
		"PUI": false, "PIU": false, "PIP": true, "IUP": true, "PUU": true,
	} {
		checkSequence(t, verdicts, sequence, open)
	}
}

// TRUST-4: the leader's refusal closes, is no check of its own, and only a pass
// opens after it.
func TestGateRefuse(t *testing.T) {
	for _, before := range [][]probe.Verdict{nil, {trusted}, {named}, {unknown}, {rejected}} {
		g := NewGate[probe.Verdict](func() {})
		for _, v := range before {
			g.Observe(v)
		}
		checked := g.State().Checked
		g.Refuse(notHonoured)
		if s := g.State(); g.Open() || !g.Refused() || s.Verdict != notHonoured || s.Checked != checked {
			t.Errorf("after %v: open %t, state %+v", before, g.Open(), s)
		}
		for _, v := range []probe.Verdict{unknown, named, rejected} {
			if g.Observe(v); g.Open() {
				t.Errorf("%v opens", v)
			}
		}
		if g.Observe(trusted); !g.Open() || g.Refused() {
			t.Error("Trusted does not open")
		}
	}
}

func TestGateTellsChanges(t *testing.T) {
	told := 0
	g := NewGate[probe.Verdict](func() { told++ })
	for i, step := range []struct {
		verdict probe.Verdict
		changed bool
	}{
		{unknown, true}, {named, false}, {trusted, true}, {trusted, false}, {unknown, true}, {rejected, true},
		// An Unknown after a refusal changes nothing.
		{unknown, false}, {notHonoured, true}, {trusted, true},
	} {
		before := told
		g.Observe(step.verdict)
		if (told > before) != step.changed {
			t.Errorf("step %d, %v: told %t", i, step.verdict, told > before)
		}
	}
}

func TestGateState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate[probe.Verdict](nil)
		if s := g.State(); s.Verdict.Trust != "" {
			t.Errorf("state of a new gate: %+v", s)
		}
		g.Observe(trusted)
		since := time.Now()
		time.Sleep(time.Hour)
		g.Observe(unknown)
		// The status says what the last probe found; the gate stays open.
		if s := g.State(); s.Verdict.Trust != v1.TrustUnknown || !s.Since.Equal(since.Add(time.Hour)) {
			t.Errorf("Unknown gives %+v", s)
		}
		if !g.Open() {
			t.Error("age or Unknown closed the gate")
		}
		g.Observe(trusted)
		since = time.Now()
		time.Sleep(time.Hour)
		g.Observe(trusted)
		if s := g.State(); !s.Since.Equal(since) || !s.Checked.Equal(since.Add(time.Hour)) {
			t.Errorf("a second Trusted gives %+v", s)
		}
		g.Observe(notHonoured)
		refused := time.Now()
		time.Sleep(time.Hour)
		g.Observe(unknown)
		if s := g.State(); s.Verdict.Trust != v1.TrustNotHonoured || s.Verdict.Message != "another" || !s.Since.Equal(refused) {
			t.Errorf("NotHonoured, then Unknown gives %+v", s)
		}
	})
}

// TRUST-3: single-flight, each caller with its own patience.
func TestGateSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate[probe.Verdict](nil)
		var asked atomic.Int32
		check := func(context.Context) probe.Verdict {
			asked.Add(1)
			time.Sleep(2 * time.Second)
			return trusted
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := g.Check(t.Context(), check); err != nil || !g.Open() {
					t.Errorf("Check: %v, open: %t", err, g.Open())
				}
			})
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := g.Check(ctx, check); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller that left: %v", err)
			}
		})
		all.Wait()
		if asked.Load() != 1 || !g.Open() {
			t.Errorf("asked %d times, open: %t", asked.Load(), g.Open())
		}
		if err := g.Check(t.Context(), check); err != nil || asked.Load() != 1 {
			t.Errorf("an open gate asks: %v, %d", err, asked.Load())
		}
	})
}

// A canceled request does not end the probe that others wait for.
func TestGateOutlivesFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate[probe.Verdict](nil)
		check := func(ctx context.Context) probe.Verdict {
			select {
			case <-time.After(2 * time.Second):
				return trusted
			case <-ctx.Done():
				return unknown
			}
		}
		first, cancel := context.WithCancel(t.Context())
		go g.Check(first, check)
		synctest.Wait()
		cancel()
		if err := g.Check(t.Context(), check); err != nil || !g.Open() {
			t.Errorf("Check: %v, open: %t", err, g.Open())
		}
	})
}

// TRUST-3: asked again at most once a second, and given 5 s.
func TestGateAsksOnceASecond(t *testing.T) {
	for name, verdict := range map[string]probe.Verdict{"unknown": unknown, "rejected": rejected, "not honoured": notHonoured} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate[probe.Verdict](nil)
				asked := 0
				check := func(context.Context) probe.Verdict { asked++; return verdict }
				for range 100 {
					err := g.Check(t.Context(), check)
					if v := g.State().Verdict; err != nil || v != verdict || g.Open() {
						t.Fatalf("Check: %v, %v", v, err)
					}
					time.Sleep(50 * time.Millisecond)
				}
				if asked != 5 {
					t.Errorf("asked %d times in 5 s", asked)
				}
				time.Sleep(time.Second)
				g.Check(t.Context(), func(context.Context) probe.Verdict { return trusted })
				if !g.Open() {
					t.Error("Trusted did not open the gate")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := NewGate[probe.Verdict](nil)
		start := time.Now()
		err := g.Check(t.Context(), func(ctx context.Context) probe.Verdict { <-ctx.Done(); return unknown })
		if v := g.State().Verdict; err != nil || v != unknown || time.Since(start) != ownCheck {
			t.Errorf("a probe that hangs: %v, %v after %s", v, err, time.Since(start))
		}
	})
}

// A verdict from elsewhere may arrive while the gate asks.
func TestGateObservesDuringCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate[probe.Verdict](nil)
		go func() { time.Sleep(time.Second); g.Observe(trusted) }()
		err := g.Check(t.Context(), func(context.Context) probe.Verdict { time.Sleep(2 * time.Second); return unknown })
		if v := g.State().Verdict; err != nil || v.Trust != v1.TrustUnknown || !g.Open() {
			t.Errorf("Check: %v, %v, open: %t", v, err, g.Open())
		}
	})
}

// A refused set is asked about again behind the requests, once a second.
func TestGateReprobe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate[probe.Verdict](nil)
		g.Observe(notHonoured)
		asked := 0
		answer := notHonoured
		check := func(context.Context) probe.Verdict { asked++; return answer }
		for range 10 {
			g.Reprobe(check)
			synctest.Wait()
		}
		if asked != 1 || g.Open() {
			t.Errorf("asked %d times in no time, open: %t", asked, g.Open())
		}
		time.Sleep(askAgain)
		answer = trusted
		g.Reprobe(check)
		synctest.Wait()
		if asked != 2 || !g.Open() {
			t.Errorf("asked %d times, open: %t", asked, g.Open())
		}
		time.Sleep(askAgain)
		answer = unknown
		g.Reprobe(check)
		synctest.Wait()
		if asked != 3 || !g.Open() {
			t.Errorf("in doubt: asked %d times, open: %t", asked, g.Open())
		}
	})
}

func BenchmarkGateOpen(b *testing.B) {
	g := NewGate[probe.Verdict](nil)
	g.Observe(trusted)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !g.Open() {
				b.Error("closed")
			}
		}
	})
}
