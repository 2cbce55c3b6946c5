package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// roundLimit is within what time after an apiserver is back a round of
	// probes has shown what it is: the interval and its jitter, half the limit
	// of a probe, and a little.
	roundLimit = probeInterval*11/10 + 5*time.Second + slack
	// roundsLimit is how many rounds that may take: one, and one that may have
	// begun just before.
	roundsLimit = 2
	// slack is for a verdict to be written and heard on a loaded machine.
	slack = 2 * time.Second
	// probeAgent is how the proxy's own requests call themselves.
	probeAgent = "proxyauth-probe"
)

// flags is a world whose target is started again with other flags.
type flags struct {
	*world
	leader, standby *replica
	clusters        *hub.Feed[v1.ProxyKubeApi]
	events          *hub.Feed[corev1.Event]
	// mark is how much the audit log of the target held when it was last
	// stopped, stopped and back when that was and when it was ready again.
	mark          int
	stopped, back time.Time
}

// REC-1, TRUST-1, TRUST-4: the flags of an apiserver change under a running,
// trusted cluster. The leader finds out by its next probe, the standby by the
// status; both open when the leader's next probe passes.
func TestTRUST4FlagsChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.replica(t, "proxy-a", nil), w.replica(t, "proxy-b", nil)
	w.good(t, "prod", a, b)
	w.WaitReady(t, namespace, "prod", "True/Serving")
	f := &flags{world: w,
		clusters: hub.Follow[v1.ProxyKubeApi](t, w.Hub, hub.ClustersPath), events: hub.Follow[corev1.Event](t, w.Hub, hub.EventsPath)}
	var others []*replica
	f.leader, others, _ = w.waitHolder(t, a, b)
	f.standby = others[0]
	t.Run("its CA is not believed", f.unknownCA)
	t.Run("its CA signs users", f.clientCA)
	if statuses, _ := f.standby.writes(t); statuses != 0 {
		t.Errorf("the standby wrote %d statuses", statuses)
	}
	w.MustNotHaveBeenForbidden(t)
}

// unknownCA: the proxy's CA is no longer among those that may assert
// identities. There is no traffic: the standby knows by the status alone.
func (f *flags) unknownCA(t *testing.T) {
	for _, r := range f.replicas() {
		r.waitAnswer(t, "prod", 200, "") // opens its gate (TRUST-3)
	}
	file := filepath.Join(f.target.Dir(), "without.ca")
	f.write(t, file, f.target.PKI.AggregationCA)
	before := f.restart(t, []string{"--requestheader-client-ca-file="}, "--requestheader-client-ca-file="+file)
	f.found(t, "FrontProxyNotTrusted", "401", v1.TrustRejected)
	f.closed(t, "FrontProxyNotTrusted")

	f.restart(t, []string{"--requestheader-client-ca-file="}, before...)
	f.trustedAgain(t)
	for _, r := range f.replicas() {
		if n := r.logged(t, "the cluster does not trust this proxy"); n > 0 {
			t.Errorf("%s relayed %d requests that were refused", r.pod, n)
		}
	}
}

// clientCA: the proxy's CA becomes a CA that signs users, and no client may assert
// identities. The apiserver takes every request for one of the certificate's
// own CN until a probe has shown that, at the latest, and in fact a check behind
// the first; from then on none reaches it. Both replicas have traffic all the
// time.
func (f *flags) clientCA(t *testing.T) {
	var loads []*load
	for _, r := range f.replicas() {
		loads = append(loads, startLoad(t, r, "prod"))
	}
	for _, l := range loads {
		l.more(t)
	}
	file := filepath.Join(f.target.Dir(), "users.ca")
	f.write(t, file, f.target.PKI.ClientCA, f.target.PKI.FrontProxyCA)
	before := f.restart(t, []string{"--requestheader-", "--client-ca-file="}, "--client-ca-file="+file)
	told := f.found(t, "UpstreamIdentityNotHonoured", fmt.Sprintf("user %q", kube.FrontProxyName), v1.TrustNotHonoured)
	f.closed(t, "UpstreamIdentityNotHonoured")
	closed := time.Now()
	for range 2 {
		for _, l := range loads {
			l.more(t) // each is answered by the proxy alone
		}
	}
	f.judge(t, told, closed)

	f.restart(t, []string{"--client-ca-file="}, before...)
	f.trustedAgain(t)
	for _, l := range loads {
		l.stop()
		l.done.Wait()
	}
}

