package replicas

import (
	"syscall"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-1, REC-2, TRUST-4, CRD-03: two replicas on one hub.
func TestREC1TwoReplicas(t *testing.T) {
	t.Parallel()
	twoReplicas(t, newWorld(t))
}

func twoReplicas(t *testing.T, w *world) {
	a := w.replica(t, "proxy-a", nil)
	b := w.replica(t, "proxy-b", nil)
	for _, name := range []string{"prod", "gap"} {
		w.good(t, name, a, b)
		w.WaitReady(t, namespace, name, "True/Serving")
	}
	leader, others, _ := w.waitHolder(t, a, b)
	standby := others[0]
	t.Run("both serve, one writes", func(t *testing.T) { testOneWrites(t, leader, standby) })
	t.Run("TRUST-4 forged status", func(t *testing.T) { testForged(t, w, leader, standby) })
	t.Run("reload", func(t *testing.T) { testReload(t, w, leader, standby) })
	t.Run("SIGTERM", func(t *testing.T) { testTerminated(t, w, leader, standby) })
	t.Run("kill -9", func(t *testing.T) { testKilled(t, w, standby, leader) })
	w.MustNotHaveBeenForbidden(t)
}

func testOneWrites(t *testing.T, leader, standby *replica) {
	for _, r := range []*replica{leader, standby} {
		who := r.Kubectl(t, namespace, "prod", r.w.token).MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if who.Stdout != prefix+"alice" {
			t.Errorf("%s: %q", r.pod, who.Stdout)
		}
	}
	if statuses, events := leader.writes(t); statuses == 0 || events == 0 {
		t.Errorf("the leader wrote %d statuses and %d events", statuses, events)
	}
	if statuses, events := standby.writes(t); statuses != 0 || events != 0 {
		t.Errorf("the standby wrote %d statuses and %d events", statuses, events)
	}
}

// patchStatus forges a status as an administrator could.
func patchStatus(t *testing.T, w *world, name, patch string) {
	t.Helper()
	w.Admin.MustRun(t, "patch", "-n", namespace, v1.Resource, name, "--subresource=status", "--type=merge", "-p", patch)
}

const (
	saysRefused = `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"FrontProxyNotTrusted","message":"forged","lastTransitionTime":"2030-01-01T00:00:00Z"}]}}`
	saysTrusted = `{"status":{"error":null,"upstreamAuth":{"mode":"FrontProxy","trust":"Trusted"},"conditions":[{"type":"Ready","status":"True","reason":"Serving","message":"forged","lastTransitionTime":"2030-01-01T00:00:00Z"}]}}`
)

// testForged stops the leader for a moment, so that a forged status stays long
// enough for the standby to be asked under it.
func testForged(t *testing.T, w *world, leader, standby *replica) {
	ca, err := pki.NewCA("unknown-ca")
	if err != nil {
		t.Fatal(err)
	}
	w.cluster(t, "untrusted", pki.Must(ca.Client(kube.FrontProxyName)))
	w.WaitReady(t, namespace, "untrusted", "False/FrontProxyNotTrusted")
	const refusal = "not ready for upstream mode FrontProxy: FrontProxyNotTrusted"
	standby.waitAnswer(t, "untrusted", 503, refusal)

	pause(t, leader)
	patchStatus(t, w, "prod", saysRefused)
	patchStatus(t, w, "untrusted", saysTrusted)
	took := standby.waitAnswer(t, "prod", 503, refusal)
	t.Logf("the standby closed %v after a forged refusal", took.Round(time.Millisecond))
	took = standby.waitAnswer(t, "prod", 200, "")
	t.Logf("and opened %v later, when its own check had passed", took.Round(time.Millisecond))
	client := standby.Client("h2")
	defer client.CloseIdleConnections()
	for range 20 {
		if code, message := standby.ask(t, client, "untrusted"); code != 503 {
			t.Errorf("a forged status opens: %d %s", code, message)
		}
		time.Sleep(50 * time.Millisecond)
	}
	resume(t, leader)
	w.WaitReady(t, namespace, "prod", "True/Serving")
	w.WaitReady(t, namespace, "untrusted", "False/FrontProxyNotTrusted")
	for _, r := range []*replica{leader, standby} {
		r.waitAnswer(t, "untrusted", 503, refusal)
		r.waitAnswer(t, "prod", 200, "")
	}
	w.Delete(t, namespace, v1.Resource, "untrusted")
}

func pause(t *testing.T, r *replica) {
	t.Helper()
	if err := r.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Signal(syscall.SIGCONT) })
}

