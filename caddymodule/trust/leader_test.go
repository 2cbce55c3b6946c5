package trust

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

const installation = "proxyauth/proxyauthk8s"

// told is the status of an object with that reason of Ready since minute.
func told(generation int64, reason string, minute int) *v1.ProxyKubeApiStatus {
	status := metav1.ConditionFalse
	if reason == k8swatch.ReasonServing {
		status = metav1.ConditionTrue
	}
	return &v1.ProxyKubeApiStatus{ObservedBy: installation, ObservedGeneration: generation, Conditions: []metav1.Condition{
		{Type: "Reachable", Status: metav1.ConditionTrue, Reason: "Answered"},
		{Type: "Ready", Status: status, Reason: reason, Message: "told", LastTransitionTime: metav1.NewTime(time.Unix(int64(60*minute), 0))},
	}}
}

// refusing is an apiserver that answers 401 to everything, and counts: a
// certificate is no identity there, and no front proxy is trusted.
func refusing(t *testing.T) (k8swatch.Target, *x509.CertPool, *atomic.Int32) {
	var asked atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return k8swatch.Target{Address: u.Host, Host: u.Host}, roots, &asked
}

// follower is the trust of a cluster with open gates.
func follower(t *testing.T, mode v1.UpstreamMode) (*Trust, *atomic.Int32) {
	target, roots, asked := refusing(t)
	spec := &k8swatch.Cluster{Enabled: true, Mode: mode, Generation: 7, Probe: true, Target: target, CA: roots, ServerName: "example.com",
		Ready: k8swatch.Condition{Type: "Ready", Status: "True", Reason: k8swatch.ReasonServing}}
	if mode == v1.ModePassthrough {
		spec.ClientCert = &k8swatch.ClientCertificate{}
	}
	c := &Trust{
		spec: spec, requestPair: Connect(spec, nil),
		frontProxy: NewGate[probe.Verdict](nil), clientCert: NewGate[probe.CertVerdict](nil),
		leader: new(leaderVerdict),
	}
	t.Cleanup(c.requestPair.Retire)
	c.ObserveFrontProxy(probe.Verdict{Trust: v1.TrustTrusted})
	c.ObserveClientCert(probe.CertVerdict{Seen: probe.SeenAnonymous})
	c.guard = guardOf(c)
	return c, asked
}

func observedBy(another string, s *v1.ProxyKubeApiStatus) *v1.ProxyKubeApiStatus {
	s.ObservedBy = another
	return s
}

// TRUST-4, REC-8: which status closes what; none opens.
func TestReadStatus(t *testing.T) {
	const notTrusted, notHonoured, identity = k8swatch.ReasonFrontProxyNotTrusted, k8swatch.ReasonUpstreamIdentityNotHonoured, k8swatch.ReasonClientCertIsIdentity
	tests := map[string]struct {
		mode   v1.UpstreamMode
		status *v1.ProxyKubeApiStatus
		closed string // the reason of the answer
	}{
		"no status":                          {v1.ModeFrontProxy, nil, ""},
		"serving":                            {v1.ModeFrontProxy, told(7, k8swatch.ReasonServing, 0), ""},
		"rejected":                           {v1.ModeFrontProxy, told(7, notTrusted, 0), notTrusted},
		"not honoured":                       {v1.ModeFrontProxy, told(7, notHonoured, 0), notHonoured},
		"rejected by another installation":   {v1.ModeFrontProxy, observedBy("other/proxyauthk8s", told(7, notTrusted, 0)), ""},
		"rejected by an unknown writer":      {v1.ModeFrontProxy, observedBy("", told(7, notTrusted, 0)), ""},
		"an older generation":                {v1.ModeFrontProxy, told(6, notTrusted, 0), ""},
		"a newer generation":                 {v1.ModeFrontProxy, told(8, notTrusted, 0), ""},
		"another reason":                     {v1.ModeFrontProxy, told(7, k8swatch.ReasonDisabled, 0), ""},
		"client_cert in FrontProxy":          {v1.ModeFrontProxy, told(7, identity, 0), ""},
		"client_cert":                        {v1.ModePassthrough, told(7, identity, 0), identity},
		"rejected, though in preparation":    {v1.ModePassthrough, told(7, notTrusted, 0), ""},
		"client_cert of another generation":  {v1.ModePassthrough, told(8, identity, 0), ""},
		"not honoured, though client_cert":   {v1.ModePassthrough, told(7, notHonoured, 0), ""},
		"serving, though there is some cert": {v1.ModePassthrough, told(7, k8swatch.ReasonServing, 0), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, asked := follower(t, tt.mode)
			c.ReadStatus(tt.status, installation)
			if n := asked.Load(); n != 0 {
				t.Errorf("asked %d times", n)
			}
			if reason := c.ClosedReason(); reason != tt.closed {
				t.Errorf("refused with %q, want %q", reason, tt.closed)
			}
			if c.Open() != (tt.closed == "") {
				t.Errorf("open: %t", c.Open())
			}
		})
	}
}

