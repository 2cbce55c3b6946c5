// Package frontproxy holds the tests of the central path on real components: a
// bearer goes in, a real apiserver sees the asserted identity.
package frontproxy

import (
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
)

// ID-1, ID-3: kubectl auth whoami through the proxy.
func TestWhoAmI(t *testing.T) {
	api := kube.Start(t, kube.Options{})
	idp := oidc.Start(t, oidc.Options{})
	p := proxy.Start(t, proxy.Options{Manifests: map[string]string{"prod.yaml": proxy.Manifests(
		proxy.FrontProxyCluster("team-a", "prod", api.URL, api.PKI.ServerCA, "proxyauth:", proxy.Authenticator(idp)),
		proxy.FrontProxySecret("team-a", "prod", api.URL, pki.Must(api.FrontProxy())),
	)}})
	p.MustServe(t, "team-a", "prod")
	for user, want := range map[string][]string{
		"alice":  {"proxyauth:alice", "[proxyauth:team-a proxyauth:a,b system:authenticated]"},
		"élodie": {"proxyauth:élodie"},
	} {
		t.Run(user, func(t *testing.T) {
			out := p.Kubectl(t, "team-a", "prod", idp.Token(user, nil)).MustRun(t, "auth", "whoami").Stdout
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("kubectl auth whoami has no %q:\n%s", w, out)
				}
			}
		})
	}
}
