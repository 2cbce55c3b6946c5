package kubernetes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// AUTH-8, ACC-1: kubectl with the token of a ServiceAccount, through a cluster
// that wants one of its groups. The apiserver sees the ServiceAccount, and the
// groups that it names are those that the proxy looks for.
func TestServiceAccountWithKubectl(t *testing.T) {
	w := get(t)
	token := w.account(t, "default", "bot")
	stranger := w.account(t, "kube-public", "stranger")
	const user = "system:serviceaccount:default:bot"
	w.api.Kubectl(t, "").MustRun(t, "create", "rolebinding", "bots-view", "--clusterrole=view", "--group=system:serviceaccounts:default")
	w.api.MustAllow(t, user, []string{"system:serviceaccounts:default"}, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Resource: "configmaps"})

	group := "system:serviceaccounts:default"
	grouped := w.cluster("grouped")
	grouped.Spec.ProxyGroup = &group
	bare := proxy.Cluster(ns, "bare", w.api.URL, w.api.PKI.ServerCA) // without auth_config
	px := start(t, "", grouped, bare)

	for _, name := range []string{"grouped", "bare"} {
		k := px.Kubectl(t, ns, name, token)
		if out := k.MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").Stdout; out != user {
			t.Errorf("%s: whoami says %q", name, out)
		}
		k.MustRun(t, "get", "configmaps")
		if r := k.MustEnd(t, "get", "secrets"); r.ExitCode == 0 || !strings.Contains(r.Stderr, user) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	w.arrived(t, "kubectl", user)
	w.arrived(t, reviewAgent, user)
	line := px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("cluster") == "grouped" && e.Text("user") == user })
	groups, _ := line["groups"].([]any)
	if want := []any{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}; !cmp.Equal(groups, want) {
		t.Errorf("the audit line names %v", groups)
	}

	wantRefused(t, ask(t, px, "grouped", stranger), http.StatusForbidden, "not a member of group system:serviceaccounts:default")
	if r := px.Kubectl(t, ns, "grouped", stranger).MustEnd(t, "get", "configmaps"); r.ExitCode == 0 || !strings.Contains(r.Stderr, "not a member of group") {
		t.Errorf("%+v", r)
	}
	wantUser(t, ask(t, px, "bare", stranger), "system:serviceaccount:kube-public:stranger")
}