// judge looks at who the apiserver with the other flags took requests for.
func (f *flags) judge(t *testing.T, told, closed time.Time) {
	t.Helper()
	var n int
	var first, last time.Time
	for _, e := range f.since(t) {
		came := e.RequestReceivedTimestamp.Time
		switch {
		case e.UserAgent == probeAgent || e.User.Username != kube.FrontProxyName:
			continue
		case came.After(closed):
			t.Errorf("a request ran as %q after the cluster was closed: %s %s", e.User.Username, e.Verb, e.RequestURI)
		case n == 0:
			first = came
		}
		n, last = n+1, came
	}
	if n == 0 {
		t.Log("no request ran under the name of the certificate")
		return
	}
	t.Logf("%d requests ran under the name of the certificate, for %v", n, last.Sub(first).Round(time.Millisecond))
	if took := last.Sub(first); took > roundLimit {
		t.Errorf("that is longer than %v", roundLimit)
	}
	if late := last.Sub(told); late > slack {
		t.Errorf("the last %v after the status had said it", late)
	}
}

func (f *flags) replicas() []*replica { return []*replica{f.leader, f.standby} }

func (f *flags) write(t *testing.T, file string, cas ...*pki.CA) {
	t.Helper()
	if err := os.WriteFile(file, pki.Bundle(cas...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// restart starts the target again with flags in place of those that begin like
// this, which it returns.
func (f *flags) restart(t *testing.T, begin []string, instead ...string) (before []string) {
	t.Helper()
	f.stopped = time.Now()
	f.target.Suspend()
	for _, prefix := range begin {
		before = append(before, f.target.DropArgs(prefix)...)
	}
	events, err := f.target.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	f.mark = len(events)
	if err := f.target.Resume(t.Context(), instead...); err != nil {
		t.Fatal(err)
	}
	f.back = time.Now()
	return before
}

// since are the requests that the target has answered since it was restarted.
func (f *flags) since(t *testing.T) (events []auditv1.Event) {
	t.Helper()
	all, err := f.target.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[types.UID]bool{}
	for _, e := range all[f.mark:] {
		if !seen[e.AuditID] {
			seen[e.AuditID] = true
			events = append(events, e)
		}
	}
	return events
}

// found waits until the status says what the apiserver is now, and returns when
// it did: within one round of probes, which are counted, as is the time.
func (f *flags) found(t *testing.T, reason, text string, trust v1.Trust) time.Time {
	t.Helper()
	status, ok := f.clusters.Await(f.stopped, soon, func(o *v1.ProxyKubeApi) bool {
		return o.Name == "prod" && o.Status != nil && hub.Condition(o.Status, "Ready") == "False/"+reason
	})
	if !ok {
		t.Fatalf("Ready never was False/%s", reason)
	}
	s := status.Object.Status
	if !strings.Contains(hub.Message(s, "Ready"), text) || s.UpstreamAuth == nil || s.UpstreamAuth.Trust != trust {
		t.Errorf("status %+v", s)
	}
	rounds := 0
	for _, e := range f.since(t) {
		// A round asks for the version too, the check that a request causes
		// does not.
		came := e.RequestReceivedTimestamp.Time
		if e.UserAgent == probeAgent && e.RequestURI == "/version" && came.After(f.back) && came.Before(status.At) {
			rounds++
		}
	}
	took := status.At.Sub(f.back)
	t.Logf("told after %d rounds, %v after the apiserver was ready", rounds, took.Round(time.Millisecond))
	if rounds > roundsLimit || took > roundLimit {
		t.Errorf("want %d rounds and %v at most", roundsLimit, roundLimit)
	}
	event, ok := f.events.Await(f.stopped, soon, func(e *corev1.Event) bool {
		return e.InvolvedObject.Name == "prod" && e.Reason == reason && e.Type == corev1.EventTypeWarning
	})
	if late := event.At.Sub(status.At); !ok || late > slack {
		t.Errorf("the Event %s: %v, %v after the status", reason, ok, late)
	}
	return status.At
}

// closed waits until both replicas know, by themselves, and asks them.
func (f *flags) closed(t *testing.T, reason string) {
	t.Helper()
	for _, r := range f.replicas() {
		r.MustCluster(t, namespace, "prod", func(c *proxy.ClusterStatus) bool { return c.Ready() == "False/"+reason })
		client := r.Client("h2")
		if code, message := r.ask(t, client, "prod"); code != 503 || !strings.HasSuffix(message, "not ready for upstream mode FrontProxy: "+reason) {
			t.Errorf("%s: %d %s", r.pod, code, message)
		}
		client.CloseIdleConnections()
	}
}

// trustedAgain waits until both replicas serve by themselves.
func (f *flags) trustedAgain(t *testing.T) {
	t.Helper()
	status, ok := f.clusters.Await(f.stopped, soon, func(o *v1.ProxyKubeApi) bool {
		return o.Name == "prod" && o.Status != nil && hub.Condition(o.Status, "Ready") == "True/Serving"
	})
	if !ok {
		t.Fatal("not trusted again")
	}
	took := status.At.Sub(f.back)
	t.Logf("trusted again %v after the apiserver was ready", took.Round(time.Millisecond))
	if took > roundLimit {
		t.Errorf("want %v at most", roundLimit)
	}
	for _, r := range f.replicas() {
		r.MustServe(t, namespace, "prod")
		r.waitAnswer(t, "prod", 200, "")
	}
}
