package kubernetes

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/onceworld"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// ns is the namespace of all clusters.
	ns = "team-a"
	// reviewAgent is how the proxy's reviews for a caller call themselves,
	// userAgent how the callers of these tests do.
	reviewAgent = "proxyauth-review"
	userAgent   = "user"

	// Two tokens of the apiserver's token file.
	rootToken = "static-token-of-root-0123456789abcdef"
	devToken  = "static-token-of-dev-0123456789abcdef"
)

// world is what the tests share.
type world struct {
	idp *oidc.Provider
	// api knows its own service accounts, a token file, and the provider.
	api *kube.APIServer
}

var shared = onceworld.New(newWorld)

func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }

func newWorld(ctx context.Context, s *onceworld.Setup) (*world, error) {
	w := &world{}
	var err error
	if w.idp, err = oidc.New(oidc.Options{}); err != nil {
		return nil, err
	}
	s.AtEnd(w.idp.Stop)
	tokens := filepath.Join(s.Dir, "tokens.csv")
	content := rootToken + ",root,1,system:masters\n" + devToken + ",dev,2,\"dev,ops\"\n"
	if err := os.WriteFile(tokens, []byte(content), 0o600); err != nil {
		return nil, err
	}
	if w.api, err = kube.StartAPIServer(ctx, s.Dir, kube.Options{
		AuthenticationConfig: kube.AuthenticationConfig(proxy.Authenticator(w.idp)),
		// Crowds are to meet the proxy's limits, not the apiserver's, which answers
		// 429 to a thousand requests at once when the machine is slow.
		ExtraArgs: []string{"--token-auth-file=" + tokens, "--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0"},
	}); err != nil {
		return nil, err
	}
	s.AtEnd(w.api.Stop)
	return w, nil
}

func get(t *testing.T) *world {
	t.Helper()
	return shared.Get(t)
}

// cluster is a ProxyKubeApi of the shared apiserver that leaves tokens to it.
func (w *world) cluster(name string) *v1.ProxyKubeApi {
	c := proxy.Cluster(ns, name, w.api.URL, w.api.PKI.ServerCA)
	c.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateKubernetes}
	return c
}

// start starts a proxy for these objects and waits until they are known.
func start(t *testing.T, settings string, clusters ...*v1.ProxyKubeApi) *proxy.Proxy {
	t.Helper()
	manifests := map[string]string{}
	for _, c := range clusters {
		manifests[c.Name+".yaml"] = proxy.Manifests(c)
	}
	px := proxy.Start(t, proxy.Options{Settings: settings, Manifests: manifests})
	for _, c := range clusters {
		px.MustServe(t, ns, c.Name)
	}
	return px
}

// account makes a ServiceAccount of the shared apiserver and a token for it.
func (w *world) account(t *testing.T, namespace, name string) (token string) {
	t.Helper()
	return account(t, w.api, namespace, name)
}

func account(t *testing.T, api *kube.APIServer, namespace, name string) string {
	t.Helper()
	client := core(t, api)
	accounts := client.ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

func core(t *testing.T, api *kube.APIServer) coreclient.CoreV1Interface {
	t.Helper()
	client, err := coreclient.NewForConfig(api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// ask sends one review of a caller's own through the proxy.
func ask(t *testing.T, px *proxy.Proxy, name, token string) *kube.Review {
	t.Helper()
	client := px.Client("h2")
	defer client.CloseIdleConnections()
	return askOver(t, client, px, name, token)
}

func askOver(t *testing.T, client *http.Client, px *proxy.Proxy, name, token string) *kube.Review {
	t.Helper()
	header := kube.Bearer(token)
	header.Set("User-Agent", userAgent)
	return kube.MustWhoAmI(t, client, px.ClusterURL(ns, name), header)
}

func wantRefused(t *testing.T, r *kube.Review, code int, text string) {
	t.Helper()
	if r.Code != code || !strings.Contains(r.Status.Message, text) || r.Header.Get("Retry-After") != "" || int(r.Status.Code) != code ||
		(r.Header.Get("Www-Authenticate") == "Bearer") != (code == http.StatusUnauthorized) {
		t.Fatalf("%d %q %v, want %d %q", r.Code, r.Status.Message, r.Header, code, text)
	}
}

func wantUser(t *testing.T, r *kube.Review, user string) {
	t.Helper()
	if r.Code != http.StatusCreated || r.User.Username != user {
		t.Fatalf("%d %q %s, want %q", r.Code, r.User.Username, r.Status.Message, user)
	}
}

// reviews is how often an apiserver was asked by the proxy about a user, or
// about tokens that it refused when user is empty. The log is written before
// each answer.
func reviews(t *testing.T, api *kube.APIServer, user string) (n int) {
	t.Helper()
	events, err := api.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		refused := e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusUnauthorized
		if e.UserAgent == reviewAgent && (user == "" && refused || user != "" && e.User.Username == user) {
			n++
		}
	}
	return n
}

// arrived waits for the event of a request that came through the proxy.
func (w *world) arrived(t *testing.T, agent, user string) auditv1.Event {
	t.Helper()
	return w.api.MustAudit(t, func(e *auditv1.Event) bool {
		return strings.HasPrefix(e.UserAgent, agent) && e.User.Username == user
	})[0]
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s", what)
		}
	}
}
