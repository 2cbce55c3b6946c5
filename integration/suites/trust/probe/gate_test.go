package probe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// subject is one cluster of a running proxy behind a pipe.
type subject struct {
	w      *world
	px     *proxy.Proxy
	link   *pipe
	object *v1.ProxyKubeApi
	pair   *pki.KeyPair
	token  string
	writes int
}

func newSubject(t *testing.T, settings string) *subject {
	t.Helper()
	w := get(t)
	s := &subject{w: w, link: newPipe(t, w.right.Host), pair: w.goodPair(), token: w.idp.Token(oidc.Alice, nil)}
	s.px = w.start(t, s.link.url, s.pair, settings, func(c *v1.ProxyKubeApi) { s.object = c })
	return s
}

// ask sends one SelfSubjectReview.
func (s *subject) ask(t *testing.T, agent string) *kube.Review {
	t.Helper()
	client := s.px.Client("h2")
	defer client.CloseIdleConnections()
	header := kube.Bearer(s.token)
	header.Set("User-Agent", agent)
	return kube.MustWhoAmI(t, client, s.px.ClusterURL(namespace, name), header)
}

// answers waits until the cluster answers with a code and, when it is none of
// the apiserver's, a message that ends so.
func (s *subject) answers(t *testing.T, code int, message string) *kube.Review {
	t.Helper()
	var r *kube.Review
	waitFor(t, func() bool {
		r = s.ask(t, "waiting")
		return r.Code == code && strings.HasSuffix(r.Status.Message, message)
	})
	if r.Code != code || !strings.HasSuffix(r.Status.Message, message) {
		t.Fatalf("%d %q, want %d %q", r.Code, r.Status.Message, code, message)
	}
	return r
}

// write puts a changed object and its Secret in place, both at once, and waits
// until the proxy has read them. Without a pair the last one stays.
func (s *subject) write(t *testing.T, change func(*v1.ProxyKubeApi), url string, pair *pki.KeyPair) {
	t.Helper()
	before := s.status(t)
	changed := s.object.DeepCopy()
	if change != nil {
		change(changed)
	}
	// A version of its own, by a field that belongs to no set.
	s.writes++
	changed.Spec.DashboardGroup = ptr(fmt.Sprintf("version-%d", s.writes))
	if pair != nil {
		s.pair = pair
	}
	s.px.MustWrite(t, "prod.yaml", changed, proxy.FrontProxySecret(namespace, name, url, s.pair))
	s.px.MustCluster(t, namespace, name, func(c *proxy.ClusterStatus) bool {
		u := c.Status.UpstreamAuth
		return c.Status.ObservedGeneration > before.Status.ObservedGeneration && u != nil &&
			(changed.Spec.UpstreamAuth.Mode != v1.ModeFrontProxy || u.ClientCertNotAfter != nil && u.ClientCertNotAfter.Time.Equal(s.pair.Certificate.NotAfter))
	})
}

func (s *subject) status(t *testing.T) *proxy.ClusterStatus {
	t.Helper()
	return s.px.MustCluster(t, namespace, name, func(*proxy.ClusterStatus) bool { return true })
}

