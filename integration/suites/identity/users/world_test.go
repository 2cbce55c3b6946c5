package users

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/onceworld"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// prefix is user_prefix and group_prefix of the clusters in FrontProxy.
	prefix = "proxyauth:"
	// ns is the namespace of all clusters.
	ns = "team-a"
)

// world is what the tests share.
type world struct {
	// idp does as the RFCs say, kanidm as Kanidm does. Both demand every
	// parameter of a token exchange.
	idp, kanidm *oidc.Provider

	// plain knows no identity provider.
	plain *kube.APIServer
	// own validates bearers itself: JWTs by its authentication configuration,
	// others by a webhook that introspects them.
	own     *kube.APIServer
	webhook *webhook
	// records stand in for apiservers, by mode.
	records map[v1.UpstreamMode]*rawserver.Server

	px *proxy.Proxy
}

var shared = onceworld.New(newWorld)

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func get(t *testing.T) *world {
	t.Helper()
	return shared.Get(t)
}

func newWorld(ctx context.Context, s *onceworld.Setup) (*world, error) {
	w := &world{records: map[v1.UpstreamMode]*rawserver.Server{}}
	var err error
	if w.idp, err = oidc.New(oidc.Options{Demanding: true, Clients: clients()}); err != nil {
		return nil, err
	}
	s.AtEnd(w.idp.Stop)
	if w.kanidm, err = oidc.New(oidc.Options{Demanding: true, LikeKanidm: true, Clients: clients()}); err != nil {
		return nil, err
	}
	s.AtEnd(w.kanidm.Stop)
	for mode, o := range map[v1.UpstreamMode]rawserver.Options{v1.ModeFrontProxy: {}, v1.ModePassthrough: {NoIdentity: true}} {
		o.Protocols = []string{"http/1.1"} // its bytes can be looked at
		if w.records[mode], err = rawserver.New(o); err != nil {
			return nil, err
		}
		s.AtEnd(w.records[mode].Stop)
	}
	if err := w.startAPIServers(ctx, s); err != nil {
		return nil, err
	}
	files := w.clusters()
	n := len(files)
	files["config.yaml"] = proxy.Manifests(proxy.Secret(ns, configSecret, configData(w.idp)))
	if w.px, err = proxy.New(ctx, filepath.Join(s.Dir, "proxy"), proxy.Options{Manifests: files}); err != nil {
		return nil, err
	}
	s.AtEndCheck(w.px.Close)
	return w, serving(ctx, w.px, n)
}

