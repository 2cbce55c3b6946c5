//go:build long

package oldkube

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// A cluster behind the proxy of each old version, in both modes.
func TestLongTargets(t *testing.T) {
	for _, tool := range realtools.Older() {
		t.Run(tool.Name, func(t *testing.T) {
			w := newWorld(t, tool)
			admin := w.right.Kubectl(t, "")
			admin.MustRun(t, "create", "namespace", "shop")
			admin.MustRun(t, "create", "serviceaccount", "bot", "-n", "shop")
			for _, user := range []string{"alice", prefix + "alice", account} {
				admin.MustRun(t, "create", "rolebinding", strings.ReplaceAll(user, ":", "."), "-n", "shop", "--clusterrole=edit", "--user="+user)
				w.right.MustAllow(t, user, nil, authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps", Namespace: "shop"})
			}
			t.Run("trust", func(t *testing.T) { trust(t, w) })
			t.Run("kubectl", func(t *testing.T) { kubectl(t, w) })
			t.Run("client_cert", func(t *testing.T) { clientCert(t, w) })
		})
	}
}

const account = "system:serviceaccount:shop:bot"

// trust is what the probe says of each way in which an apiserver does not honour
// a proxy (TRUST-1), and what a user is answered then.
func trust(t *testing.T, w *world) {
	good := pki.Must(w.pki.FrontProxyCA.Client(kube.FrontProxyName))
	noGroup := w.apiserver(t, func(h *kube.RequestHeader) { h.NoGroupHeaders = true })
	noExtra := w.apiserver(t, func(h *kube.RequestHeader) { h.NoExtraHeaders = true })
	const notTrusted, notHonoured = "FrontProxyNotTrusted", "UpstreamIdentityNotHonoured"
	tests := []struct {
		name   string
		api    *kube.APIServer
		pair   *pki.KeyPair
		uid    bool
		trust  v1.Trust
		reason string
		text   string
	}{
		{name: "right", api: w.right, pair: good, trust: v1.TrustTrusted, reason: "Serving"},
		{name: "no-group-flag", api: noGroup, pair: good, trust: v1.TrustNotHonoured, reason: notHonoured, text: "without its group (--requestheader-group-headers)"},
		{name: "no-extra-flag", api: noExtra, pair: good, trust: v1.TrustNotHonoured, reason: notHonoured, text: "without its extra (--requestheader-extra-headers-prefix)"},
		// A flag that these versions do not have.
		{name: "uid", api: w.right, pair: good, uid: true, trust: v1.TrustNotHonoured, reason: notHonoured, text: "without its uid (--requestheader-uid-headers)"},
		{name: "stranger", api: w.right, pair: pki.Must(pki.MustCA("stranger").Client(kube.FrontProxyName)), trust: v1.TrustRejected, reason: notTrusted, text: "401"},
		{name: "other-name", api: w.right, pair: pki.Must(w.pki.FrontProxyCA.Client("front-proxy-b")), trust: v1.TrustRejected, reason: notTrusted, text: "401"},
		{name: "client-ca", api: w.right, pair: pki.Must(w.pki.ClientCA.Client("carol", "staff")), trust: v1.TrustNotHonoured, reason: notHonoured, text: `user "carol", groups ["staff"`},
	}
	manifests := map[string]string{}
	for _, tt := range tests {
		object, secret := w.frontProxy(tt.name, tt.api, tt.pair)
		object.Spec.UpstreamAuth.ForwardUID = tt.uid
		manifests[tt.name+".yaml"] = proxy.Manifests(object, secret)
	}
	px := proxy.Start(t, proxy.Options{Manifests: manifests})
	client := px.Client("h2")
	defer client.CloseIdleConnections()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := px.MustCluster(t, ns, tt.name, func(s *proxy.ClusterStatus) bool {
				return s.Status.UpstreamAuth != nil && s.Status.UpstreamAuth.Trust == tt.trust && s.Condition("Ready").Reason == tt.reason
			})
			if m := s.Condition("Ready").Message; !strings.Contains(m, tt.text) {
				t.Errorf("Ready says %q, without %q", m, tt.text)
			}
			r := kube.MustWhoAmI(t, client, px.ClusterURL(ns, tt.name), kube.Bearer(w.alice()))
			if tt.trust == v1.TrustTrusted {
				if r.Code != http.StatusCreated || r.User.Username != prefix+"alice" {
					t.Errorf("%d %+v %s", r.Code, r.User, r.Status.Message)
				}
				return
			}
			if want := "this cluster is not ready for upstream mode FrontProxy: " + tt.reason; r.Code != http.StatusServiceUnavailable || r.Status.Message != want {
				t.Errorf("%d %q, want 503 %q", r.Code, r.Status.Message, want)
			}
		})
	}
}

