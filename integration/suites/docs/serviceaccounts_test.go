package docs

import (
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// As kubeconfig.md says, the issuer of a cluster's own ServiceAccounts can be one
// of jwt[]: its documents are read from the apiserver. The apiserver then sees a
// prefixed name, and not the ServiceAccount. A token for the apiserver itself does
// not open the proxy.
func TestServiceAccountTokensOfTheCluster(t *testing.T) {
	t.Parallel()
	up := kube.Start(t, kube.Options{})
	admin := up.Kubectl(t, "")
	admin.MustRun(t, "create", "serviceaccount", "deployer")
	admin.MustRun(t, "create", "clusterrolebinding", "issuer-discovery", "--clusterrole=system:service-account-issuer-discovery", "--group=system:unauthenticated")

	authority, discovery := string(up.PKI.ServerCA.PEM), up.URL+"/.well-known/openid-configuration"
	claim, prefix := "sub", "sa:"
	object := proxy.FrontProxyCluster("team-a", "prod", up.URL, up.PKI.ServerCA, "proxyauth:", v1.JWTAuthenticator{
		Issuer: v1.Issuer{
			URL: "https://kubernetes.default.svc", DiscoveryURL: &discovery, CertificateAuthority: &authority, Audiences: []string{"proxy-prod"},
		},
		ClaimMappings: &v1.ClaimMappings{Username: &v1.PrefixedClaimOrExpression{Claim: &claim, Prefix: &prefix}},
	})
	secret := proxy.FrontProxySecret("team-a", "prod", up.URL, pki.Must(up.FrontProxy()))
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"prod.yaml": proxy.Manifests(object, secret)}})
	px.MustServe(t, "team-a", "prod")

	token := func(args ...string) string {
		return strings.TrimSpace(admin.MustRun(t, append([]string{"create", "token", "deployer"}, args...)...).Stdout)
	}
	own := px.Kubectl(t, "team-a", "prod", token("--audience", "proxy-prod"))
	who := own.MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}").Stdout
	if want := `proxyauth:sa:system:serviceaccount:default:deployer ["system:authenticated"]`; who != want {
		t.Errorf("the apiserver sees %s, want %s", who, want)
	}
	other := px.Kubectl(t, "team-a", "prod", token())
	if answer := other.MustEnd(t, "auth", "whoami"); answer.ExitCode == 0 || !strings.Contains(answer.Stderr, "the token is for another audience") {
		t.Errorf("a token for the apiserver: exit code %d\n%s%s", answer.ExitCode, answer.Stdout, answer.Stderr)
	}
}