func resume(t *testing.T, r *replica) {
	t.Helper()
	if err := r.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// testReload reloads both, with the same options and with others: the one
// keeps the runtime, the other replaces it.
func testReload(t *testing.T, w *world, leader, standby *replica) {
	before, _ := w.lease(t)
	loads := []*load{startLoad(t, leader, "prod"), startLoad(t, standby, "prod")}
	for _, change := range []func(*proxy.Options){nil, func(o *proxy.Options) { o.Settings = "probe_interval 6s" }} {
		for _, r := range []*replica{leader, standby} {
			if err := r.Reload(t.Context(), change); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The leader renews and writes as before.
	renewed := func() bool {
		after, _ := w.lease(t)
		return after.Spec.RenewTime.Sub(before.Spec.RenewTime.Time) > 5*time.Second
	}
	w.Eventually(t, "the Lease is renewed", renewed)
	// The forged status is going to close the standby for a moment.
	loads[1].mustHaveServed(t)
	patchStatus(t, w, "prod", saysRefused)
	w.WaitReady(t, namespace, "prod", "True/Serving")
	standby.waitAnswer(t, "prod", 200, "")
	after, _ := w.lease(t)
	if *after.Spec.HolderIdentity != *before.Spec.HolderIdentity || *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions {
		t.Errorf("the Lease went from %s, %d to %s, %d", *before.Spec.HolderIdentity, *before.Spec.LeaseTransitions,
			*after.Spec.HolderIdentity, *after.Spec.LeaseTransitions)
	}
	loads[0].mustHaveServed(t)
}

// testTerminated: a leader that is told to end gives the Lease back.
func testTerminated(t *testing.T, w *world, leader, standby *replica) {
	traffic := startLoad(t, standby, "prod")
	start := time.Now()
	leader.stop(t)
	ended := time.Now()
	if holder := w.holder(t); holder == leader.pod {
		t.Errorf("%s has ended and holds the Lease", holder)
	}
	w.waitHolder(t, standby)
	took := time.Since(ended)
	t.Logf("%s leads %v after %s ended, which took %v", standby.pod, took.Round(time.Millisecond), leader.pod, ended.Sub(start).Round(time.Millisecond))
	if took > 10*time.Second {
		t.Error("as if the Lease had to expire")
	}
	traffic.mustHaveServed(t)
	if err := leader.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	leader.waitAnswer(t, "prod", 200, "")
	if holder := w.holder(t); holder != standby.pod {
		t.Errorf("%s holds the Lease", holder)
	}
}

// takeover is how long after the lease time another replica leads: it looks
// every 2.2 s at the latest, sees the last renewal with one look and that the
// Lease has stood still since with another.
const takeover = 2*2200*time.Millisecond + time.Second

// testKilled: a leader that dies is replaced when its lease is over, and what
// changed meanwhile is served by the survivor and found in its status.
func testKilled(t *testing.T, w *world, leader, survivor *replica) {
	traffic := startLoad(t, survivor, "prod")
	leader.Kill()
	killed := time.Now()
	w.Patch(t, namespace, v1.Resource, "gap", `{"spec":{"enabled":false}}`)
	took := survivor.waitAnswer(t, "gap", 404, "")
	t.Logf("a change is served %v after it was made", took.Round(time.Millisecond))
	if took > 10*time.Second {
		t.Error("that is too late")
	}
	w.waitHolder(t, survivor)
	l, _ := w.lease(t)
	took = l.Spec.AcquireTime.Sub(killed)
	t.Logf("%s leads %v after %s was killed", survivor.pod, took.Round(time.Millisecond), leader.pod)
	if most := time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second + takeover; took > most {
		t.Errorf("that is later than %v", most)
	}
	generation := w.Cluster(t, namespace, "gap").Generation
	s := w.WaitStatus(t, namespace, "gap", "False/Disabled", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "Ready") == "False/Disabled" && s.ObservedGeneration == generation
	})
	right := time.Since(killed)
	t.Logf("the status says %s %v after the kill", readyIs(s), right.Round(time.Millisecond))
	if right > 30*time.Second {
		t.Error("that is too late")
	}
	traffic.mustHaveServed(t)
}
