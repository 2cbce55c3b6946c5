package mechanism

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// TestWhoAmIThroughTheProxy is the whole way once: kubectl, the proxy in
// FrontProxy, an apiserver that trusts it, and what RBAC and audit make of it.
func TestWhoAmIThroughTheProxy(t *testing.T) {
	idp := oidc.Start(t, oidc.Options{})
	a := kube.Start(t, kube.Options{})
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"prod.yaml": proxy.Manifests(
			proxy.FrontProxyCluster("team-a", "prod", a.URL, a.PKI.ServerCA, "proxyauth:", proxy.Authenticator(idp)),
			proxy.FrontProxySecret("team-a", "prod", a.URL, pki.Must(a.FrontProxy())),
		),
	}})
	px.MustServe(t, "team-a", "prod")
	a.Kubectl(t, "").MustRun(t, "create", "rolebinding", "readers", "--clusterrole=view", "--group=proxyauth:team-a")

	for _, tc := range []struct {
		user   string
		groups []string
		reads  bool
	}{
		{oidc.Alice, []string{"proxyauth:team-a", "proxyauth:a,b", "system:authenticated"}, true},
		{oidc.Elodie, []string{"proxyauth:équipe", "system:authenticated"}, false},
	} {
		t.Run(tc.user, func(t *testing.T) {
			k := px.Kubectl(t, "team-a", "prod", idp.MustLogin(t, tc.user, oidc.ClientID).IDToken)
			var review authenticationv1.SelfSubjectReview
			if err := json.Unmarshal([]byte(k.MustRun(t, "auth", "whoami", "-o", "json").Stdout), &review); err != nil {
				t.Fatal(err)
			}
			if got := review.Status.UserInfo; got.Username != "proxyauth:"+tc.user || !cmp.Equal(got.Groups, tc.groups) {
				t.Errorf("seen as %+v", got)
			}
			if r := k.MustEnd(t, "get", "pods"); (r.ExitCode == 0) != tc.reads {
				t.Errorf("get pods: %+v", r)
			}
			events := a.MustAudit(t, func(e *auditv1.Event) bool { return e.User.Username == "proxyauth:"+tc.user })
			if !cmp.Equal(events[0].User.Groups, tc.groups) {
				t.Errorf("audit: %+v", events[0].User)
			}
		})
	}
}
