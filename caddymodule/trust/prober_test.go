package trust

import (
	"context"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/status"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// One round asks all three questions, and calls changed for the status (REC-4):
// for each change, and at the end of the round. A process that does not lead
// asks nothing of itself, and checks for requests all the same.
func TestProberRound(t *testing.T) {
	target, roots, requests := refusing(t)
	var told atomic.Int32
	changed := func(key k8swatch.Key) {
		if key.Name != "prod" {
			t.Errorf("told of %v", key)
		}
		told.Add(1)
	}
	p := NewProber(time.Hour, zap.NewNop(), changed)
	spec := func(userPrefix string) *k8swatch.Cluster {
		return &k8swatch.Cluster{
			Key: k8swatch.Key{Namespace: "team-a", Name: "prod"}, Enabled: true, Mode: v1.ModePassthrough, Target: target, CA: roots,
			ServerName: "example.com", FrontProxy: unwanted(), ClientCert: unwanted(),
			UserPrefix: userPrefix, GroupPrefix: "g:", TargetKnown: true, Probe: true, Preparing: true,
			Ready: k8swatch.Condition{Type: "Ready", Status: "True", Reason: k8swatch.ReasonServing},
		}
	}
	assemble := func(spec *k8swatch.Cluster, relay *upstream.Pair, previous *Trust) *Trust {
		c := New(spec, relay, previous, boundedjson.NewReader(1), func() { changed(spec.Key) })
		t.Cleanup(func() { c.Retire(nil) })
		return c
	}
	first := spec("u:")
	relay := Connect(first, first.ClientCert)
	defer relay.Retire()
	c := assemble(first, relay, nil)
	p.Follow(map[k8swatch.Key]*Trust{first.Key: c})

	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { p.Run(ctx) })
	defer done.Wait()
	defer cancel()
	if reason := c.AwaitVerdict(t.Context()); reason != "" || requests.Load() != 1 {
		t.Fatalf("the check of a request: %q, %d requests", reason, requests.Load())
	}
	if told.Load() != 1 {
		t.Errorf("told %d times of the check", told.Load())
	}
	p.Lead(true)
	for deadline := time.Now().Add(30 * time.Second); c.Reachable() == nil || c.State().Trust == "" || told.Load() < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("reachable %v, trust %+v, told %d times", c.Reachable(), c.State(), told.Load())
		}
	}
	// Told: client_cert passed, the certificate is rejected, the apiserver
	// answers, the round ended.
	if r := c.Reachable(); r.Reason != k8swatch.ReasonAnswered || c.State().Trust != v1.TrustRejected || told.Load() != 4 || requests.Load() != 4 {
		t.Errorf("reachable %v, trust %+v, told %d times, %d requests", r, c.State(), told.Load(), requests.Load())
	}

	// What is about the same stays, what is about another trust key does not.
	next := assemble(spec("other:"), relay, c)
	if next.frontProxy == c.frontProxy || next.clientCert != c.clientCert || next.reach != c.reach || next.leader != c.leader {
		t.Error("another prefix: what is known was not kept, or too much")
	}
	moved := spec("other:")
	moved.Target.Canonical = "elsewhere"
	last := assemble(moved, relay, next)
	if last.frontProxy == next.frontProxy || last.clientCert == next.clientCert || last.reach == next.reach || last.Open() {
		t.Error("another target inherited something")
	}
	last.ObserveClientCert(probe.CertVerdict{Seen: probe.SeenIdentity, Message: "carol"})
	if s := status.EffectiveReady(last.spec, last.State()); s.Reason != k8swatch.ReasonClientCertIsIdentity || s.Message != "carol" {
		t.Errorf("Ready %+v", s)
	}
}

// unwanted is a certificate that no server asked for.
func unwanted() *k8swatch.ClientCertificate {
	return &k8swatch.ClientCertificate{Leaf: &x509.Certificate{}}
}
