package hostile

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The fixture of the field cases: IDP, UP, PX.
const (
	ns = "team-a"
	// Clusters of the shared proxy, in FrontProxy with prefix "t:" in front of
	// an upstream that offers h2, and one that does not; then in Passthrough.
	fpH2, fpH1 = "cluster-a", "cluster-h1"
	ptH2, ptH1 = "pass-a", "pass-h1"

	prefix   = "t:"
	extraKey = "example.test/scopes"
)

// world is what most tests share.
type world struct {
	idp *oidc.Provider
	// ups are the upstreams by the cluster in front of them.
	ups map[string]*rawserver.Server
	px  *proxy.Proxy
}

var shared world

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hostile")
	if err == nil {
		defer os.RemoveAll(dir)
		err = shared.start(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	err = shared.px.Close()
	shared.idp.Stop()
	for _, up := range shared.ups {
		up.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: what the tests share:", err)
		return 1
	}
	return code
}

func (w *world) start(dir string) error {
	var err error
	if w.idp, err = oidc.New(oidc.Options{Users: users()}); err != nil {
		return err
	}
	w.idp.UseKey(oidc.E1) // each request has a token of its own, and RS256 takes its time
	w.ups = map[string]*rawserver.Server{}
	for cluster, o := range map[string]rawserver.Options{
		fpH2: {}, fpH1: {Protocols: []string{"http/1.1"}},
		ptH2: {NoIdentity: true}, ptH1: {NoIdentity: true, Protocols: []string{"http/1.1"}},
	} {
		if w.ups[cluster], err = rawserver.New(o); err != nil {
			return err
		}
	}
	w.px, err = proxy.New(context.Background(), dir, proxy.Options{Manifests: w.manifests()})
	if err != nil {
		return err
	}
	for cluster := range w.ups {
		_, err := w.px.WaitCluster(context.Background(), ns, cluster, func(s *proxy.ClusterStatus) bool {
			return strings.HasPrefix(s.Ready(), "True/")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func users() []oidc.User {
	return []oidc.User{{
		Subject: "subject-alice", Username: oidc.Alice, Email: "alice@example.test", EmailVerified: true,
		Groups: []string{"dev", "ops"}, Claims: map[string]any{"scopes": []string{"read", "write"}},
	}}
}

// manifests are the four shared clusters, for a proxy of a test's own.
func (w *world) manifests() map[string]string {
	files := map[string]string{}
	for cluster, up := range w.ups {
		if strings.HasPrefix(cluster, "pass") {
			files[cluster+".yaml"] = proxy.Manifests(passthrough(cluster, up, w.authenticator()))
		} else {
			files[cluster+".yaml"] = frontProxy(cluster, up.URL, up, w.authenticator())
		}
	}
	return files
}

// authenticator maps alice's name, groups and scopes.
func (w *world) authenticator() v1.JWTAuthenticator {
	a := proxy.Authenticator(w.idp)
	// Most tokens of the tests have no scopes.
	a.ClaimMappings.Extra = []v1.ExtraMapping{{Key: extraKey, ValueExpression: "has(claims.scopes) ? claims.scopes : []"}}
	return a
}

// frontProxy is the manifest of a cluster in FrontProxy at url, with its
// certificate.
func frontProxy(cluster, url string, up *rawserver.Server, jwt v1.JWTAuthenticator) string {
	return proxy.Manifests(
		proxy.FrontProxyCluster(ns, cluster, url, up.ServerCA, prefix, jwt),
		proxy.FrontProxySecret(ns, cluster, url, up.FrontProxy(1)),
	)
}

// frontProxyWith is frontProxy with a changed object and certificate.
func frontProxyWith(cluster string, up *rawserver.Server, pair *pki.KeyPair, jwt v1.JWTAuthenticator, change func(*v1.ProxyKubeApiSpec)) string {
	object := proxy.FrontProxyCluster(ns, cluster, up.URL, up.ServerCA, prefix, jwt)
	if change != nil {
		change(&object.Spec)
	}
	url := object.Spec.Service.ExternalService.URL
	return proxy.Manifests(object, proxy.FrontProxySecret(ns, cluster, url, pair))
}

// passthrough is a cluster in Passthrough that validates the same tokens.
func passthrough(cluster string, up *rawserver.Server, jwt v1.JWTAuthenticator) *v1.ProxyKubeApi {
	object := proxy.Cluster(ns, cluster, up.URL, up.ServerCA)
	object.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{jwt}}
	return object
}

// startProxy starts a proxy of a test's own with the shared clusters and
// further ones.
func startProxy(t *testing.T, o proxy.Options, clusters map[string]string) *proxy.Proxy {
	t.Helper()
	o.Manifests = shared.manifests()
	maps.Copy(o.Manifests, clusters)
	p := proxy.Start(t, o)
	for file := range o.Manifests {
		p.MustServe(t, ns, strings.TrimSuffix(file, ".yaml"))
	}
	return p
}

// token is T(x) of the field cases.
func token(changes map[string]any) string { return shared.idp.Token(oidc.Alice, changes) }

// alice is who UP sees for token(nil), the prefix removed.
func alice() *rawserver.Identity {
	return &rawserver.Identity{
		User: oidc.Alice, Groups: []string{"dev", "ops"},
		Extra: map[string][]string{extraKey: {"read", "write"}},
	}
}
