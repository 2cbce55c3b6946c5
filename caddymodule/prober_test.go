package caddymodule

import (
	"context"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// One round asks all three questions, and tells whoever writes the status
// (REC-4): of what changed, and that a round has ended. A process that does not
// lead asks nothing of itself, and checks for requests all the same.
func TestProberRound(t *testing.T) {
	target, roots, requests := refusing(t)
	rt := &runtime{logger: zap.NewNop()}
	p := newProber(rt, time.Hour)
	rt.prober = p
	var told atomic.Int32
	p.changed = func(key k8swatch.Key) {
		if key.Name != "prod" {
			t.Errorf("told of %v", key)
		}
		told.Add(1)
	}
	spec := func(userPrefix string) *k8swatch.Cluster {
		return &k8swatch.Cluster{
			Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, Enabled: true, Mode: v1.ModePassthrough, Target: target, CA: roots,
			ServerName: "example.com", FrontProxy: nobody(), ClientCert: nobody(),
			UserPrefix: userPrefix, GroupPrefix: "g:", TargetKnown: true, Probe: true, Preparing: true,
			Auth:  k8swatch.Auth{DisableValidation: true},
			Ready: k8swatch.Condition{Type: "Ready", Status: "True", Reason: k8swatch.ReasonServing},
		}
	}
	c := rt.assemble(spec("u:"), nil)
	defer c.retire(nil)
	rt.snapshot.Store(&snapshot{clusters: map[k8swatch.Key]*cluster{c.spec.Key: c}})

	p.lead(false)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { p.run(ctx) })
	defer done.Wait()
	defer cancel()
	if refused := c.admit(t.Context()); refused != nil || requests.Load() != 1 {
		t.Fatalf("the check of a request: %v, %d requests", refused, requests.Load())
	}
	if told.Load() != 1 {
		t.Errorf("told %d times of the check", told.Load())
	}
	p.lead(true)
	for deadline := time.Now().Add(30 * time.Second); c.reachable() == nil || c.trust().Trust == "" || told.Load() < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("reachable %v, trust %+v, told %d times", c.reachable(), c.trust(), told.Load())
		}
	}
	// Told: client_cert passed, the set is rejected, it answers, the round ended.
	if r := c.reachable(); r.Reason != k8swatch.ReasonAnswered || c.trust().Trust != v1.TrustRejected || told.Load() != 4 || requests.Load() != 4 {
		t.Errorf("reachable %v, trust %+v, told %d times, %d requests", r, c.trust(), told.Load(), requests.Load())
	}

	// What is about the same stays, what is about another set does not.
	next := rt.assemble(spec("other:"), c)
	defer next.retire(nil)
	if next.gate == c.gate || next.certGate != c.certGate || next.reach != c.reach || next.heard != c.heard || next.pair != c.pair {
		t.Error("another prefix: what is known was not kept, or too much")
	}
	moved := spec("other:")
	moved.Target.Canonical = "elsewhere"
	last := rt.assemble(moved, next)
	defer last.retire(nil)
	if last.gate == next.gate || last.certGate == next.certGate || last.reach == next.reach || last.entrance.Open() {
		t.Error("another target inherited something")
	}
	last.certGate.Observe(probe.CertVerdict{Seen: probe.SeenIdentity, Message: "carol"})
	if s := status.EffectiveReady(last.spec, last.trust()); s.Reason != k8swatch.ReasonClientCertIsIdentity || s.Message != "carol" {
		t.Errorf("Ready %+v", s)
	}
}

// nobody is a certificate that no server asked for.
func nobody() *k8swatch.ClientCertificate {
	return &k8swatch.ClientCertificate{Leaf: &x509.Certificate{}}
}
