package frontproxy

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/onceworld"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// prefix is user_prefix and group_prefix of the clusters in FrontProxy.
	prefix = "proxyauth:"
	// deptKey is an extra key with characters that a header name must not hold.
	deptKey = "example.com/dept:a%b=c,d(e)"
	// ns is the namespace of all clusters.
	ns = "team-a"
)

// hostForm is a site whose every request is for the cluster prod.
const hostForm = `https://127.0.0.1:%{port2} {
	bind 127.0.0.1
	tls %{cert} %{key}
	proxyauth {
		cluster team-a/prod
	}
}`

// world is what the tests share.
type world struct {
	idp *oidc.Provider
	// plain knows no identity provider: the proxy alone says who a user is.
	plain *kube.APIServer
	// full validates the provider's tokens itself, with the prefix oidc:, and
	// reads X-Remote-Uid.
	full *kube.APIServer
	// px serves the clusters prod and refuse-* (plain), uid, pass, open (full).
	px *proxy.Proxy
}

var shared = onceworld.New(newWorld)

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func get(t *testing.T) *world {
	t.Helper()
	return shared.Get(t)
}

func newWorld(ctx context.Context, s *onceworld.Setup) (*world, error) {
	w := &world{}
	var err error
	if w.idp, err = oidc.New(oidc.Options{}); err != nil {
		return nil, err
	}
	s.AtEnd(w.idp.Stop)
	etcd, authorities, err := kube.StartBase(ctx, s.Dir, s.AtEnd)
	if err != nil {
		return nil, err
	}
	if w.plain, err = kube.StartAPIServer(ctx, filepath.Join(s.Dir, "plain"), kube.Options{Etcd: etcd, PKI: authorities}); err != nil {
		return nil, err
	}
	s.AtEnd(w.plain.Stop)
	header := authorities.DefaultRequestHeader()
	header.UIDHeaders = true
	own := proxy.Authenticator(w.idp)
	own.ClaimMappings.Username.Prefix = ptr("oidc:")
	if w.full, err = kube.StartAPIServer(ctx, filepath.Join(s.Dir, "full"), kube.Options{
		Etcd: etcd, PKI: authorities, RequestHeader: header, AuthenticationConfig: kube.AuthenticationConfig(own),
	}); err != nil {
		return nil, err
	}
	s.AtEnd(w.full.Stop)
	if w.px, err = proxy.New(ctx, filepath.Join(s.Dir, "proxy"), proxy.Options{Manifests: w.manifests(), Sites: hostForm}); err != nil {
		return nil, err
	}
	s.AtEndCheck(w.px.Close)
	for _, name := range []string{"prod", "uid", "pass", "open", "refuse-sys", "refuse-group"} {
		if _, err := w.px.WaitCluster(ctx, ns, name, func(s *proxy.ClusterStatus) bool { return s.Ready() == "True/Serving" }); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// manifests are the clusters of the shared proxy.
func (w *world) manifests() map[string]string {
	uid := proxy.FrontProxyCluster(ns, "uid", w.full.URL, w.full.PKI.ServerCA, prefix, w.authenticator())
	uid.Spec.UpstreamAuth.ForwardUID = true
	pass := proxy.Cluster(ns, "pass", w.full.URL, w.full.PKI.ServerCA)
	pass.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{w.authenticator()}}
	open := proxy.Cluster(ns, "open", w.full.URL, w.full.PKI.ServerCA)
	open.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	// Prefixes that admission accepts and that can still build system: names.
	sys, group := w.frontProxy("refuse-sys"), w.frontProxy("refuse-group")
	sys.Spec.UpstreamAuth.UserPrefix = ptr("sys")
	group.Spec.UpstreamAuth.GroupPrefix = ptr("system")
	return map[string]string{
		"prod.yaml":  proxy.Manifests(w.frontProxy("prod"), w.secret("prod", w.plain)),
		"uid.yaml":   proxy.Manifests(uid, w.secret("uid", w.full)),
		"pass.yaml":  proxy.Manifests(pass),
		"open.yaml":  proxy.Manifests(open),
		"sys.yaml":   proxy.Manifests(sys, w.secret("refuse-sys", w.plain)),
		"group.yaml": proxy.Manifests(group, w.secret("refuse-group", w.plain)),
	}
}

// frontProxy is a cluster in FrontProxy for the plain apiserver.
func (w *world) frontProxy(name string) *v1.ProxyKubeApi {
	return proxy.FrontProxyCluster(ns, name, w.plain.URL, w.plain.PKI.ServerCA, prefix, w.authenticator())
}

func (w *world) secret(name string, a *kube.APIServer) any {
	return proxy.FrontProxySecret(ns, name, a.URL, pki.Must(a.FrontProxy()))
}

// authenticator maps username, groups, uid and an extra, without prefixes.
func (w *world) authenticator() v1.JWTAuthenticator {
	a := proxy.Authenticator(w.idp)
	a.ClaimMappings.UID = &v1.ClaimOrExpression{Expression: ptr("claims.sub")}
	a.ClaimMappings.Extra = []v1.ExtraMapping{{Key: deptKey, ValueExpression: "claims.?dept.orValue([])"}}
	return a
}

// url is that of a cluster behind the shared proxy.
func (w *world) url(name string) string { return w.px.ClusterURL(ns, name) }

// audited are the events of an apiserver that match, complete ones only.
func audited(t *testing.T, a *kube.APIServer, match func(*auditv1.Event) bool) []auditv1.Event {
	t.Helper()
	all, err := a.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	var found []auditv1.Event
	for i := range all {
		if all[i].Stage == auditv1.StageResponseComplete && match(&all[i]) {
			found = append(found, all[i])
		}
	}
	return found
}

// rawNull is a claim that is null; nil would leave it out.
var rawNull = json.RawMessage("null")

func ptr[T any](v T) *T { return &v }
