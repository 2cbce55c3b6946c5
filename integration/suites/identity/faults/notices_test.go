package faults

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// several is a cluster that takes the tokens of three issuers.
func several(sites ...*site) *v1.AuthConfig {
	auth := &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators}
	for _, s := range sites {
		auth.JWT = append(auth.JWT, proxy.Authenticator(s.idp))
	}
	return auth
}

func (w *world) mustBeUnavailable(t *testing.T, cluster, token string) {
	t.Helper()
	a, err := w.ask(t.Context(), cluster, token)
	if err == nil {
		err = a.unavailable()
	}
	if err != nil {
		t.Error(err)
	}
}

// mustHeal asks until a token is good.
func (w *world) mustHeal(t *testing.T, cluster string, s *site) {
	t.Helper()
	if err := w.heals(t.Context(), &cell{site: s, name: cluster}); err != nil {
		t.Error(err)
	}
}

// AUTH-13: one notice names all issuers that cannot be asked, each with its
// last fault, and a token of another issuer is as good as ever.
func TestAUTH13NoticeNamesEachIssuer(t *testing.T) {
	t.Parallel()
	keys := wayTo("jwt-keys")
	down, broken, well := openSite(t, keys), openSite(t, keys), openSite(t, keys)
	const name = "several"
	w := watch(t, proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"several.yaml": proxy.Manifests(cluster(api, name, several(down, broken, well))...),
	}}))
	w.serving(t, name)
	if err := down.front.set(refusing); err != nil {
		t.Fatal(err)
	}
	broken.idp.SetFault(oidc.Keys, oidc.Malformed)
	w.mustBeUnavailable(t, name, down.jwt())
	w.mustBeUnavailable(t, name, broken.jwt())
	w.mustServe(t, &bearer{cluster: name, token: well.jwt(), user: oidc.Alice, kind: "token of the third issuer"})
	w.mustTell(t, name, down.idp.Issuer+": it refused the connection; "+broken.idp.Issuer+": its key set cannot be read")

	// Another fault takes the place of the first.
	broken.idp.SetFault(oidc.Keys, oidc.JSON(http.StatusBadGateway, "{}"))
	hub.Eventually(t, "the other fault", soon, func() bool {
		w.mustBeUnavailable(t, name, broken.jwt())
		return strings.Contains(w.notice(name), "status 502")
	})
	w.mustTell(t, name, down.idp.Issuer+": it refused the connection; "+broken.idp.Issuer+": it answered with status 502")

	// Those that are well again are named no more.
	broken.idp.Repair(oidc.Keys)
	hub.Eventually(t, "a good token of the second issuer", soon, func() bool {
		a, err := w.ask(t.Context(), name, broken.jwt())
		return err == nil && a.good(oidc.Alice) == nil
	})
	w.mustTell(t, name, down.idp.Issuer+": it refused the connection")
	if err := down.front.set(open); err != nil {
		t.Fatal(err)
	}
	w.mustHeal(t, name, down)
}

// mustTell waits for a notice that says this and nothing else.
func (w *world) mustTell(t *testing.T, name, want string) {
	t.Helper()
	if _, err := w.wait(t.Context(), name, "the notice "+want, func(s *proxy.ClusterStatus) bool { return message(s) == want }); err != nil {
		t.Error(err)
	}
}

// notice is that of a cluster as it was seen last.
func (s *statuses) notice(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status := s.last[name]; status != nil {
		return message(status)
	}
	return ""
}

// AUTH-13, REC-4: with a hub the notice is in the object's status, with an Event
// when it comes and one when it goes, for a key set and for an endpoint that is
// asked about tokens.
func TestAUTH13NoticeInTheHub(t *testing.T) {
	t.Parallel()
	h := hub.Start(t, kube.Options{})
	w := watch(t, proxy.Start(t, proxy.Options{Hub: h.Kubeconfig}))
	for _, name := range []string{"jwt-keys", "oidc-userinfo", "exchange"} {
		t.Run(name, func(t *testing.T) {
			s := openSite(t, wayTo(name))
			h.Apply(t, cluster(h.APIServer, name, s.auth(s))...)
			h.WaitReady(t, ns, name, "True/Serving")
			if err := s.front.set(refusing); err != nil {
				t.Fatal(err)
			}
			w.mustBeUnavailable(t, name, s.token(s))
			status := h.WaitStatus(t, ns, name, "the notice", func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, notice) == "True/"+notice })
			if m := hub.Message(status, notice); !strings.Contains(m, "it refused the connection") || hub.Condition(status, "Ready") != "True/Serving" {
				t.Errorf("%s with %q", hub.Condition(status, "Ready"), m)
			}
			if e := h.WaitEvent(t, ns, name, notice); e.Type != "Warning" || !strings.Contains(e.Message, "it refused the connection") {
				t.Errorf("Event %s: %s", e.Type, e.Message)
			}
			if err := s.front.set(open); err != nil {
				t.Fatal(err)
			}
			w.mustHeal(t, name, s)
			h.WaitStatus(t, ns, name, "no notice", func(s *v1.ProxyKubeApiStatus) bool { return hub.Condition(s, notice) == "" })
			if e := h.WaitEvent(t, ns, name, notice+"Cleared"); e.Type != "Normal" {
				t.Errorf("Event %s: %s", e.Type, e.Message)
			}
		})
	}
	h.MustNotHaveBeenForbidden(t)
}
