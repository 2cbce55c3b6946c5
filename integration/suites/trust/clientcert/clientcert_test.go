package clientcert

import (
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// CERT-9 on real apiservers: a certificate that the apiserver takes for an
// identity never carries a request, from the first of 200 at once. A certificate
// that it does not know carries them all, each with the identity of its token.
func TestCERT9RealAPIServer(t *testing.T) {
	idp := newIDP(t)
	jwt := proxy.Authenticator(idp)
	for _, tt := range []struct {
		name string
		args []string
	}{{"anonymous", nil}, {"no anonymous user", []string{"--anonymous-auth=false"}}} {
		t.Run(tt.name, func(t *testing.T) {
			api := kube.Start(t, kube.Options{AuthenticationConfig: kube.AuthenticationConfig(jwt), ExtraArgs: tt.args})
			token := idp.Token(oidc.Alice, nil)
			px := start(t, "", manifests(idp, api.URL, api.PKI.ServerCA, pki.Must(api.PKI.ClientCA.Client("carol", "staff"))))
			for _, r := range crowd(t, px, token, 200) {
				wantClosed(t, r, "ClientCertIsIdentity")
			}
			px.MustCluster(t, namespace, name, func(s *proxy.ClusterStatus) bool {
				r := s.Condition("Reachable")
				return s.Ready() == "False/ClientCertIsIdentity" && r != nil && r.Reason == "Answered"
			})
			s := printed(t, px)
			if m := s.Condition("Ready").Message; !strings.Contains(m, `user "carol"`) || s.Status.Error == nil || *s.Status.Error != m || !s.Status.Exposed {
				t.Errorf("status %+v", s.Status)
			}
			events, err := api.AuditEvents()
			if err != nil {
				t.Fatal(err)
			}
			probes := 0
			for _, e := range events {
				switch {
				case e.UserAgent == "user":
					t.Fatalf("a request ran as %q", e.User.Username)
				case e.User.Username == "carol" && e.UserAgent != probeAgent:
					t.Fatalf("%q ran as carol: %s", e.UserAgent, e.RequestURI)
				case e.User.Username == "carol":
					probes++
				}
			}
			if probes == 0 {
				t.Error("the apiserver was not asked")
			}

			// Another certificate, from a CA that it does not know.
			if err := px.WriteManifest("prod.yaml", manifests(idp, api.URL, api.PKI.ServerCA, pki.Must(pki.MustCA("gate").Client("carol")))); err != nil {
				t.Fatal(err)
			}
			px.MustServe(t, namespace, name)
			for _, r := range crowd(t, px, token, 50) {
				if r.Code != http.StatusCreated || r.User.Username != "alice" {
					t.Fatalf("%d %+v %s", r.Code, r.User, r.Status.Message)
				}
			}
			api.MustAudit(t, func(e *auditv1.Event) bool { return e.UserAgent == "user" && e.User.Username == "alice" })
		})
	}
}

// A server that lets in only who has a certificate: the gate passes, traffic
// flows, and a renewal of the Secret loses none of it.
func TestCERT9BehindMTLS(t *testing.T) {
	idp, gate := newIDP(t), pki.MustCA("gate")
	f := newFake(t, http.StatusUnauthorized, gate)
	pair := func(serial int64) *pki.KeyPair {
		return pki.Must(gate.Issue(pki.Request{CommonName: "gate", Serial: big.NewInt(serial)}))
	}
	px := start(t, "", manifests(idp, f.url, f.ca, pair(1)))
	token := idp.Token(oidc.Alice, nil)
	for _, r := range crowd(t, px, token, 50) {
		if r.Code != http.StatusCreated || r.User.Username != "alice" {
			t.Fatalf("%d %s", r.Code, r.Status.Message)
		}
	}
	// Who has no certificate is not let in: that is what Reachable tells.
	px.MustCluster(t, namespace, name, func(s *proxy.ClusterStatus) bool {
		r := s.Condition("Reachable")
		return s.Ready() == "True/Serving" && r != nil && r.Reason == "TLSFailed" && !s.Status.Exposed
	})
	if err := px.WriteManifest("prod.yaml", manifests(idp, f.url, f.ca, pair(2))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new certificate is presented", func() bool {
		if r := ask(t, px, token); r.Code != http.StatusCreated {
			t.Fatalf("%d %s", r.Code, r.Status.Message)
		}
		_, _, serials := f.seen()
		return serials[len(serials)-1] == "2"
	})
}