// AUTH-8: every kind of token that the apiserver accepts works at the proxy. The
// proxy takes name and groups, and Passthrough sends the caller's token.
func TestEveryKindOfToken(t *testing.T) {
	w := get(t)
	px := start(t, "", w.cluster("prod"))
	for _, tt := range []struct {
		name, token, user string
		groups            []any
	}{
		{"a token file", devToken, "dev", []any{"dev", "ops", "system:authenticated"}},
		{"a service account", w.account(t, "default", "kinds"), "system:serviceaccount:default:kinds",
			[]any{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}},
		{"its own provider", w.idp.Token(oidc.Alice, map[string]any{"groups": []string{"sre", "on-call"}}), "alice", []any{"sre", "on-call", "system:authenticated"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantUser(t, ask(t, px, "prod", tt.token), tt.user)
			w.arrived(t, userAgent, tt.user)
			line := px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("user") == tt.user })
			if diff := cmp.Diff(tt.groups, line["groups"]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// AUTH-8, AUTH-12: a token that the apiserver refuses is a 401, asked about once
// in five seconds.
func TestRefusedTokens(t *testing.T) {
	w := get(t)
	other := kube.Start(t, kube.Options{})
	px := start(t, "", w.cluster("prod"))
	for name, token := range map[string]string{
		"random":               "random-0123456789-abcdefghijklmnop",
		"of another cluster":   account(t, other, "default", "bot"),
		"expired":              w.idp.Token(oidc.Alice, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"for another audience": w.idp.Token(oidc.Alice, map[string]any{"aud": "somebody else"}),
		"a broken signature":   oidc.FlipSignatureBit(w.idp.Token(oidc.Alice, nil)),
		"unsigned":             w.idp.Unsigned(w.idp.Claims(oidc.Alice, nil), "none"),
	} {
		t.Run(name, func(t *testing.T) {
			before := reviews(t, w.api, "")
			began := time.Now()
			for range 5 {
				wantRefused(t, ask(t, px, "prod", token), http.StatusUnauthorized, "the cluster's apiserver refuses the token")
			}
			if n := reviews(t, w.api, "") - before; n != 1 && time.Since(began) < 5*time.Second {
				t.Errorf("%d reviews", n)
			}
		})
	}
	events, err := w.api.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.UserAgent == userAgent && e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusUnauthorized {
			t.Fatalf("a request was relayed with a refused token: %s", e.RequestURI)
		}
	}
}

// AUTH-12: a token that is revoked is refused by the proxy itself when what was
// remembered of it ends; the apiserver refuses what is relayed until then.
func TestRevokedToken(t *testing.T) {
	w := get(t)
	token := w.account(t, "default", "revoked")
	px := start(t, "token_cache_ttl 1s", w.cluster("prod"))
	wantUser(t, ask(t, px, "prod", token), "system:serviceaccount:default:revoked")
	if err := core(t, w.api).ServiceAccounts("default").Delete(t.Context(), "revoked", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	// The apiserver remembers good tokens for some seconds, too.
	direct := w.api.HTTPClient(nil)
	defer direct.CloseIdleConnections()
	eventually(t, "the apiserver refuses it", func() bool {
		return kube.MustWhoAmI(t, direct, w.api.URL, kube.Bearer(token)).Code == http.StatusUnauthorized
	})
	t.Logf("the apiserver refuses it after %v", time.Since(deleted))
	refused := time.Now()
	eventually(t, "the proxy refuses it", func() bool {
		r := ask(t, px, "prod", token)
		if r.Code != http.StatusUnauthorized {
			t.Fatalf("%d %s", r.Code, r.Status.Message)
		}
		return strings.Contains(r.Status.Message, "the cluster's apiserver refuses the token")
	})
	// A second, and what a busy machine adds; the default would be half a minute.
	if later := time.Since(refused); later > 15*time.Second {
		t.Errorf("the proxy refuses it %v later", later)
	}
}

// AUTH-8: an apiserver that does not let people ask who they are is told to the
// caller as what it is, and not as a bad login.
func TestReviewForbidden(t *testing.T) {
	w := get(t)
	token := w.account(t, "default", "forbidden")
	px := start(t, "", w.cluster("prod"))
	rbac, err := rbacclient.NewForConfig(w.api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	bindings := rbac.ClusterRoleBindings()
	removed, err := bindings.Get(t.Context(), "system:basic-user", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), removed.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		again := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: removed.Name}, RoleRef: removed.RoleRef, Subjects: removed.Subjects}
		if _, err := bindings.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	direct := w.api.HTTPClient(nil)
	defer direct.CloseIdleConnections()
	eventually(t, "the apiserver forbids it", func() bool {
		return kube.MustWhoAmI(t, direct, w.api.URL, kube.Bearer(token)).Code == http.StatusForbidden
	})
	const text = "does not let the caller make a SelfSubjectReview"
	wantRefused(t, ask(t, px, "prod", token), http.StatusServiceUnavailable, text)
	if r := px.Kubectl(t, ns, "prod", token).MustEnd(t, "get", "pods"); r.ExitCode == 0 || !strings.Contains(r.Stderr, text) {
		t.Errorf("kubectl shows %q", r.Stderr)
	}
	// An administrator may do everything, and is not touched by it.
	wantUser(t, ask(t, px, "prod", rootToken), "root")
	restore()
	eventually(t, "the apiserver allows it", func() bool {
		return ask(t, px, "prod", token).Code == http.StatusCreated
	})
}

// AUTH-8, URL-3: the review goes below the path base, and an apiserver that does
// not have it says 404 there.
func TestReviewNotServed(t *testing.T) {
	w := get(t)
	c := w.cluster("prod")
	c.Spec.Service.ExternalService.URL += "/not/the/base"
	px := start(t, "", c)
	wantRefused(t, ask(t, px, "prod", rootToken), http.StatusServiceUnavailable, "does not serve selfsubjectreviews of authentication.k8s.io/v1")
	events, err := w.api.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	var uris []string
	for _, e := range events {
		if e.UserAgent == reviewAgent && e.User.Username == "root" {
			uris = append(uris, e.RequestURI)
		}
	}
	if want := "/not/the/base" + kube.ReviewPath; !slices.Contains(uris, want) {
		t.Errorf("reviews of root at %s", fmt.Sprint(uris))
	}
}
