package replicas

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// standby is another installation on the same hub: another namespace of its own,
// without certificates, and another Lease.
func (w *world) standby(t *testing.T, selector string) *proxy.Proxy {
	t.Helper()
	return proxy.Start(t, proxy.Options{Hub: w.Admin.Kubeconfig, Namespace: "team-b", LeaderElection: "standby", ObjectSelector: selector,
		Settings: "probe_interval " + probeInterval.String(), LogLevel: "INFO"})
}

// unrefused asks all the time until stop is called, and fails the test for each
// answer that is not the apiserver's.
func (r *replica) unrefused(t *testing.T, name string) (stop func()) {
	t.Helper()
	client := r.Client("h2")
	ended := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for asked := 0; ; asked++ {
			select {
			case <-ended:
				t.Logf("%d requests", asked)
				return
			case <-time.After(20 * time.Millisecond):
			}
			if code, message, err := r.try(t, client, name); err != nil || code != http.StatusOK {
				t.Errorf("request %d: %d %q %v", asked, code, message, err)
				return
			}
		}
	})
	return func() {
		close(ended)
		asking.Wait()
		client.CloseIdleConnections()
	}
}

// REC-8: two installations serve the same objects. One of them writes each status,
// once, and the one that has a certificate serves all the while.
func TestREC8TwoInstallations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.replica(t, "proxy-a", nil)
	b := w.standby(t, "")
	feed := hub.Follow[v1.ProxyKubeApi](t, w.Hub, hub.ClustersPath)
	w.waitHolder(t, a)
	for _, name := range []string{"prod", "late"} {
		w.good(t, name, a)
	}
	b.MustCluster(t, namespace, "prod", func(s *proxy.ClusterStatus) bool { return s.Ready() == "False/ClientCertMissing" })
	w.waitStatuses(t, "prod", "late")
	began := time.Now()
	stop := a.unrefused(t, "prod")
	time.Sleep(15 * time.Second)
	// The one that has no certificate must not close the other, whatever it writes
	// first, and when.
	w.Patch(t, namespace, v1.Resource, "prod", `{"spec":{"proxy_group":null,"dashboard_group":"some"}}`)
	w.Eventually(t, "the status of the new generation", func() bool {
		o := w.Cluster(t, namespace, "prod")
		return o.Status.ObservedGeneration == o.Generation
	})
	time.Sleep(5 * time.Second)
	stop()
	versions := feed.Since(began)
	if len(versions) > 4 {
		t.Errorf("%d versions of two objects in %v", len(versions), time.Since(began))
	}
	for _, v := range versions {
		t.Logf("%s: %s by %s", v.Object.Name, readyIs(v.Object.Status), v.Object.Status.ObservedBy)
	}
	w.WaitEvent(t, namespace, "prod", "ObservedByAnother")

	// The labels tell the installations apart.
	labelled := w.standby(t, "proxy in (edge, test)")
	client := labelled.Client("h2")
	defer client.CloseIdleConnections()
	answers := func(code int) {
		t.Helper()
		r := replica{Proxy: labelled, w: w, pod: "labelled"}
		r.waitAnswer(t, "prod", code, "")
	}
	answers(http.StatusNotFound)
	w.Admin.MustRun(t, "label", "-n", namespace, "pka/prod", "proxy=edge")
	answers(http.StatusServiceUnavailable) // it has no certificate
	w.Admin.MustRun(t, "label", "-n", namespace, "pka/prod", "proxy-")
	answers(http.StatusNotFound)
}

// waitStatuses waits until objects have a status.
func (w *world) waitStatuses(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.WaitStatus(t, namespace, name, "an observer", func(s *v1.ProxyKubeApiStatus) bool { return s.ObservedBy != "" })
	}
}

// REC-8: a controller of another product keeps the same status right, too. The proxy
// writes a bounded number of times, says so, and serves.
func TestREC8AnotherController(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.replica(t, "proxy-a", nil)
	w.cluster(t, "prod", pki.Must(w.target.FrontProxy()))
	w.WaitReady(t, namespace, "prod", "True/Serving")
	before, _ := a.writes(t)
	stop := a.unrefused(t, "prod")
	c := w.contender(t)
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(50 * time.Millisecond) {
		if o := w.Cluster(t, namespace, "prod"); len(o.Status.Conditions) > 0 {
			c.patch(t, `{"status":{"exposed":true,"path":"/elsewhere","conditions":null}}`, "status")
		}
	}
	stop()
	after, _ := a.writes(t)
	t.Logf("%d writes of the status against %d of another controller", after-before, c.writes)
	if n := after - before; n < 3 || n > 25 {
		t.Errorf("%d writes of the status in half a minute", n)
	}
	w.WaitEvent(t, namespace, "prod", "ObservedByAnother")
	if a.logged(t, "another program writes the status of a cluster") != 1 {
		t.Error("the log does not tell of it, or more than once")
	}
}
