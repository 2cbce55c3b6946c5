package frontproxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// impersonators may impersonate bob, one group, one uid and one extra.
const impersonators = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: impersonators
rules:
- apiGroups: [""]
  resources: [users]
  verbs: [impersonate]
  resourceNames: [bob]
- apiGroups: [""]
  resources: [groups]
  verbs: [impersonate]
  resourceNames: [testers]
- apiGroups: [authentication.k8s.io]
  resources: [uids]
  verbs: [impersonate]
  resourceNames: ["7"]
- apiGroups: [authentication.k8s.io]
  resources: [userextras/reason]
  verbs: [impersonate]
  resourceNames: [tests]
`

// ID-6, HDR-03: with `impersonation forward` the whole set reaches the
// apiserver, which lets the asserted user impersonate by that user's own right
// alone.
func TestID6ImpersonationForward(t *testing.T) {
	w := get(t)
	admin := w.plain.Kubectl(t, "")
	admin.Stdin = []byte(impersonators)
	admin.MustRun(t, "apply", "-f", "-")
	admin.MustRun(t, "create", "clusterrolebinding", "impersonators", "--clusterrole=impersonators", "--user=proxyauth:alice")
	w.plain.MustAllow(t, "proxyauth:alice", nil, authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "users", Name: "bob"})

	px := proxy.Start(t, proxy.Options{
		Settings:  "impersonation forward",
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(w.frontProxy("prod"), w.secret("prod", w.plain))},
	})
	px.MustServe(t, ns, "prod")
	alice, elodie := w.idp.Token(oidc.Alice, nil), w.idp.Token(oidc.Elodie, nil)

	t.Run("kubectl --as", func(t *testing.T) {
		got := whoami(t, px.Kubectl(t, ns, "prod", alice), "--as=bob", "--as-group=testers", "--as-uid=7")
		want := authenticationv1.UserInfo{Username: "bob", UID: "7", Groups: []string{"testers", "system:authenticated"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("identity (-want +got):\n%s", diff)
		}
		events := w.plain.MustAudit(t, func(e *auditv1.Event) bool { return e.ImpersonatedUser != nil && e.ImpersonatedUser.Username == "bob" })
		if e := events[0]; e.User.Username != "proxyauth:alice" {
			t.Errorf("audit: %s impersonated bob", e.User.Username)
		}
	})
	t.Run("extra", func(t *testing.T) {
		header := kube.Bearer(alice)
		header["Impersonate-User"], header["Impersonate-Extra-Reason"] = []string{"bob"}, []string{"tests"}
		r := kube.MustWhoAmI(t, px.Client("h2"), px.ClusterURL(ns, "prod"), header)
		want := authenticationv1.UserInfo{
			Username: "bob", Groups: []string{"system:authenticated"}, Extra: map[string]authenticationv1.ExtraValue{"reason": {"tests"}},
		}
		if diff := cmp.Diff(want, r.User); diff != "" {
			t.Errorf("%d, identity (-want +got):\n%s", r.Code, diff)
		}
	})
	refused := []struct {
		name, token, user string
		header            http.Header
	}{
		{"another user than allowed", alice, "proxyauth:alice", http.Header{"Impersonate-User": {"root"}}},
		{"another group than allowed", alice, "proxyauth:alice", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Group": {"testers", "system:masters"}}},
		{"another uid than allowed", alice, "proxyauth:alice", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Uid": {"0"}}},
		{"another extra than allowed", alice, "proxyauth:alice", http.Header{"Impersonate-User": {"bob"}, "Impersonate-Extra-Scopes": {"all"}}},
		{"without the right", elodie, "proxyauth:élodie", http.Header{"Impersonate-User": {"bob"}}},
	}
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range kube.Bearer(tt.token) {
				tt.header[name] = value
			}
			r := kube.MustWhoAmI(t, px.Client("h1"), px.ClusterURL(ns, "prod"), tt.header)
			if r.Code != http.StatusForbidden || !strings.Contains(r.Status.Message, `User "`+tt.user+`" cannot impersonate`) {
				t.Errorf("%d %s", r.Code, r.Status.Message)
			}
		})
	}
	// A spelling that the apiserver would not read, and so not check, is no
	// impersonation, and does not arrive.
	t.Run("other spellings", func(t *testing.T) {
		header := kube.Bearer(alice)
		header["Impersonate_User"], header["Impersonate_Group"] = []string{"root"}, []string{"system:masters"}
		r := kube.MustWhoAmI(t, px.Client("h1"), px.ClusterURL(ns, "prod"), header)
		if r.Code != http.StatusCreated || r.User.Username != "proxyauth:alice" {
			t.Errorf("%d %+v %s", r.Code, r.User, r.Status.Message)
		}
	})
	t.Run("strip is the default", func(t *testing.T) {
		r := w.px.Kubectl(t, ns, "prod", alice).MustRun(t, "auth", "whoami", "--as=bob", "-o", "jsonpath={.status.userInfo.username}")
		if r.Stdout != "proxyauth:alice" || !strings.Contains(r.Stderr, "Warning: proxyauth: the Impersonate-* headers were ignored") {
			t.Errorf("%+v", r)
		}
	})
}
