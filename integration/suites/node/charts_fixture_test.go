package node

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

const (
	// release is also the name of the release's Deployment, Service and
	// ServiceAccount, and of the Lease.
	release   = "proxyauthk8s"
	namespace = hub.Namespace
	tenant    = "team-a"
	prefix    = "proxyauth:"

	// host is the Service, a name that the node resolves.
	host = release + "." + namespace + ".svc"

	imageRepository, imageTag = "caddy-proxyauthk8s", "test"
)

// installation is the charts installed on a node.
type installation struct {
	*hub.Hub
	node *node.Node
	idp  *oidc.Provider
	// serving signs the certificate that the proxy shows.
	serving *pki.CA
}

// prepare puts on the node what the charts do not bring.
func prepare(t *testing.T, n *node.Node) *installation {
	t.Helper()
	i := &installation{Hub: &hub.Hub{APIServer: n.API, Admin: n.Kubectl(t)}, node: n, serving: pki.MustCA("serving-ca")}
	if err := n.Namespaces.Do(func() (err error) {
		// Pods reach the node's address, not its 127.0.0.1.
		i.idp, err = oidc.New(oidc.Options{Addr: node.Address + ":0"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.idp.Stop)
	n.LoadProxy(t, imageRepository+":"+imageTag)
	for _, name := range []string{namespace, tenant} {
		i.Admin.MustRun(t, "create", "namespace", name)
		i.Admin.MustRun(t, "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	}
	return i
}

// helm runs a command that has to succeed.
func (i *installation) helm(t *testing.T, args ...string) string {
	t.Helper()
	r := i.node.Helm(t, args...)
	if r.ExitCode != 0 {
		t.Fatalf("helm %q: exit code %d\n%s%s", args, r.ExitCode, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// chart is the folder of a chart.
func chart(t *testing.T, name string) string {
	t.Helper()
	root, err := realtools.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "charts", name)
}

// servingSecret is the Secret that tls.mode secret reads.
func servingSecret(pair *pki.KeyPair) *corev1.Secret {
	s := proxy.Secret(namespace, release+"-tls", nil)
	s.Type = corev1.SecretTypeTLS
	s.Data = map[string][]byte{corev1.TLSCertKey: pair.CertPEM, corev1.TLSPrivateKeyKey: pair.KeyPEM}
	return s
}

// kubectl is that of a user of a cluster behind the proxy, through the Service.
func (i *installation) kubectl(t *testing.T, cluster, token string) kube.Kubectl {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	access := kube.Access{Server: clusterURL(cluster), CA: i.serving.PEM, Token: token}
	if err := kube.WriteKubeconfig(file, access); err != nil {
		t.Fatal(err)
	}
	return kube.Kubectl{Kubeconfig: file, Home: filepath.Join(dir, "home"), Namespaces: i.node.Namespaces}
}

func clusterURL(cluster string) string {
	return fmt.Sprintf("https://%s/clusters/%s/%s", host, tenant, cluster)
}

// rolledOut waits until the Deployment is as it should be.
func (i *installation) rolledOut(t *testing.T, replicas int) {
	t.Helper()
	i.Admin.MustRun(t, "rollout", "status", "-n", namespace, "deployment/"+release, "--timeout=110s")
	i.Eventually(t, fmt.Sprintf("%d pods are ready and no other is left", replicas), func() bool {
		pods := i.pods(t)
		return len(pods) == replicas && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !ready(&p) })
	})
}

// pods are all of the Deployment.
func (i *installation) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	i.get(t, &list, "/api/v1", "pods?labelSelector=app.kubernetes.io/instance="+release)
	return list.Items
}

func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// pod is the one with that name.
func (i *installation) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	i.get(t, p, "/api/v1", "pods/"+name)
	return p
}

// get decodes an object or a list of the proxy's namespace.
func (i *installation) get(t *testing.T, into any, group, what string) {
	t.Helper()
	i.Get(t, group+"/namespaces/"+namespace+"/"+what, into)
}

// holder is the identity in the Lease of the release: <pod>_<process>.
func (i *installation) holder(t *testing.T) string {
	t.Helper()
	return i.holderOf(t, release)
}

// holderOf is the identity in a Lease.
func (i *installation) holderOf(t *testing.T, lease string) string {
	t.Helper()
	var list coordinationv1.LeaseList
	i.get(t, &list, "/apis/coordination.k8s.io/v1", "leases?fieldSelector=metadata.name="+lease)
	if len(list.Items) != 1 || list.Items[0].Spec.HolderIdentity == nil {
		return ""
	}
	return *list.Items[0].Spec.HolderIdentity
}

// leader waits until a process of a pod that there is leads, other than that
// holder, and returns it with the name of its pod.
func (i *installation) leader(t *testing.T, other string) (holder, pod string) {
	t.Helper()
	took := i.Eventually(t, "a process other than "+other+" leads", func() bool {
		holder = i.holder(t)
		pod, _, _ = strings.Cut(holder, "_")
		return holder != other && slices.ContainsFunc(i.pods(t), func(p corev1.Pod) bool { return p.Name == pod })
	})
	t.Logf("%s leads after %s", pod, took.Round(100*time.Millisecond))
	return holder, pod
}

// serviceAddress is where the Service listens.
func (i *installation) serviceAddress(t *testing.T) string {
	t.Helper()
	var service corev1.Service
	i.get(t, &service, "/api/v1", "services/"+release)
	return net.JoinHostPort(service.Spec.ClusterIP, "443")
}