// TRUST-2, TRUST-3: what is asserted, to which apiserver and with which
// certificate, is the trust key. After a change of the trust key the gate is closed
// until the new trust key is seen Trusted itself. Shown so: the proxy has trusted the
// apiserver behind the pipe; the pipe then leads to one that drops groups,
// which an open gate does not notice, and what changes the set must.
func TestTRUST2AnotherSetInheritsNoOpenGate(t *testing.T) {
	// Only a new set is probed in this test, nothing by the clock.
	s := newSubject(t, "probe_interval 1h")
	w := s.w
	up := func(change func(*v1.UpstreamAuth)) func(*v1.ProxyKubeApi) {
		return func(c *v1.ProxyKubeApi) { change(c.Spec.UpstreamAuth) }
	}
	localhost := strings.Replace(s.link.url, "127.0.0.1", "localhost", 1)
	tests := []struct {
		name   string
		change func(*v1.ProxyKubeApi)
		pair   *pki.KeyPair
		url    string // of the Secret's annotation, when another
		kept   bool   // the set is the same: the gate stays open
		reason string
	}{
		{name: "user prefix", change: up(func(u *v1.UpstreamAuth) { u.UserPrefix = ptr("other:") })},
		{name: "group prefix", change: up(func(u *v1.UpstreamAuth) { u.GroupPrefix = ptr("other:") })},
		{name: "forward_uid", change: up(func(u *v1.UpstreamAuth) { u.ForwardUID = true })},
		{name: "CA of the apiserver", change: func(c *v1.ProxyKubeApi) {
			c.Spec.Cert = proxy.Cluster("", "", "", &pki.CA{PEM: pki.Bundle(w.pki.ServerCA, w.pki.ClientCA)}).Spec.Cert
		}},
		{name: "tls_server_name", change: func(c *v1.ProxyKubeApi) { c.Spec.TLSServerName = "localhost" }},
		{name: "target", change: func(c *v1.ProxyKubeApi) { c.Spec.Service.ExternalService.URL = localhost }, pair: validFor(w.pki.FrontProxyCA, 20), url: localhost},
		{name: "front-proxy certificate, renewed", pair: validFor(w.pki.FrontProxyCA, 21)},
		{name: "front-proxy certificate of another CA", pair: validFor(pki.MustCA("stranger"), 22), reason: "FrontProxyNotTrusted"},
		{name: "front-proxy certificate of the client CA", pair: validFor(w.pki.ClientCA, 23)},
		{name: "nothing of the set", change: func(c *v1.ProxyKubeApi) { c.Spec.ProxyGroup = ptr("team-a") }, kept: true},
		{name: "authentication", change: func(c *v1.ProxyKubeApi) {
			c.Spec.AuthConfig.JWT[0].Issuer.Audiences = append(c.Spec.AuthConfig.JWT[0].Issuer.Audiences, "another")
		}, kept: true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.link.lead(w.right.Host)
			s.write(t, nil, s.link.url, validFor(w.pki.FrontProxyCA, 100+i))
			s.answers(t, http.StatusCreated, "")

			s.link.lead(w.noGroup.Host)
			if tt.url == "" {
				tt.url = s.link.url
			}
			from, agent := mark(t, w.noGroup), "after-"+tt.name
			s.write(t, tt.change, tt.url, tt.pair)
			r := s.ask(t, agent)
			if tt.kept {
				if r.Code != http.StatusCreated || len(r.User.Groups) != 1 {
					t.Errorf("not through an open gate to the apiserver that drops groups: %d %s %+v", r.Code, r.Status.Message, r.User)
				}
				return
			}
			reason := tt.reason
			if reason == "" {
				reason = "UpstreamIdentityNotHonoured"
			}
			if r.Code != http.StatusServiceUnavailable || !strings.HasSuffix(r.Status.Message, ": "+reason) {
				t.Errorf("the first request over the new set: %d %s, want 503 %s", r.Code, r.Status.Message, reason)
			}
			if events := since(t, w.noGroup, from, func(e *auditv1.Event) bool { return e.UserAgent == agent }); len(events) > 0 {
				t.Errorf("it reached the apiserver: %+v", events[0])
			}
			if events := since(t, w.noGroup, from, func(e *auditv1.Event) bool { return isUnasserted(e) && !byProbe(e) }); len(events) > 0 {
				t.Errorf("a request under another name: %+v", events[0])
			}
		})
	}
}

// validFor issues a certificate for the allowed name that is recognised by its
// end, some minutes from now.
func validFor(ca *pki.CA, minutes int) *pki.KeyPair {
	return pki.Must(ca.Issue(pki.Request{CommonName: kube.FrontProxyName, NotAfter: time.Now().Add(time.Hour + time.Duration(minutes)*time.Minute).Truncate(time.Second)}))
}

// TRUST-4: a new connection may lead to an apiserver with other flags. The
// first answer over it has the apiserver asked again, behind the request and
// before anything is due by the clock.
func TestTRUST4ANewConnectionIsAsked(t *testing.T) {
	s := newSubject(t, "probe_interval 1h")
	s.answers(t, http.StatusCreated, "")
	from := mark(t, s.w.noGroup)
	s.link.lead(s.w.noGroup.Host)
	began := time.Now()
	s.answers(t, http.StatusServiceUnavailable, ": UpstreamIdentityNotHonoured")
	passed := since(t, s.w.noGroup, from, func(e *auditv1.Event) bool { return !byProbe(e) })
	t.Logf("closed %v after the change, %d requests passed", time.Since(began).Round(time.Millisecond), len(passed))
	s.link.lead(s.w.right.Host)
	s.answers(t, http.StatusCreated, "")
}

