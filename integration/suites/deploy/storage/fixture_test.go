package storage

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/secretstorage"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/onceworld"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// patience is how long a test waits for what has no bound of its own.
const patience = time.Minute

// user is what the storage runs as.
const user = "proxyauth-storage"

// rights are those that the documentation names.
var rights = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update", "delete"}},
}

// shared is an apiserver for all tests that do not stop it.
var shared = onceworld.New(func(ctx context.Context, s *onceworld.Setup) (*kube.APIServer, error) {
	api, err := kube.StartAPIServer(ctx, s.Dir, kube.Options{})
	if err != nil {
		return nil, err
	}
	s.AtEnd(api.Stop)
	return api, nil
})

func TestMain(m *testing.M) {
	if holdForEver() {
		return
	}
	os.Exit(shared.Run(m))
}

// place is a namespace with the rights of the storage.
type place struct {
	namespace string
	config    *rest.Config
	pair      *pki.KeyPair
	api       *kube.APIServer
}

func newPlace(t *testing.T, api *kube.APIServer) place {
	t.Helper()
	ctx := t.Context()
	core, err := coreclient.NewForConfig(api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "caddy-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rbac, err := rbacclient.NewForConfig(api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: user}
	if _, err := rbac.Roles(namespace.Name).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rights}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.RoleBindings(namespace.Name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	api.MustAllow(t, user, nil, authorizationv1.ResourceAttributes{Namespace: namespace.Name, Verb: "list", Resource: "secrets"})
	pair := pki.Must(api.PKI.ClientCA.Client(user))
	return place{namespace: namespace.Name, config: api.ClientConfig(pair), pair: pair, api: api}
}

// leaseDuration is short, so that tests need not wait long for a takeover.
const leaseDuration = 3 * time.Second

// open is a storage with a client of its own, as each replica has it.
func (p place) open() *secretstorage.Storage {
	return secretstorage.New(secretstorage.Options{
		Open: func() (secretstorage.Target, error) {
			return secretstorage.Target{Config: p.config, Namespace: p.namespace}, nil
		},
		LeaseDuration: leaseDuration,
		PollInterval:  100 * time.Millisecond,
	})
}

// core is an administrator's client.
func (p place) core(t *testing.T) coreclient.SecretInterface {
	t.Helper()
	core, err := coreclient.NewForConfig(p.api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return core.Secrets(p.namespace)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within fails a test that a lock would hold up for ever.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// mustFail wants an error that says why.
func mustFail(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want an error that says %q", err, says)
	}
}

func clientConfig(url string, ca, cert, key []byte) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertData: cert, KeyData: key}}
}
