package faults

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// AUTH-12: a change of how one cluster authenticates forgets what was remembered
// for it, be it in the object or in a Secret, and nothing else: no other change
// of it does, and no other cluster is asked again.
func TestAUTH12ConfigurationChanges(t *testing.T) {
	t.Parallel()
	provider, machines := openSite(t, wayTo("oidc-userinfo")), openSite(t, wayTo("exchange"))
	w := newWorld(t, proxy.Options{Settings: "token_cache_ttl 10m"}, map[string]*site{"a": provider, "b": provider, "m": machines})

	// a takes its client from a Secret, and the rest from the object.
	secret := func(clientSecret string) {
		w.px.MustWrite(t, "secret.yaml", proxy.Secret(ns, "idp", map[string]string{"client_id": oidc.SecretClientID, "client_secret": clientSecret}))
	}
	secret(oidc.ClientSecret)
	object := cluster(api, "a", provider.auth(provider))
	spec := &object[0].(*v1.ProxyKubeApi).Spec
	change := func(f func()) {
		t.Helper()
		generation := int64(0)
		if last := w.wantStatus(t, "a", func(*proxy.ClusterStatus) bool { return true }); last != nil {
			generation = last.Status.ObservedGeneration
		}
		f()
		w.px.MustWrite(t, "a.yaml", object...)
		w.wantStatus(t, "a", func(c *proxy.ClusterStatus) bool {
			return c.Status.ObservedGeneration > generation && c.Ready() == "True/Serving"
		})
	}
	change(func() {
		spec.AuthConfig.OidcProvider.ConfigFrom = &v1.ConfigReference{Secret: &v1.SecretReference{Name: "idp"}}
	})

	token, machine := provider.jwt(), machines.machine()
	onA := &bearer{cluster: "a", token: token, user: oidc.Alice, kind: "token"}
	onB := &bearer{cluster: "b", token: token, user: oidc.Alice, kind: "token"}
	onM := &bearer{cluster: "m", token: machine, user: oidc.Robot, kind: "machine"}
	// asks sends all three and says how often a provider was asked.
	asks := func() (userinfo, exchanges int) {
		t.Helper()
		u, e := provider.idp.Calls(oidc.Userinfo), machines.idp.Calls(oidc.Token)
		for _, b := range []*bearer{onA, onB, onM} {
			w.mustServe(t, b)
		}
		return provider.idp.Calls(oidc.Userinfo) - u, machines.idp.Calls(oidc.Token) - e
	}
	want := func(what string, userinfo, exchanges int) {
		t.Helper()
		if u, e := asks(); u != userinfo || e != exchanges {
			t.Errorf("%s: userinfo was asked %d times and %d tokens were exchanged, want %d and %d", what, u, e, userinfo, exchanges)
		}
	}
	before := w.series(t)
	want("first use", 2, 1)
	want("second use", 0, 0)
	after := w.series(t)
	for name, n := range map[string]int{
		`proxyauth_token_cache_total{result="miss"}`:                                 3,
		`proxyauth_token_cache_total{result="hit"}`:                                  3,
		`proxyauth_token_cache_total{result="refused"}`:                              0,
		`proxyauth_token_exchange_total{result="ok"}`:                                1,
		`proxyauth_token_exchange_total{result="refused"}`:                           0,
		`proxyauth_authentication_total{method="OidcProvider",result="ok"}`:          4,
		`proxyauth_authentication_total{method="OidcProvider",result="unavailable"}`: 0,
		`proxyauth_authentication_total{method="JwtAuthenticators",result="ok"}`:     2,
	} {
		if got := after[name] - before[name]; got != n {
			t.Errorf("%s grew by %d, want %d", name, got, n)
		}
	}

	change(func() { group := "team-a"; spec.ProxyGroup = &group })
	want("after a change of something else", 0, 0)
	change(func() { spec.AuthConfig.OidcProvider.AcceptAuthorizedParty = true })
	want("after a change of its auth_config", 1, 0)
	secret("another secret")
	calls := provider.idp.Calls(oidc.Userinfo)
	hub.Eventually(t, "asked again after a change of its Secret", soon, func() bool {
		w.mustServe(t, onA)
		return provider.idp.Calls(oidc.Userinfo) > calls
	})
	want("after a change of its Secret", 0, 0)

	renewed := cluster(api, "m", machines.auth(machines))
	renewed[0].(*v1.ProxyKubeApi).Spec.AuthConfig.TokenExchange.Scopes = []string{"openid", "groups"}
	w.px.MustWrite(t, "m.yaml", renewed...)
	exchanges := machines.idp.Calls(oidc.Token)
	hub.Eventually(t, "exchanged again after a change of its token_exchange", soon, func() bool {
		w.mustServe(t, onM)
		return machines.idp.Calls(oidc.Token) > exchanges
	})
	want("after a change of the token_exchange", 0, 0)
}

func (w *world) wantStatus(t *testing.T, name string, want func(*proxy.ClusterStatus) bool) *proxy.ClusterStatus {
	t.Helper()
	status, err := w.wait(t.Context(), name, "the status", want)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// series are the counters of the proxy.
func (w *world) series(t *testing.T) map[string]int {
	t.Helper()
	resp, err := http.Get(w.px.Health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("reading the metrics: %d, %v", resp.StatusCode, err)
	}
	series := map[string]int{}
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			series[name] = int(n)
		}
	}
	return series
}