// serving waits until that many clusters of a proxy are Ready.
func serving(ctx context.Context, px *proxy.Proxy, n int) error {
	for {
		list, err := px.Clusters(ctx)
		ready, last := 0, ""
		for i := range list {
			if strings.HasPrefix(list[i].Ready(), "True/") {
				ready++
			} else {
				last = fmt.Sprintf("%s is %s: %s", list[i].Name, list[i].Ready(), message(&list[i]))
			}
		}
		if err == nil && ready >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d clusters are ready, %s: %w", ready, n, last, errors.Join(ctx.Err(), err))
		case <-px.Done():
			return fmt.Errorf("the proxy has ended:\n%s", px.Output())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// message is that of Ready when it is not True.
func message(s *proxy.ClusterStatus) string {
	if c := s.Condition("Ready"); c != nil {
		return c.Message
	}
	return ""
}

func (w *world) startAPIServers(ctx context.Context, s *onceworld.Setup) error {
	var err error
	if w.webhook, err = newWebhook(w.idp); err != nil {
		return err
	}
	s.AtEnd(w.webhook.stop)
	etcd, pki, err := kube.StartBase(ctx, s.Dir, s.AtEnd)
	if err != nil {
		return err
	}
	if w.plain, err = kube.StartAPIServer(ctx, filepath.Join(s.Dir, "plain"), kube.Options{Etcd: etcd, PKI: pki}); err != nil {
		return err
	}
	s.AtEnd(w.plain.Stop)
	config := filepath.Join(s.Dir, "webhook")
	if err := w.webhook.writeConfig(config); err != nil {
		return err
	}
	if w.own, err = kube.StartAPIServer(ctx, filepath.Join(s.Dir, "own"), kube.Options{
		Etcd: etcd, PKI: pki,
		AuthenticationConfig: kube.AuthenticationConfig(ownReading(w.idp, ownPrefix), ownReading(w.kanidm, ownPrefix+"kanidm:")),
		ExtraArgs:            []string{"--authentication-token-webhook-config-file=" + config, "--authentication-token-webhook-version=v1"},
	}); err != nil {
		return err
	}
	s.AtEnd(w.own.Stop)
	// It asks the providers in the background.
	client := w.own.HTTPClient(nil)
	defer client.CloseIdleConnections()
	for _, p := range []*oidc.Provider{w.idp, w.kanidm} {
		header := kube.Bearer(p.Token(oidc.Alice, nil))
		for {
			r, err := kube.WhoAmI(ctx, client, w.own.URL, header)
			if err != nil {
				return err
			}
			if r.Code == http.StatusCreated {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// ownPrefix marks the names that the apiserver in Passthrough found out by
// itself. They are subjects: an access token holds no other name.
const ownPrefix = "seen:"

func ownReading(p *oidc.Provider, prefix string) v1.JWTAuthenticator {
	a := proxy.Authenticator(p)
	a.ClaimMappings = &v1.ClaimMappings{Username: &v1.PrefixedClaimOrExpression{Claim: ptr("sub"), Prefix: ptr(prefix)}}
	return a
}

// front is a target of clusters, and the suffix of their names.
type front struct {
	suffix string
	mode   v1.UpstreamMode
}

// The four targets. An apiserver's audit log knows who arrived, a recorder
// what.
var (
	apiPassthrough = front{"", v1.ModePassthrough}
	apiFrontProxy  = front{"-front", v1.ModeFrontProxy}
	recPassthrough = front{"-rec", v1.ModePassthrough}
	recFrontProxy  = front{"-front-rec", v1.ModeFrontProxy}
)

// recorded are the targets whose requests are recorded.
var recorded = []front{recPassthrough, recFrontProxy}

// manifest is a cluster in front of one of the targets.
func (w *world) manifest(name string, f front, auth *v1.AuthConfig) string {
	switch f {
	case recPassthrough, recFrontProxy:
		return recorderManifest(name+f.suffix, f.mode, w.records[f.mode], auth)
	case apiPassthrough:
		c := proxy.Cluster(ns, name, w.own.URL, w.own.PKI.ServerCA)
		c.Spec.AuthConfig = auth
		return proxy.Manifests(c)
	}
	c := proxy.FrontProxyCluster(ns, name+f.suffix, w.plain.URL, w.plain.PKI.ServerCA, prefix)
	c.Spec.AuthConfig = auth
	pair, err := w.plain.FrontProxy()
	if err != nil {
		panic(err)
	}
	return proxy.Manifests(c, proxy.FrontProxySecret(ns, c.Name, w.plain.URL, pair))
}

// recorderManifest is a cluster in front of a recorder.
func recorderManifest(name string, mode v1.UpstreamMode, up *rawserver.Server, auth *v1.AuthConfig) string {
	if mode == v1.ModePassthrough {
		c := proxy.Cluster(ns, name, up.URL, up.ServerCA)
		c.Spec.AuthConfig = auth
		return proxy.Manifests(c)
	}
	c := proxy.FrontProxyCluster(ns, name, up.URL, up.ServerCA, prefix)
	c.Spec.AuthConfig = auth
	return proxy.Manifests(c, proxy.FrontProxySecret(ns, name, up.URL, up.FrontProxy(0)))
}

// recorders are the clusters of some configurations in front of both
// recorders.
func (w *world) recorders(configs map[string]*v1.AuthConfig) map[string]string {
	files := map[string]string{}
	for name, auth := range configs {
		for _, f := range recorded {
			files[name+f.suffix+".yaml"] = w.manifest(name, f, auth)
		}
	}
	return files
}

// startProxy starts a proxy of a test's own, with these clusters and other files
// beside them, and waits until all of these clusters serve.
func startProxy(t *testing.T, settings string, clusters, others map[string]string) *proxy.Proxy {
	t.Helper()
	files := maps.Clone(clusters)
	maps.Copy(files, others)
	px := proxy.Start(t, proxy.Options{Manifests: files, Settings: settings})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := serving(ctx, px, len(clusters)); err != nil {
		t.Fatal(err)
	}
	return px
}

func ptr[T any](v T) *T { return &v }
