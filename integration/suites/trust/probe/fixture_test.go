package probe

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/onceworld"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	prefix    = "proxyauth:"
	namespace = "team-a"
	name      = "prod"
	// probeAgent is how the proxy's own requests call themselves.
	probeAgent = "proxyauth-probe"
)

// world is an identity provider and three apiservers with the same authorities.
type world struct {
	idp *oidc.Provider
	pki *kube.PKI
	// right honours the proxy; the others lack a flag.
	right, noGroup, noExtra *kube.APIServer
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
	var etcd *kube.Etcd
	if etcd, w.pki, err = kube.StartBase(ctx, s.Dir, s.AtEnd); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		to     **kube.APIServer
		name   string
		change func(*kube.RequestHeader)
	}{
		{&w.right, "right", func(h *kube.RequestHeader) {}},
		{&w.noGroup, "no-group", func(h *kube.RequestHeader) { h.NoGroupHeaders = true }},
		{&w.noExtra, "no-extra", func(h *kube.RequestHeader) { h.NoExtraHeaders = true }},
	} {
		header := w.pki.DefaultRequestHeader()
		a.change(header)
		if *a.to, err = kube.StartAPIServer(ctx, filepath.Join(s.Dir, a.name), kube.Options{Etcd: etcd, PKI: w.pki, RequestHeader: header}); err != nil {
			return nil, err
		}
		s.AtEnd((*a.to).Stop)
	}
	return w, nil
}

// cluster is the object for an apiserver at url.
func (w *world) cluster(url string) *v1.ProxyKubeApi {
	return proxy.FrontProxyCluster(namespace, name, url, w.pki.ServerCA, prefix, proxy.Authenticator(w.idp))
}

// goodPair is a certificate that all three apiservers trust.
func (w *world) goodPair() *pki.KeyPair {
	return pki.Must(w.pki.FrontProxyCA.Client(kube.FrontProxyName))
}

// start starts a proxy for the cluster at url and waits until it has read its
// clusters; whether the apiserver honours it may not be known yet.
func (w *world) start(t *testing.T, url string, pair *pki.KeyPair, settings string, change func(*v1.ProxyKubeApi)) *proxy.Proxy {
	t.Helper()
	c := w.cluster(url)
	if change != nil {
		change(c)
	}
	px := proxy.Start(t, proxy.Options{
		Settings:  settings,
		Manifests: map[string]string{"prod.yaml": proxy.Manifests(c, proxy.FrontProxySecret(namespace, name, url, pair))},
	})
	waitFor(t, func() bool {
		resp, err := http.Get(px.Health + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return px
}

// mark is how many events an apiserver has written, to look at later ones only.
func mark(t *testing.T, a *kube.APIServer) int {
	t.Helper()
	all, err := a.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// since are the events after a mark that match, one for each request. A watch
// has two, a request that is refused with 401 has one of another stage than
// those that are answered.
func since(t *testing.T, a *kube.APIServer, mark int, match func(*auditv1.Event) bool) []auditv1.Event {
	t.Helper()
	all, err := a.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	var found []auditv1.Event
	seen := map[types.UID]bool{}
	for i := mark; i < len(all); i++ {
		if id := all[i].AuditID; !seen[id] && match(&all[i]) {
			seen[id] = true
			found = append(found, all[i])
		}
	}
	return found
}

// byProbe says that the proxy sent it of its own accord: the review of
// TRUST-1, or the anonymous GET /version of Reachable.
func byProbe(e *auditv1.Event) bool {
	if e.UserAgent != probeAgent {
		return false
	}
	return e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Resource == "selfsubjectreviews" || e.Verb == "get" && e.RequestURI == "/version"
}

// isUnasserted reports whether an event has a name that was not asserted: that of
// the certificate, anonymous, or none (a 401).
func isUnasserted(e *auditv1.Event) bool {
	switch e.User.Username {
	case kube.FrontProxyName, otherName, "system:anonymous", "":
		return true
	}
	return false
}

// otherName is a CN that the apiservers do not allow.
const otherName = "front-proxy-b"
