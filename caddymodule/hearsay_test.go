package caddymodule

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// told is the status of an object with that reason of Ready since minute.
func told(generation int64, reason string, minute int) *v1.ProxyKubeApiStatus {
	status := metav1.ConditionFalse
	if reason == k8swatch.ReasonServing {
		status = metav1.ConditionTrue
	}
	return &v1.ProxyKubeApiStatus{ObservedGeneration: generation, Conditions: []metav1.Condition{
		{Type: "Reachable", Status: metav1.ConditionTrue, Reason: "Answered"},
		{Type: "Ready", Status: status, Reason: reason, Message: "told", LastTransitionTime: metav1.NewTime(time.Unix(int64(60*minute), 0))},
	}}
}

// refusing is an apiserver that answers 401 to everything, and counts: a
// certificate is nobody's there, and no front proxy is trusted.
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

// heeding is a cluster with open gates.
func heeding(t *testing.T, mode v1.UpstreamMode) (*cluster, *atomic.Int32) {
	target, roots, asked := refusing(t)
	c := &cluster{
		spec: &k8swatch.Cluster{Mode: mode, Generation: 7, Probe: true, Target: target, CA: roots, ServerName: "example.com",
			Ready: k8swatch.Condition{Type: "Ready", Status: "True", Reason: k8swatch.ReasonServing}},
		gate: upstream.NewGate[probe.Verdict](nil), certGate: upstream.NewGate[probe.CertVerdict](nil),
		heard: new(hearsay),
	}
	if mode == v1.ModePassthrough {
		c.spec.ClientCert = &k8swatch.ClientCertificate{}
	}
	c.pair = newPair(c.spec, nil)
	t.Cleanup(c.pair.Retire)
	c.gate.Observe(probe.Verdict{Trust: v1.TrustTrusted})
	c.certGate.Observe(probe.CertVerdict{Seen: probe.SeenNobody})
	c.entrance = entranceOf(c)
	return c, asked
}

// TRUST-4: which status closes what; none opens.
func TestHeed(t *testing.T) {
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
			c, asked := heeding(t, tt.mode)
			c.heed(tt.status)
			if n := asked.Load(); n != 0 {
				t.Errorf("asked %d times", n)
			}
			switch refused := c.notReady(); {
			case tt.closed == "" && refused != nil:
				t.Errorf("closed: %s", refused.message)
			case tt.closed != "" && (refused == nil || !strings.HasSuffix(refused.message, ": "+tt.closed)):
				t.Errorf("answer %v, want %s", refused, tt.closed)
			}
			if c.entrance.Open() != (tt.closed == "") {
				t.Errorf("open: %t", c.entrance.Open())
			}
		})
	}
}

// A word closes once; what the replica has seen since then stands until the word
// is another. When the word has gone the apiserver is asked.
// A gate outlives the certificate it is about. What a status says meanwhile has
// nobody asked, and there is nothing to ask over.
func TestHeedWithoutCertificate(t *testing.T) {
	c, asked := heeding(t, v1.ModeFrontProxy)
	c.heed(told(7, k8swatch.ReasonFrontProxyNotTrusted, 0))
	c.pair, c.spec.Probe = nil, false
	c.closed = notReady(v1.ModeFrontProxy, k8swatch.ReasonClientCertMissing)
	for minute, reason := range []string{k8swatch.ReasonClientCertMissing, k8swatch.ReasonUpstreamIdentityNotHonoured, k8swatch.ReasonServing} {
		c.heed(told(7, reason, minute+1))
	}
	if v := c.probe(t.Context()); v.Trust != v1.TrustUnknown {
		t.Errorf("a probe without a certificate: %+v", v)
	}
	time.Sleep(100 * time.Millisecond) // a check would run on its own
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	if refused := c.notReady(); refused == nil || !strings.Contains(refused.message, k8swatch.ReasonClientCertMissing) {
		t.Errorf("answer %+v", refused)
	}
}

func TestHeedOnlyNews(t *testing.T) {
	c, asked := heeding(t, v1.ModePassthrough)
	step := func(what string, status *v1.ProxyKubeApiStatus, open bool) {
		t.Helper()
		c.heed(status)
		if c.entrance.Open() != open {
			t.Fatalf("%s: open %t", what, c.entrance.Open())
		}
	}
	pass := func() { c.certGate.Observe(probe.CertVerdict{Seen: probe.SeenNobody}) }
	step("a refusal", told(7, k8swatch.ReasonClientCertIsIdentity, 1), false)
	pass()
	step("the same refusal", told(7, k8swatch.ReasonClientCertIsIdentity, 1), true)
	step("a refusal since later", told(7, k8swatch.ReasonClientCertIsIdentity, 2), false)
	if asked.Load() != 0 {
		t.Fatal("asked too early")
	}
	c.heed(told(7, k8swatch.ReasonServing, 3))
	for deadline := time.Now().Add(10 * time.Second); !c.entrance.Open() && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if !c.entrance.Open() || asked.Load() != 1 {
		t.Fatalf("without the refusal: open %t, asked %d times", c.entrance.Open(), asked.Load())
	}
	step("the word is as before", told(7, k8swatch.ReasonServing, 3), true)

	// The memory outlives a set: an old refusal is no news for a new one.
	c.heed(told(7, k8swatch.ReasonClientCertIsIdentity, 4))
	next := &cluster{spec: c.spec, heard: c.heard, certGate: upstream.NewGate[probe.CertVerdict](nil), pair: c.pair}
	next.certGate.Observe(probe.CertVerdict{Seen: probe.SeenNobody})
	next.entrance = entranceOf(next)
	next.heed(told(7, k8swatch.ReasonClientCertIsIdentity, 4))
	if !next.entrance.Open() {
		t.Error("an old word closed a new set")
	}
}
