package tenant

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Section 15, denied_targets and disable_validation: by default no object of a hub
// leads the proxy to its own host or link, by no URL and no spelling.
func TestDefaultDeniedTargets(t *testing.T) {
	t.Parallel()
	w := &world{T: t, idp: oidc.Start(t, oidc.Options{}), etcd: kube.StartSharedEtcd(t)}
	w.hub = hub.Start(t, kube.Options{Etcd: w.etcd})
	w.addTenant(t)
	w.px = proxy.Start(t, proxy.Options{
		Hub: w.hub.Kubeconfig, DeniedTargets: []string{}, Settings: quick + "\ndisable_validation off",
	})
	up := rawserver.Start(t, rawserver.Options{})
	_, port, _ := strings.Cut(up.Host, ":")
	_, idpPort, _ := strings.Cut(w.idp.Addr(), ":")
	const denied = "to which this proxy does not connect (denied_targets)"

	put := func(name, url string, change func(*v1.ProxyKubeApi)) {
		t.Helper()
		c := w.passthrough(mine, name, up)
		c.Spec.Service.ExternalService.URL, c.Spec.TLSServerName = url, "127.0.0.1"
		c.Spec.AuthConfig.JWT[0].Issuer.URL = "https://localhost:" + idpPort
		if change != nil {
			change(c)
		}
		w.apply(c)
	}
	const external, issuer = "spec.service.ExternalService.url", "spec.auth_config.jwt[0].issuer.url"
	for name, tt := range map[string]struct {
		url    string
		change func(*v1.ProxyKubeApi)
		want   string
	}{
		"loopback":    {"https://127.0.0.1:" + port, nil, external + ": leads to 127.0.0.1, " + denied},
		"mapped":      {"https://[::ffff:127.0.0.1]:" + port, nil, external + ": leads to ::ffff:127.0.0.1, " + denied},
		"unspecified": {"https://0.0.0.0:" + port, nil, external + ": leads to 0.0.0.0, " + denied},
		"metadata":    {"https://169.254.169.254", nil, external + ": leads to 169.254.169.254, " + denied},
		"issuer": {"https://localhost:" + port, func(c *v1.ProxyKubeApi) {
			c.Spec.AuthConfig.JWT[0].Issuer.URL = "https://169.254.169.254"
		}, issuer + ": leads to 169.254.169.254, " + denied},
		"unvalidated": {"https://localhost:" + port, func(c *v1.ProxyKubeApi) {
			c.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
		}, "spec.auth_config.disable_validation: is not enabled on this proxy installation; the option disable_validation opens it"},
	} {
		put(name, tt.url, tt.change)
		if message := w.ready(name, "False/InvalidSpec"); message != tt.want {
			t.Errorf("%s: %q, want %q", name, message, tt.want)
		}
		w.answers(mine, name, http.StatusServiceUnavailable, passing+"InvalidSpec")
	}

	// A name that resolves to such an address is refused when it is dialled.
	put("named", "https://localhost:"+port, nil)
	s := w.hub.WaitStatus(t, mine, "named", "Reachable False", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "Reachable") == "False/ConnectFailed"
	})
	if message := hub.Message(s, "Reachable"); !strings.Contains(message, denied) {
		t.Errorf("Reachable: %q", message)
	}
	w.token = w.idp.Token(oidc.Alice, map[string]any{"iss": "https://localhost:" + idpPort})
	w.answers(mine, "named", http.StatusServiceUnavailable, "the identity provider cannot be asked")
	s = w.hub.WaitStatus(t, mine, "named", "the issuer's fault", func(s *v1.ProxyKubeApiStatus) bool {
		return hub.Condition(s, "IssuerUnavailable") == "True/IssuerUnavailable"
	})
	if message := hub.Message(s, "IssuerUnavailable"); !strings.Contains(message, "it is at an address "+denied) || strings.Contains(message, "127.0.0.1") {
		t.Errorf("IssuerUnavailable: %q", message)
	}
	put("reviewed", "https://localhost:"+port, func(c *v1.ProxyKubeApi) { c.Spec.AuthConfig = nil })
	w.answers(mine, "reviewed", http.StatusBadGateway, "the cluster's apiserver is at an address "+denied)
	if n := up.Connections(); n != 0 || len(up.AllRequests()) != 0 {
		t.Errorf("%d connections and %d requests reached the proxy's own host", n, len(up.AllRequests()))
	}
	for endpoint, n := range w.idp.AllCalls() {
		if n != 0 {
			t.Errorf("%d calls reached %v of the issuer", n, endpoint)
		}
	}
	w.hub.MustNotHaveBeenForbidden(t)
}