// A gate outlives the certificate it is about. A status that is read meanwhile
// causes no probe: there is no certificate to probe with.
func TestReadStatusWithoutCertificate(t *testing.T) {
	c, asked := follower(t, v1.ModeFrontProxy)
	c.ReadStatus(told(7, k8swatch.ReasonFrontProxyNotTrusted, 0), installation)
	spec := *c.spec
	spec.Probe = false
	c = New(&spec, nil, c, boundedjson.NewReader(1), nil)
	for minute, reason := range []string{k8swatch.ReasonClientCertMissing, k8swatch.ReasonUpstreamIdentityNotHonoured, k8swatch.ReasonServing} {
		c.ReadStatus(told(7, reason, minute+1), installation)
	}
	if v := c.probe(t.Context()); v.Trust != v1.TrustUnknown {
		t.Errorf("a probe without a certificate: %+v", v)
	}
	time.Sleep(100 * time.Millisecond) // a check would run on its own
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	if c.Open() {
		t.Error("open without a certificate")
	}
}

// A refusal in the status closes once; what the replica has seen since then
// stands until the status changes. When the refusal has gone the apiserver is
// asked.
func TestReadStatusOnlyChanges(t *testing.T) {
	c, asked := follower(t, v1.ModePassthrough)
	step := func(what string, status *v1.ProxyKubeApiStatus, open bool) {
		t.Helper()
		c.ReadStatus(status, installation)
		if c.Open() != open {
			t.Fatalf("%s: open %t", what, c.Open())
		}
	}
	pass := func() { c.ObserveClientCert(probe.CertVerdict{Seen: probe.SeenAnonymous}) }
	step("a refusal", told(7, k8swatch.ReasonClientCertIsIdentity, 1), false)
	pass()
	step("the same refusal", told(7, k8swatch.ReasonClientCertIsIdentity, 1), true)
	step("a refusal since later", told(7, k8swatch.ReasonClientCertIsIdentity, 2), false)
	if asked.Load() != 0 {
		t.Fatal("asked too early")
	}
	c.ReadStatus(told(7, k8swatch.ReasonServing, 3), installation)
	for deadline := time.Now().Add(10 * time.Second); !c.Open() && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if !c.Open() || asked.Load() != 1 {
		t.Fatalf("without the refusal: open %t, asked %d times", c.Open(), asked.Load())
	}
	step("the status is as before", told(7, k8swatch.ReasonServing, 3), true)

	// The last refusal outlives a trust key: an old one does not close a new gate.
	c.ReadStatus(told(7, k8swatch.ReasonClientCertIsIdentity, 4), installation)
	spec := *c.spec
	spec.ServerName = "other.example.com"
	next := New(&spec, c.requestPair, c, boundedjson.NewReader(1), nil)
	next.ObserveClientCert(probe.CertVerdict{Seen: probe.SeenAnonymous})
	next.ReadStatus(told(7, k8swatch.ReasonClientCertIsIdentity, 4), installation)
	if !next.Open() {
		t.Error("an old refusal closed a new gate")
	}
}
