package hub

import (
	"path/filepath"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// User is a kubectl of a user with the ClusterRole edit in one namespace, with the
// rights that the chart adds to it by rbac.aggregateToEdit, and no other right.
func (h *Hub) User(tb testing.TB, name, namespace string) kube.Kubectl {
	tb.Helper()
	h.ApplyText(tb, template(tb, "proxyauthk8s", []string{"templates/aggregate.yaml"}, "rbac.aggregateToEdit=true"))
	h.MustAggregate(tb)
	h.Admin.MustRun(tb, "create", "rolebinding", name, "-n", namespace, "--clusterrole=edit", "--user="+name)
	h.MustAllow(tb, name, nil, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: v1.GroupName, Resource: v1.Resource})
	pair, err := h.PKI.ClientCA.Client(name)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, kube.Access{Server: h.URL, CA: h.PKI.ServerCA.PEM, ClientCert: pair.CertPEM, ClientKey: pair.KeyPEM}); err != nil {
		tb.Fatal(err)
	}
	return h.Kubectl(tb, file)
}
