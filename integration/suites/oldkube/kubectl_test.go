//go:build long

package oldkube

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// RELAY-4: an older kubectl follows the redirects of an apiserver within its
// cluster, and is sent to no other one.
func TestLongOldestKubectlRedirects(t *testing.T) {
	w := worldOf(t, realtools.KubeAPIServer)
	hostile := rawserver.Start(t, rawserver.Options{Handler: rawserver.Redirect(http.StatusTemporaryRedirect, "/clusters/"+ns+"/front/api/v1/namespaces/default")})
	front, secret := w.frontProxy("front", w.right, pki.Must(w.right.FrontProxy()))
	away := proxy.FrontProxyCluster(ns, "away", hostile.URL, hostile.ServerCA, prefix, w.authenticator())
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"all.yaml": proxy.Manifests(
		front, secret, away, proxy.FrontProxySecret(ns, "away", hostile.URL, hostile.FrontProxy(1)),
	)}})
	px.MustServe(t, ns, "front")
	px.MustServe(t, ns, "away")
	old := func(cluster string) kube.Kubectl {
		k := px.Kubectl(t, ns, cluster, w.alice())
		k.Tool = realtools.Kubectl129
		return k
	}
	if version := old("front").MustRun(t, "version", "--client").Stdout; !strings.Contains(version, "v1.29.") {
		t.Fatalf("it is %s", version)
	}
	const schema = "/openapi/v3/apis/apps/v1?hash=0123"
	direct := w.right.Kubectl(t, "").MustRun(t, "get", "--raw", schema).Stdout
	// This kubectl takes the path of --raw for the whole path of the URL.
	through := old("front").MustRun(t, "get", "--raw", "/clusters/"+ns+"/front"+schema).Stdout
	if through != direct || len(direct) < 100_000 {
		t.Errorf("%d bytes through the proxy, %d bytes directly", len(through), len(direct))
	}
	if explained := old("front").MustRun(t, "explain", "deployments.spec.replicas").Stdout; !strings.Contains(explained, "<integer>") {
		t.Errorf("explain says %q", explained)
	}
	const things = "/clusters/" + ns + "/away/api/v1/namespaces/default/configmaps"
	for _, args := range [][]string{{"get", "--raw", things}, {"delete", "--raw", things}, {"create", "--raw", things, "-f", "-"}} {
		k := old("away")
		k.Stdin = []byte("{}")
		if r := k.MustEnd(t, args...); r.ExitCode == 0 || !strings.Contains(r.Stderr, "redirects to another place") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
