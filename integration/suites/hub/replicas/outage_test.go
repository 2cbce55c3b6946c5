package replicas

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-2: the hub goes away for longer than a lease, and than the half minute
// after which each replica probes for itself. TestLongREC2Outage takes two
// minutes.
func TestREC2Outage(t *testing.T) {
	t.Parallel()
	outage(t, newWorld(t), aloneAfter+45*time.Second)
}

// aloneAfter is how long the hub is silent before each replica probes.
const aloneAfter = 30 * time.Second

func outage(t *testing.T, w *world, lasts time.Duration) {
	a, b, d := w.replica(t, "proxy-a", nil), w.replica(t, "proxy-b", nil), w.replica(t, "proxy-d", nil)
	w.good(t, "prod", a, b, d)
	w.WaitReady(t, namespace, "prod", "True/Serving")
	_, standbys, _ := w.waitHolder(t, a, b, d)
	for _, r := range standbys {
		if n := r.logged(t, asksOnSchedule); n > 0 {
			t.Errorf("%s probed on schedule and does not lead", r.pod)
		}
	}
	loads := []*load{startLoad(t, a, "prod"), startLoad(t, b, "prod")}

	kubeconfig := w.account(t)
	w.Suspend()
	away := time.Now()
	c := w.replicaWith(t, "proxy-c", kubeconfig, nil)
	// A reload that would begin without clusters is refused; the configuration
	// in force goes on.
	reloaded := make(chan error, 1)
	go func() {
		reloaded <- d.Reload(t.Context(), func(o *proxy.Options) { o.Settings = "probe_interval 7s" })
	}()
	for time.Since(away) < lasts {
		if code := c.ready(t); code != http.StatusServiceUnavailable {
			t.Errorf("a replica without a list is ready: %d", code)
		}
		c.waitAnswer(t, "prod", 503, "has not read its clusters yet")
		time.Sleep(time.Second)
	}
	if err := <-reloaded; err == nil || !strings.Contains(err.Error(), "the configuration in force stays") {
		t.Errorf("a reload while the hub is away: %v", err)
	}
	d.waitAnswer(t, "prod", 200, "")
	w.mustHaveProbed(t, standbys, away.Add(aloneAfter+15*time.Second))
	if err := w.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()

	took := w.Eventually(t, "the new replica is ready", func() bool { return c.ready(t) == http.StatusOK })
	t.Logf("the replica that started without the hub is ready %v after it is back", took.Round(time.Millisecond))
	c.waitAnswer(t, "prod", 200, "")
	_, _, took = w.waitHolder(t, a, b, c, d)
	t.Logf("there is a leader %v later", took.Round(time.Millisecond))
	w.Patch(t, namespace, v1.Resource, "prod", `{"spec":{"expose_via_dashboard":false,"proxy_group":"team-a"}}`)
	generation := w.Cluster(t, namespace, "prod").Generation
	w.WaitStatus(t, namespace, "prod", "the new generation", func(s *v1.ProxyKubeApiStatus) bool {
		return s.ObservedGeneration == generation && hub.Condition(s, "Ready") == "True/Serving" && hub.Condition(s, "Reachable") == "True/Answered"
	})
	t.Logf("the status is right %v after the hub is back", time.Since(back).Round(time.Millisecond))
	for _, l := range loads {
		l.mustHaveServed(t)
		if n := l.r.logged(t, "the hub apiserver cannot be asked"); n != 1 {
			t.Errorf("%s told %d times that the hub is away", l.r.pod, n)
		}
		if n := l.r.logged(t, "the hub apiserver answers again"); n != 1 {
			t.Errorf("%s told %d times that the hub is back", l.r.pod, n)
		}
	}
	// An apiserver that starts refuses all clients before it has read its roles.
	refused := w.Requests(t, func(e *auditv1.Event) bool {
		return e.ResponseStatus != nil && (e.ResponseStatus.Code == 403 || e.ResponseStatus.Code == 401) &&
			(e.StageTimestamp.Time.Before(away) || e.StageTimestamp.Time.After(back))
	})
	for _, e := range refused {
		t.Errorf("forbidden: %s %s", e.Verb, e.RequestURI)
	}
}

