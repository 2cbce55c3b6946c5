package migration

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	prefix = "proxyauth:"
	// idpName and prefixedName are alice as an apiserver sees her in
	// Passthrough and in FrontProxy.
	idpName      = oidc.Alice
	prefixedName = prefix + oidc.Alice

	// interval is the proxy's probe_interval.
	interval = 5 * time.Second
	// roundLimit is within what time a probe round shows in the status and as
	// an Event: the interval and its jitter, half the limit of a probe, and
	// what a loaded machine needs to write.
	roundLimit = interval*11/10 + 5*time.Second + 2*time.Second
	// soon bounds what must come.
	soon = 60 * time.Second

	// otherName is a CN that no apiserver allows, identityName one that the
	// client CA has signed.
	otherName    = "front-proxy-b"
	identityName = "carol"
)

// world is a hub, a proxy that reads from it, and the apiservers behind the
// proxy. They share their authorities and know the identity provider.
type world struct {
	ctx   context.Context
	idp   *oidc.Provider
	pki   *kube.PKI
	hub   *hub.Hub
	main  *kube.APIServer
	proxy *proxy.Proxy
	// flags is restarted with other flags.
	flags *kube.APIServer
	// targets are the apiservers that users reach.
	targets []*kube.APIServer
	// validator is that of all clusters.
	validator validator
	// asked counts the tokens that were used otherwise than by a load.
	asked atomic.Int32

	clusters *hub.Feed[v1.ProxyKubeApi]
	events   *hub.Feed[corev1.Event]
	// good is a certificate that every apiserver trusts.
	good *pki.KeyPair
}

const settings = "probe_interval 5s\nupstream_client_ttl 2s"

// newWorld starts a world. Users reach main and flags, and in a wide one the hub.
func newWorld(t *testing.T, v validator, wide bool) *world {
	t.Helper()
	return newWorldOf(t, v, wide, realtools.KubeAPIServer, realtools.KubeAPIServer)
}

// newWorldOf is newWorld with these versions of the hub, and of main and flags.
func newWorldOf(t *testing.T, v validator, wide bool, ofHub, ofTargets realtools.Tool) *world {
	t.Helper()
	w := &world{ctx: context.Background(), idp: oidc.Start(t, oidc.Options{}), validator: v}
	var err error
	if w.pki, err = kube.NewPKI(); err != nil {
		t.Fatal(err)
	}
	jwt := proxy.Authenticator(w.idp)
	o := kube.Options{APIServer: ofTargets, Etcd: kube.StartSharedEtcd(t), PKI: w.pki, OIDC: &jwt}
	w.main, w.flags = kube.Start(t, o), kube.Start(t, o)
	o.APIServer = ofHub
	w.hub = hub.Start(t, o)
	w.targets = []*kube.APIServer{w.main, w.flags}
	if wide {
		w.targets = append(w.targets, w.hub.APIServer)
	}
	for _, target := range w.targets {
		w.known(t, target)
		target.Kubectl(t, "").MustRun(t, "create", "clusterrolebinding", "users", "--clusterrole=view", "--user="+idpName, "--user="+prefixedName)
	}
	w.good = w.pair(w.pki.FrontProxyCA, kube.FrontProxyName)
	w.proxy = proxy.Start(t, proxy.Options{Hub: w.hub.Kubeconfig, Settings: settings})
	w.clusters = hub.Follow[v1.ProxyKubeApi](t, w.hub, hub.ClustersPath)
	w.events = hub.Follow[corev1.Event](t, w.hub, hub.EventsPath)
	return w
}

// known waits until an apiserver that started knows the identity provider,
// which it asks in the background.
func (w *world) known(t *testing.T, target *kube.APIServer) {
	t.Helper()
	client := target.HTTPClient(nil)
	defer client.CloseIdleConnections()
	header := kube.Bearer(w.idp.Token(oidc.Alice, nil))
	hub.Eventually(t, "the apiserver knows the identity provider", soon, func() bool {
		r, err := kube.WhoAmI(w.ctx, client, target.URL, header)
		return err == nil && r.Code == http.StatusCreated
	})
}

func (w *world) pair(ca *pki.CA, commonName string, organization ...string) *pki.KeyPair {
	return pki.Must(ca.Client(commonName, organization...))
}

// cluster is an object in Passthrough, without prefixes.
func (w *world) cluster(key types.NamespacedName, target *kube.APIServer) *v1.ProxyKubeApi {
	c := proxy.Cluster(key.Namespace, key.Name, target.URL, w.pki.ServerCA)
	c.Spec.AuthConfig = w.validator.auth(w.idp)
	return c
}

// prepared is an object in preparation, or with that mode.
func (w *world) prepared(key types.NamespacedName, target *kube.APIServer, mode v1.UpstreamMode) *v1.ProxyKubeApi {
	c := w.cluster(key, target)
	user, group := prefix, prefix
	c.Spec.UpstreamAuth = &v1.UpstreamAuth{Mode: mode, UserPrefix: &user, GroupPrefix: &group}
	return c
}

func (w *world) secret(key types.NamespacedName, target *kube.APIServer, pair *pki.KeyPair) *corev1.Secret {
	return proxy.FrontProxySecret(key.Namespace, key.Name, target.URL, pair)
}

func (w *world) patch(t *testing.T, key types.NamespacedName, patch string) {
	t.Helper()
	w.hub.Patch(t, key.Namespace, v1.Resource, key.Name, patch)
}

// ask sends one review through the proxy.
func (w *world) ask(t *testing.T, key types.NamespacedName) *kube.Review {
	t.Helper()
	w.asked.Add(1)
	client := w.proxy.Client("h2")
	defer client.CloseIdleConnections()
	header := kube.Bearer(w.idp.Token(oidc.Alice, nil))
	header.Set("User-Agent", "migration")
	return kube.MustWhoAmI(t, client, w.proxy.ClusterURL(key.Namespace, key.Name), header)
}

// closed asks and wants a refusal of section 13 of the reference.
func (w *world) closed(t *testing.T, key types.NamespacedName, code int, message string) {
	t.Helper()
	r := w.ask(t, key)
	if r.Code != code || r.Status.Kind != "Status" || r.Status.Message != message || r.Header.Get("Retry-After") != "" {
		t.Errorf("%s answers %d %q, want %d %q", key, r.Code, r.Status.Message, code, message)
	}
}

const notReady = "this cluster is not ready for upstream mode FrontProxy: "

// whoami is what kubectl prints behind the proxy.
func (w *world) whoami(t *testing.T, key types.NamespacedName) string {
	t.Helper()
	w.asked.Add(1)
	k := w.proxy.Kubectl(t, key.Namespace, key.Name, w.idp.Token(oidc.Alice, nil))
	return k.MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").Stdout
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func contains(s, part string) bool { return strings.Contains(s, part) }