// What proves nothing keeps requests out, and is asked about once a second at
// most; what has passed stays open over it; another identity closes within a
// round, and only an answer that passes opens again.
func TestCERT9Answers(t *testing.T) {
	idp := newIDP(t)
	f := newFake(t, http.StatusInternalServerError, nil)
	pair := pki.Must(pki.MustCA("gate").Client("gate"))
	px := start(t, "probe_interval 2s", manifests(idp, f.url, f.ca, pair))
	token := idp.Token(oidc.Alice, nil)

	began := time.Now()
	for time.Since(began) < 4*time.Second {
		wantClosed(t, ask(t, px, token), "UpstreamTrustUnknown")
	}
	checks, users, _ := f.seen()
	// The schedule asks besides: at once, and each interval.
	took := time.Since(began)
	if most := int(took/time.Second) + 2 + int(took/(1800*time.Millisecond)) + 2; len(checks) > most || users != 0 {
		t.Errorf("%d checks in %v, want at most %d; %d requests came through", len(checks), took, most, users)
	}
	px.MustCluster(t, namespace, name, func(s *proxy.ClusterStatus) bool {
		r := s.Condition("Reachable")
		return s.Ready() == "Unknown/UpstreamTrustUnknown" && s.Condition("UpstreamTrustUnknown") != nil && r != nil && r.Reason == "ServerError"
	})

	opens := func() {
		t.Helper()
		eventually(t, "the cluster answers", func() bool { return ask(t, px, token).Code == http.StatusCreated })
	}
	f.set(http.StatusUnauthorized, "")
	opens()
	f.set(http.StatusInternalServerError, "")
	before, _, _ := f.seen()
	eventually(t, "it was asked twice", func() bool { now, _, _ := f.seen(); return len(now) >= len(before)+2 })
	if r := ask(t, px, token); r.Code != http.StatusCreated {
		t.Fatalf("an answer that proves nothing closed the cluster: %d %s", r.Code, r.Status.Message)
	}
	f.set(http.StatusCreated, "carol")
	eventually(t, "the cluster closes", func() bool { return ask(t, px, token).Code == http.StatusServiceUnavailable })
	wantClosed(t, ask(t, px, token), "ClientCertIsIdentity")
	f.set(http.StatusInternalServerError, "")
	before, _, _ = f.seen()
	eventually(t, "it was asked twice", func() bool { now, _, _ := f.seen(); return len(now) >= len(before)+2 })
	wantClosed(t, ask(t, px, token), "ClientCertIsIdentity")
	f.set(http.StatusCreated, "system:anonymous")
	opens()
	if s := printed(t, px); s.Ready() != "True/Serving" || s.Condition("UpstreamTrustUnknown") != nil {
		t.Errorf("status %+v", s.Status)
	}
}

// REC-6: each outcome of Reachable, which closes nothing.
func TestREC6Reachable(t *testing.T) {
	idp := newIDP(t)
	answering, failing := newFake(t, http.StatusForbidden, nil), newFake(t, http.StatusServiceUnavailable, nil)
	for _, tt := range []struct {
		name, url string
		ca        *pki.CA
		reason    string
	}{
		{"answers", answering.url, answering.ca, "Answered"},
		{"answers 503", failing.url, failing.ca, "ServerError"},
		{"another CA", answering.url, failing.ca, "TLSFailed"},
		{"nobody listens", "https://127.0.0.1:1", answering.ca, "ConnectFailed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			px := start(t, "", manifests(idp, tt.url, tt.ca, nil))
			px.MustCluster(t, namespace, name, func(s *proxy.ClusterStatus) bool { return s.Condition("Reachable") != nil })
			s := printed(t, px)
			r := s.Condition("Reachable")
			if r.Reason != tt.reason || (r.Status == "True") != (tt.reason == "Answered") || s.Status.Exposed != (r.Status == "True") ||
				s.Ready() != "True/Serving" || strings.Contains(r.Message, "127.0.0.1") {
				t.Errorf("%+v, exposed %t", r, s.Status.Exposed)
			}
		})
	}
}