// kubectl is the current kubectl through the proxy, for every kind of
// authentication: its answers and rights, a watch, and the user in the apiserver's
// audit log (ID-1, ID-4, AUTH-8).
func kubectl(t *testing.T, w *world) {
	front, secret := w.frontProxy("front", w.right, pki.Must(w.right.FrontProxy()))
	front.Spec.AuthConfig.JWT[0].ClaimMappings.Extra = []v1.ExtraMapping{{Key: "example.com/dept:a%b=c", ValueExpression: "['sales', 'R&D']"}}
	jwt, review := w.passthrough("jwt", v1.ValidateJwtAuthenticators), w.passthrough("review", v1.ValidateKubernetes)
	review.Spec.ProxyGroup = ptr("system:serviceaccounts:shop")
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"all.yaml": proxy.Manifests(front, secret, jwt, review)}})
	bot := strings.TrimSpace(w.right.Kubectl(t, "").MustRun(t, "create", "token", "bot", "-n", "shop").Stdout)

	for _, tt := range []struct {
		cluster, token, user string
		groups               []string
	}{
		{"front", w.alice(), prefix + "alice", []string{prefix + "team-a", prefix + "a,b"}},
		{"jwt", w.alice(), "alice", []string{"team-a", "a,b"}},
		{"review", bot, account, []string{"system:serviceaccounts", "system:serviceaccounts:shop"}},
	} {
		t.Run(tt.cluster, func(t *testing.T) {
			px.MustServe(t, ns, tt.cluster)
			groups := append(tt.groups, "system:authenticated")
			k := px.Kubectl(t, ns, tt.cluster, tt.token)
			if user := k.MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").Stdout; user != tt.user {
				t.Errorf("whoami says %q", user)
			}
			watch := k.MustStart(t, "get", "configmaps", "-n", "shop", "-w", "--output-watch-events")
			name := "of-" + tt.cluster
			k.MustRun(t, "create", "configmap", name, "-n", "shop", "--from-literal=colour=red")
			watch.MustLine(t, "ADDED      "+name)
			k.Stdin = []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {colour: blue}\n")
			k.MustRun(t, "apply", "-n", "shop", "--server-side", "--force-conflicts", "-f", "-")
			watch.MustLine(t, "MODIFIED   "+name)
			if colour := k.MustRun(t, "get", "configmap", name, "-n", "shop", "-o", "jsonpath={.data.colour}").Stdout; colour != "blue" {
				t.Errorf("it is %q", colour)
			}
			k.MustRun(t, "delete", "configmap", name, "-n", "shop")
			watch.MustLine(t, "DELETED    "+name)
			if r := k.MustEnd(t, "get", "nodes"); r.ExitCode == 0 || !strings.Contains(r.Stderr, `User "`+tt.user+`" cannot list resource "nodes"`) {
				t.Errorf("nodes: %+v", r)
			}
			audited(t, w.right, "watch", "configmaps", tt.user, groups...)
			audited(t, w.right, "patch", "configmaps", tt.user, groups...)
			audited(t, w.right, "list", "nodes", tt.user, groups...)
		})
	}
	t.Run("extra", func(t *testing.T) {
		client := px.Client("h1")
		defer client.CloseIdleConnections()
		r := kube.MustWhoAmI(t, client, px.ClusterURL(ns, "front"), kube.Bearer(w.alice()))
		if diff := cmp.Diff([]string{"sales", "R&D"}, []string(r.User.Extra["example.com/dept:a%b=c"])); diff != "" {
			t.Errorf("%+v\n%s", r, diff)
		}
	})
	t.Run("refused tokens", func(t *testing.T) {
		for cluster, text := range map[string]string{"front": "", "jwt": "", "review": "the cluster's apiserver refuses the token"} {
			k := px.Kubectl(t, ns, cluster, "random-0123456789-abcdefghijklmnop")
			if r := k.MustEnd(t, "get", "configmaps", "-n", "shop"); r.ExitCode == 0 || !strings.Contains(r.Stderr, "Warning: proxyauth: ") || !strings.Contains(r.Stderr, text) {
				t.Errorf("%s: %+v", cluster, r)
			}
		}
	})
}

// clientCert: a client_cert that the apiserver takes for an identity carries no
// request; one that it does not know carries all (CERT-9).
func clientCert(t *testing.T, w *world) {
	objects := func(name string, ca *pki.CA) string {
		c, pair := w.passthrough(name, v1.ValidateJwtAuthenticators), pki.Must(ca.Client("carol", "staff"))
		half := func(key string) v1.CertSource {
			return v1.CertSource{Secret: &v1.KeyReference{Name: name, Key: key}}
		}
		c.Spec.ClientCert = &v1.ClientCert{Cert: half("tls.crt"), Key: half("tls.key")}
		return proxy.Manifests(c, proxy.Secret(ns, name, map[string]string{"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM)}))
	}
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"identity.yaml": objects("identity", w.pki.ClientCA), "gate.yaml": objects("gate", pki.MustCA("gate")),
	}})
	client := px.Client("h2")
	defer client.CloseIdleConnections()
	ask := func(name string) *kube.Review {
		header := kube.Bearer(w.alice())
		header.Set("User-Agent", "client_cert")
		return kube.MustWhoAmI(t, client, px.ClusterURL(ns, name), header)
	}
	px.MustCluster(t, ns, "identity", func(*proxy.ClusterStatus) bool { return true })
	if r := ask("identity"); r.Code != http.StatusServiceUnavailable || r.Status.Message != "this cluster is not ready: ClientCertIsIdentity" {
		t.Errorf("%d %q %s", r.Code, r.User.Username, r.Status.Message)
	}
	s := px.MustCluster(t, ns, "identity", func(s *proxy.ClusterStatus) bool { return s.Ready() == "False/ClientCertIsIdentity" })
	if m := s.Condition("Ready").Message; !strings.Contains(m, `user "carol"`) {
		t.Errorf("Ready says %q", m)
	}
	px.MustServe(t, ns, "gate")
	if r := ask("gate"); r.Code != http.StatusCreated || r.User.Username != "alice" {
		t.Errorf("%d %q %s", r.Code, r.User.Username, r.Status.Message)
	}
	w.right.MustAudit(t, func(e *auditv1.Event) bool { return e.UserAgent == "client_cert" && e.User.Username == "alice" })
	events, err := w.right.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.UserAgent == "client_cert" && e.User.Username != "alice" {
			t.Errorf("a request ran as %q", e.User.Username)
		}
	}
}
