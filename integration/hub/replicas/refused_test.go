package replicas

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-1, TRUST-1, TRUST-4: the flags of an apiserver change under a running,
// trusted cluster. The leader finds out by its probe and the standby, which
// has no traffic, by the status; both open when the leader's next probe passes.
func TestTRUST4FlagsChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.replica(t, "proxy-a", nil), w.replica(t, "proxy-b", nil)
	w.good(t, "prod", a, b)
	w.WaitReady(t, namespace, "prod", "True/Serving")
	leader, others, _ := w.waitHolder(t, a, b)
	standby := others[0]
	for _, r := range []*replica{leader, standby} {
		r.waitAnswer(t, "prod", 200, "") // opens its gate (TRUST-3)
	}

	// The proxy's CA is no longer among those that may assert identities.
	without := filepath.Join(w.target.Dir(), "without.ca")
	if err := os.WriteFile(without, pki.Bundle(w.target.PKI.AggregationCA), 0o600); err != nil {
		t.Fatal(err)
	}
	restart(t, w, without)
	s := w.WaitReady(t, namespace, "prod", "False/FrontProxyNotTrusted")
	if s.UpstreamAuth == nil || s.UpstreamAuth.Trust != v1.TrustRejected {
		t.Errorf("trust %+v", s.UpstreamAuth)
	}
	if took, round := s.UpstreamAuth.TrustSince.Sub(w.back), 2*probeInterval; took > round {
		t.Errorf("found out %v after the apiserver was back, more than a round", took)
	} else {
		t.Logf("found out %v after the apiserver was back, in whole seconds", took)
	}
	w.WaitEvent(t, namespace, "prod", "FrontProxyNotTrusted")
	closed := func(c *proxy.ClusterStatus) bool { return c.Ready() == "False/FrontProxyNotTrusted" }
	for _, r := range []*replica{leader, standby} {
		r.MustCluster(t, namespace, "prod", closed)
		client := r.Client("h2")
		if code, message := r.ask(t, client, "prod"); code != 503 || !strings.Contains(message, "not ready for upstream mode FrontProxy: FrontProxyNotTrusted") {
			t.Errorf("%s: %d %s", r.pod, code, message)
		}
		client.CloseIdleConnections()
	}

	restart(t, w, filepath.Join(w.target.Dir(), "front-proxy.ca"))
	w.WaitReady(t, namespace, "prod", "True/Serving")
	t.Logf("trusted again %v after the apiserver was back", time.Since(w.back).Round(time.Millisecond))
	for _, r := range []*replica{leader, standby} {
		r.MustServe(t, namespace, "prod") // by itself: nobody has asked yet
		r.waitAnswer(t, "prod", 200, "")
		if n := r.logged(t, "the cluster does not trust this proxy"); n > 0 {
			t.Errorf("%s relayed %d requests that were refused", r.pod, n)
		}
	}
	if statuses, _ := standby.writes(t); statuses != 0 {
		t.Errorf("the standby wrote %d statuses", statuses)
	}
	w.MustNotHaveBeenForbidden(t)
}

// restart starts the target again with another file of CAs for request headers.
func restart(t *testing.T, w *world, file string) {
	t.Helper()
	w.target.Suspend()
	if err := w.target.Resume(t.Context(), "--requestheader-client-ca-file="+file); err != nil {
		t.Fatal(err)
	}
	w.back = time.Now()
}
