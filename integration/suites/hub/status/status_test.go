package status

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-3, REC-4: the status of a good cluster is written once, with its columns
// and an Event, and its users get through.
func (w *world) goodCluster(t *testing.T) {
	w.approve(t, "prod")
	w.hub.Apply(t, w.cluster("prod"))
	s := w.hub.WaitReady(t, mine, "prod", "True/Serving")
	if s.UpstreamAuth == nil || s.UpstreamAuth.Trust != v1.TrustTrusted || hub.Condition(s, "Reachable") != "True/Answered" ||
		!s.Exposed || s.Path == nil || *s.Path != "/clusters/team-a/prod" || s.Error != nil || s.ObservedGeneration != 1 ||
		s.ObservedBy != "proxyauth/proxyauthk8s" {
		t.Errorf("status %+v", s)
	}
	out := w.hub.Admin.MustRun(t, "get", "pka", "-n", mine, "prod", "-o", "wide").Stdout
	for _, column := range []string{"READY", "REASON", "PATH", "AGE", "UPSTREAM", "TRUST", "MESSAGE", "True", "Serving", "/clusters/team-a/prod", "FrontProxy", "Trusted", "the cluster is served"} {
		if !strings.Contains(out, column) {
			t.Errorf("no %s in\n%s", column, out)
		}
	}
	w.hub.WaitEvent(t, mine, "prod", "Serving")
	who := w.px.Kubectl(t, mine, "prod", w.idp.Token(oidc.Alice, nil)).MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	if who.Stdout != prefix+"alice" {
		t.Errorf("whoami %q", who.Stdout)
	}
	time.Sleep(5 * time.Second) // whatever else would be written
	if n := w.hub.StatusWrites(t, "prod"); n != 1 {
		t.Errorf("%d writes of the status", n)
	}
}

// API-8, REC-6: a field that this version does not build, and that does not
// restrict, is a notice and an Event, and the cluster serves. Without the field both
// are over.
func (w *world) withoutEffect(t *testing.T) {
	w.approve(t, "later")
	c := w.cluster("later")
	c.Spec.SecurityConfig = &v1.SecurityConfig{RateLimiting: &v1.RateLimiting{Enabled: true}}
	c.Spec.VirtualAPIs = []v1.VirtualAPI{{Kind: "OpenShiftProject"}}
	w.hub.Apply(t, c)
	s := w.hub.WaitStatus(t, mine, "later", "the notice", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "UnsupportedField") == "True/UnsupportedField" && hub.Condition(s, "Ready") == "True/Serving"
	})
	const fields = "has no effect in this version: spec.security_config.rate_limiting, spec.virtual_apis[0]"
	if got := hub.Message(s, "UnsupportedField"); got != fields || s.Error != nil {
		t.Errorf("the notice says %q, error %v", got, s.Error)
	}
	if e := w.hub.WaitEvent(t, mine, "later", "UnsupportedField"); !strings.Contains(e.Message, fields) {
		t.Errorf("the Event says %q", e.Message)
	}
	if r := w.answers(t, "later", http.StatusCreated); r.User.Username != prefix+"alice" {
		t.Errorf("arrived as %q", r.User.Username)
	}
	w.hub.Patch(t, mine, v1.Resource, "later", `{"spec":{"security_config":null,"virtual_apis":null}}`)
	s = w.hub.WaitStatus(t, mine, "later", "no notice", func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, "UnsupportedField") == "" })
	if got := hub.Condition(s, "Ready"); got != "True/Serving" {
		t.Errorf("Ready is %s", got)
	}
}

// REC-5, API-8: every Ready other than True closes the cluster, with an Event of
// that reason: what restricts or connects and is not built is InvalidSpec.
func (w *world) closes(t *testing.T) {
	w.approve(t, "closing")
	w.hub.Apply(t, w.cluster("closing"))
	w.answers(t, "closing", http.StatusCreated)
	const notReady = "this cluster is not ready for upstream mode FrontProxy: "
	open := `{"spec":{"enabled":true,"security_config":null,"service":{"ExternalService":{"url":"` + w.target.URL + `"},"Agent":null,"KubernetesService":null}}}`
	for _, tt := range []struct {
		patch, ready, says string
		code               int
		answer             string
	}{
		{`{"spec":{"enabled":false}}`, "False/Disabled", "", http.StatusNotFound, ""},
		{`{"spec":{"service":{"ExternalService":null,"Agent":{}}}}`, "False/InvalidSpec", "spec.service.Agent is not supported by this version", http.StatusServiceUnavailable, notReady + "InvalidSpec"},
		{`{"spec":{"security_config":{"allowed_resources":[{"Path":{"path":"/api"}}]}}}`, "False/InvalidSpec",
			"spec.security_config.allowed_resources is not supported by this version", http.StatusServiceUnavailable, notReady + "InvalidSpec"},
		{`{"spec":{"service":{"ExternalService":null,"KubernetesService":{"name":"nowhere"}}}}`, "False/ServiceNotFound", "nowhere", http.StatusServiceUnavailable, notReady + "ServiceNotFound"},
	} {
		w.hub.Patch(t, mine, v1.Resource, "closing", tt.patch)
		s := w.hub.WaitReady(t, mine, "closing", tt.ready)
		if got := hub.Message(s, "Ready"); !strings.Contains(got, tt.says) || s.Error == nil || *s.Error != got {
			t.Errorf("%s: Ready says %q, error %v", tt.patch, got, s.Error)
		}
		_, reason, _ := strings.Cut(tt.ready, "/")
		w.hub.WaitEvent(t, mine, "closing", reason)
		if r := w.answers(t, "closing", tt.code); tt.answer != "" && r.Status.Message != tt.answer {
			t.Errorf("%s: %q", tt.patch, r.Status.Message)
		}
		w.hub.Patch(t, mine, v1.Resource, "closing", open)
		// The status follows the traffic: the next wait must not see this one's.
		w.hub.WaitReady(t, mine, "closing", "True/Serving")
		w.answers(t, "closing", http.StatusCreated)
	}
}

// SIG-5: an apiserver and an identity provider that are away do not take the
// replica out of service.
func (w *world) health(t *testing.T) {
	away := oidc.Start(t, oidc.Options{})
	away.Suspend()
	c := w.cluster("away")
	c.Spec.Service.ExternalService.URL = "https://127.0.0.1:1"
	c.Spec.UpstreamAuth = nil
	c.Spec.AuthConfig.JWT = []v1.JWTAuthenticator{proxy.Authenticator(away)}
	w.hub.Apply(t, c)
	w.hub.WaitStatus(t, mine, "away", "nothing to reach", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "Reachable") == "False/ConnectFailed" && hub.Condition(s, "Ready") == "True/Serving"
	})
	client := w.px.Client("h1")
	defer client.CloseIdleConnections()
	r := kube.MustWhoAmI(t, client, w.px.ClusterURL(mine, "away"), kube.Bearer(away.Token(oidc.Alice, nil)))
	if r.Code != http.StatusServiceUnavailable {
		t.Errorf("its users get %d %q", r.Code, r.Status.Message)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		resp, err := http.Get(w.px.Health + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}