// TRUST-2: a verdict belongs to the trust key and not to the mode. A switch of mode
// may have the apiserver asked again at once, so it does not answer here: a
// gate that was kept lets the request go on to its 502, a new gate would answer 503.
func TestTRUST2ModeKeepsTheVerdict(t *testing.T) {
	s := newSubject(t, "probe_interval 1h")
	s.answers(t, http.StatusCreated, "")
	s.write(t, func(c *v1.ProxyKubeApi) { c.Spec.UpstreamAuth.Mode = v1.ModePassthrough }, s.link.url, nil)
	// The apiserver does not know the provider.
	s.answers(t, http.StatusUnauthorized, "Unauthorized")
	s.link.close()
	s.write(t, nil, s.link.url, nil)
	if r := s.ask(t, "back"); r.Code != http.StatusBadGateway {
		t.Errorf("back in FrontProxy: %d %s", r.Code, r.Status.Message)
	}
}

// TRUST-4: a set seen Trusted is not closed by an apiserver that does not
// answer: its requests fail as they do for any reason, and go on by themselves.
func TestTRUST4UnknownClosesNoTrustedSet(t *testing.T) {
	s := newSubject(t, "probe_interval 1s")
	s.answers(t, http.StatusCreated, "")
	s.link.close()
	// The schedule has seen that it does not answer.
	s.px.MustCluster(t, namespace, name, func(c *proxy.ClusterStatus) bool { return c.Condition("UpstreamTrustUnknown") != nil })
	for range 20 {
		if r := s.ask(t, "while it is away"); r.Code != http.StatusBadGateway {
			t.Fatalf("while the apiserver is away: %d %s", r.Code, r.Status.Message)
		}
	}
	if ready := s.status(t).Ready(); ready != "True/Serving" {
		t.Errorf("Ready is %s", ready)
	}
	s.link.lead(s.w.right.Host)
	if r := s.ask(t, "back"); r.Code != http.StatusCreated {
		t.Errorf("as soon as it is back: %d %s", r.Code, r.Status.Message)
	}
}

// TRUST-4: a set that was closed by a trust reason is opened by Trusted, and by
// nothing else.
func TestTRUST4OnlyTrustedOpens(t *testing.T) {
	s := newSubject(t, "probe_interval 1s")
	s.answers(t, http.StatusCreated, "")
	// The operator of the apiserver drops a flag: the schedule finds out.
	s.link.lead(s.w.noGroup.Host)
	s.answers(t, http.StatusServiceUnavailable, ": UpstreamIdentityNotHonoured")
	s.link.close()
	s.stays(t, "UpstreamIdentityNotHonoured")
	from := mark(t, s.w.noExtra)
	s.link.lead(s.w.noExtra.Host)
	s.px.MustCluster(t, namespace, name, func(c *proxy.ClusterStatus) bool {
		return strings.Contains(c.Condition("Ready").Message, "extra") && c.Ready() == "False/UpstreamIdentityNotHonoured"
	})
	s.stays(t, "UpstreamIdentityNotHonoured")
	if events := since(t, s.w.noExtra, from, func(e *auditv1.Event) bool { return e.UserAgent == "closed" }); len(events) > 0 {
		t.Errorf("a request passed: %+v", events[0])
	}
	s.link.lead(s.w.right.Host)
	s.answers(t, http.StatusCreated, "")
	s.px.MustServe(t, namespace, name)
}

// stays checks for a while, in which the schedule asks several times, that the
// set is closed for that reason.
func (s *subject) stays(t *testing.T, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if r := s.ask(t, "closed"); r.Code != http.StatusServiceUnavailable || !strings.HasSuffix(r.Status.Message, ": "+reason) {
			t.Fatalf("%d %s, want 503 %s", r.Code, r.Status.Message, reason)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func ptr[T any](v T) *T { return &v }