// asksOnSchedule is in the log of a replica once it has begun to probe.
const asksOnSchedule = "the apiserver was asked whether it answers"

// mustHaveProbed fails the test unless each replica has probed: without a leader
// each does.
func (w *world) mustHaveProbed(t *testing.T, standbys []*replica, since time.Time) {
	t.Helper()
	for _, r := range standbys {
		if r.logged(t, asksOnSchedule) == 0 {
			t.Errorf("%s never probed without a leader", r.pod)
		}
	}
	events, err := w.target.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	probed := 0
	for _, e := range events {
		if e.Stage == auditv1.StageResponseComplete && e.User.Username == prefix+probeAgent && e.StageTimestamp.After(since) {
			probed++
		}
	}
	// A round may take up to an interval longer than it should on a loaded
	// machine; one replica alone would not even then come up to this.
	least := (1 + len(standbys)) * int(time.Since(since)/(2*probeInterval))
	t.Logf("%d probes without a leader", probed)
	if probed < least {
		t.Errorf("want %d at least", least)
	}
}

// With leader_election off a process leads without a Lease. It writes nothing
// while nothing changes, however often it probes.
func TestREC4LeaderElectionOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.replica(t, "proxy-a", func(o *proxy.Options) {
		o.LeaderElection = "off"
		o.Settings = "probe_interval 1s"
	})
	w.good(t, "prod", r)
	w.WaitReady(t, namespace, "prod", "True/Serving")
	if l, ok := w.lease(t); ok {
		t.Errorf("a Lease: %+v", l.Spec)
	}
	t.Run("REC-4 events", func(t *testing.T) { testEvents(t, w) })
	t.Run("CRD-03 conflicts", func(t *testing.T) { testConflicts(t, w, r) })
	t.Run("REC-4 idle", func(t *testing.T) { testIdle(t, w, r) })
	w.MustNotHaveBeenForbidden(t)
}

// testEvents: one for each change of a condition's status or reason.
func testEvents(t *testing.T, w *world) {
	for range 2 {
		w.Patch(t, namespace, v1.Resource, "prod", `{"spec":{"enabled":false}}`)
		w.WaitReady(t, namespace, "prod", "False/Disabled")
		w.Patch(t, namespace, v1.Resource, "prod", `{"spec":{"enabled":true}}`)
		w.WaitReady(t, namespace, "prod", "True/Serving")
	}
	count := func(reason string) (n int32) {
		for _, e := range w.Events(t, namespace, "prod") {
			if e.Reason == reason {
				n += max(e.Count, 1)
			}
		}
		return n
	}
	// Serving at first and after each of the two, Disabled twice.
	for reason, want := range map[string]int32{"Serving": 3, "Disabled": 2} {
		w.Eventually(t, "the Events "+reason, func() bool { return count(reason) >= want })
		if n := count(reason); n != want {
			t.Errorf("%d Events %s, want %d", n, reason, want)
		}
	}
}

// testIdle: nothing is written while only the time of the last probe changes.
func testIdle(t *testing.T, w *world, r *replica) {
	probes := func() (n int) {
		all, err := w.target.AuditEvents()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.ObjectRef != nil && e.ObjectRef.Resource == "selfsubjectreviews" {
				n++
			}
		}
		return n
	}
	// What the conflicts were the cause of has been written by then.
	quiet(t, r)
	statuses, events := r.writes(t)
	before := probes()
	w.Eventually(t, "20 rounds of probes", func() bool { return probes() >= before+20 })
	after, eventsAfter := r.writes(t)
	if after != statuses || eventsAfter != events {
		t.Errorf("%d writes of the status and %d of Events while nothing changed", after-statuses, eventsAfter-events)
	}
}

// quiet waits until nothing was written for three seconds.
func quiet(t *testing.T, r *replica) {
	t.Helper()
	deadline := time.Now().Add(soon)
	var last []int
	since := time.Now()
	for time.Since(since) < 3*time.Second {
		statuses, events := r.writes(t)
		if now := []int{statuses, events}; !slices.Equal(now, last) {
			last, since = now, time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatal("it goes on writing")
		}
		time.Sleep(200 * time.Millisecond)
	}
}
