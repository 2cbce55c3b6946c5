package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/node/streamtest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// testCharts leads one installation through its life.
func testCharts(t *testing.T, n *node.Node) {
	i := prepare(t, n)
	streamtest.Apply(t, i.node)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", i.testInstall},
		{"clusters", i.testClusters},
		{"second release", i.testSecondRelease},
		{"kubectl", i.testKubectl},
		{"serving certificate", i.testServingCertificate},
		{"rollout restart", i.testRolloutRestart},
		{"upgrade", i.testUpgrade},
		{"killed leader", i.testKilledLeader},
		{"deleted leader", i.testDeletedLeader},
		{"audit log", i.testAuditLog},
		{"uninstall", i.testUninstall},
		{"storage", i.testStorage},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatal("what follows needs this")
		}
	}
}

// testInstall installs both charts and waits for all that they promise.
func (i *installation) testInstall(t *testing.T) {
	i.helm(t, "install", "crds", chart(t, "proxyauthk8s-crds"), "--namespace", namespace)
	i.Admin.MustEstablish(t, v1.Resource+"."+v1.GroupName)
	start := time.Now()
	notes := i.helm(t, "install", release, chart(t, "proxyauthk8s"), "--namespace", namespace,
		"--set", "image.repository="+imageRepository, "--set", "image.tag="+imageTag, "--set", "image.pullPolicy=Never",
		"--set", "upstreamAuth.allowedModes={Passthrough,FrontProxy}", "--set", "rbac.secretNamespaces={"+tenant+"}",
		"--set", "publicUrl=https://"+host)
	if strings.Contains(notes, "WARNING") {
		t.Errorf("the notes warn:\n%s", notes)
	}
	i.rolledOut(t, 2)
	t.Logf("both replicas ready %s after helm install began", time.Since(start).Round(100*time.Millisecond))
	for _, p := range i.pods(t) {
		if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("pod %s was restarted %d times", p.Name, n)
		}
	}
	i.leader(t, "")
	i.Admin.MustRun(t, "wait", "-n", namespace, "--for=jsonpath={.status.disruptionsAllowed}=1", "pdb/"+release, "--timeout=60s")
	i.Eventually(t, "the Service has two ready endpoints", func() bool { return i.endpoints(t) == 2 })
	// As cert-manager makes it: once the chart is there.
	i.testServingCertificate(t)
}

// endpoints counts the ready ones of the Service.
func (i *installation) endpoints(t *testing.T) (ready int) {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	i.get(t, &list, "/apis/discovery.k8s.io/v1", "endpointslices?labelSelector="+discoveryv1.LabelServiceName+"="+release)
	for _, slice := range list.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
				ready++
			}
		}
	}
	return ready
}

// misleading are objects of a namespace svc by which the name
// kubernetes.default.svc.svc.cluster.local leads elsewhere. A search domain of
// every pod makes that name of kubernetes.default.svc, so only a name with its
// final dot leads to the Service kubernetes.
func misleading() []any {
	const name, elsewhere = "default", "10.244.0.250"
	meta := metav1.ObjectMeta{Namespace: "svc", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	hostname, port := "kubernetes", int32(443)
	return []any{
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: port}}},
		},
		&discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta,
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{elsewhere}, Hostname: &hostname}},
		},
	}
}

// testClusters has the cluster itself served, found by its Service and by its
// address, in both modes. Its CA is the ConfigMap that every namespace has.
func (i *installation) testClusters(t *testing.T) {
	i.Admin.MustRun(t, "create", "namespace", "svc")
	i.Apply(t, misleading()...)
	pair := pki.Must(i.FrontProxy())
	for _, c := range []struct{ name, target string }{
		{"front", "service:default/kubernetes:443"},
		{"external", "external:" + i.URL},
	} {
		object := proxy.FrontProxyCluster(tenant, c.name, i.URL, i.PKI.ServerCA, prefix, proxy.Authenticator(i.idp))
		if c.name == "front" {
			other := "default"
			object.Spec.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "kubernetes", Namespace: &other}}
			object.Spec.Cert = &v1.CertSource{ConfigMap: &v1.KeyReference{Name: "kube-root-ca.crt", Key: "ca.crt"}}
		}
		secret := proxy.FrontProxySecret(tenant, c.name, i.URL, pair)
		secret.Annotations[proxy.TargetAnnotation] = c.target
		i.Apply(t, object, secret)
	}
	pass := proxy.Cluster(tenant, "pass", i.URL, i.PKI.ServerCA)
	pass.Spec.AuthConfig = &v1.AuthConfig{DisableValidation: true}
	i.Apply(t, pass)

	for _, name := range []string{"front", "external"} {
		s := i.WaitReady(t, tenant, name, "True/Serving")
		if s.UpstreamAuth == nil || s.UpstreamAuth.Trust != v1.TrustTrusted {
			t.Errorf("status of %s: %+v", name, s)
		}
	}
	i.WaitReady(t, tenant, "pass", "True/Serving")
	out := i.Admin.MustRun(t, "get", "pka", "-n", tenant, "front", "-o", "wide").Stdout
	row := strings.Join(strings.Fields(out), " ")
	if !strings.Contains(row, " front True Serving /clusters/team-a/front ") || !strings.HasSuffix(row, " FrontProxy Trusted the cluster is served") {
		t.Errorf("kubectl get -o wide prints\n%s", out)
	}
	i.WaitEvent(t, tenant, "front", "Serving")
}

// testKubectl works with the cluster through the Service.
func (i *installation) testKubectl(t *testing.T) {
	i.Admin.MustRun(t, "create", "serviceaccount", "robot")
	i.Admin.MustRun(t, "create", "rolebinding", "users", "--clusterrole=edit", "--user="+prefix+oidc.Alice, "--serviceaccount=default:robot")
	robot := strings.TrimSpace(i.Admin.MustRun(t, "create", "token", "robot").Stdout)
	alice := i.idp.Token(oidc.Alice, nil)
	for _, c := range []struct{ cluster, token, want string }{
		{"front", alice, prefix + oidc.Alice},
		{"external", alice, prefix + oidc.Alice},
		{"pass", robot, "system:serviceaccount:default:robot"},
	} {
		k := i.kubectl(t, c.cluster, c.token)
		if who := k.MustRun(t, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}").Stdout; who != c.want {
			t.Errorf("by %s the user is %q, want %q", c.cluster, who, c.want)
		}
		k.MustRun(t, "create", "configmap", "of-"+c.cluster, "--from-literal=key=value")
		if got := k.MustRun(t, "get", "configmap", "of-"+c.cluster, "--output=jsonpath={.data.key}").Stdout; got != "value" {
			t.Errorf("by %s the ConfigMap holds %q", c.cluster, got)
		}
	}
	streamtest.Run(t, i.node, i.kubectl(t, "front", alice), prefix+oidc.Alice)
}

// testSecondRelease has another release in the namespace elect a leader of its
// own, beside the first (CHART-3). It serves another namespace, so that no two
// leaders write the status of one object.
func (i *installation) testSecondRelease(t *testing.T) {
	const second, lease = "second", "second-proxyauthk8s"
	first := i.holder(t)
	i.helm(t, "install", second, chart(t, "proxyauthk8s"), "--namespace", namespace,
		"--set", "image.repository="+imageRepository, "--set", "image.tag="+imageTag, "--set", "image.pullPolicy=Never",
		"--set", "replicas=1", "--set", "watchNamespaces={default}", "--set", "rbac.secretNamespaces={default}")
	i.Eventually(t, "a pod of the second release leads", func() bool {
		return strings.HasPrefix(i.holderOf(t, lease), lease+"-")
	})
	if holder := i.holder(t); holder != first {
		t.Errorf("the first release is led by %q, before by %q", holder, first)
	}
	i.helm(t, "uninstall", second, "--namespace", namespace, "--wait")
}

// testRolloutRestart replaces all pods under load.
func (i *installation) testRolloutRestart(t *testing.T) {
	i.roll(t, 2, func(t *testing.T) {
		i.Admin.MustRun(t, "rollout", "restart", "-n", namespace, "deployment/"+release)
	})
}

// testUpgrade changes values under load.
func (i *installation) testUpgrade(t *testing.T) {
	k := i.kubectl(t, "front", i.idp.Token(oidc.Alice, nil))
	impersonate := []string{"get", "pod", streamtest.Pod, "--as=other"}
	if r := k.MustEnd(t, impersonate...); r.ExitCode != 0 {
		t.Errorf("before the upgrade: %+v", r)
	}
	i.roll(t, 3, func(t *testing.T) {
		i.helm(t, "upgrade", release, chart(t, "proxyauthk8s"), "--namespace", namespace,
			"--reuse-values", "--set", "replicas=3", "--set", "impersonation=deny")
	})
	if r := k.MustEnd(t, impersonate...); r.ExitCode == 0 || !strings.Contains(r.Stderr, "impersonation is not allowed") {
		t.Errorf("after the upgrade: %+v", r)
	}
}

// roll has a change replace all pods: no request fails, the old pods end by
// themselves, and another leads (STREAM-2, REC-2).
func (i *installation) roll(t *testing.T, replicas int, change func(*testing.T)) {
	t.Helper()
	old, holder := i.pods(t), i.holder(t)
	exits := i.watchExits(t)
	l := i.startLoad(t, i.serviceAddress(t), true)
	i.Eventually(t, "there is load", func() bool { return l.requests.Load() > 50 })
	start := time.Now()
	change(t)
	i.rolledOut(t, replicas)
	t.Logf("%d pods replaced by %d in %s", len(old), replicas, time.Since(start).Round(100*time.Millisecond))
	if l.watches.Load() == 0 {
		t.Error("no watch has ended: the pods that served them live on?")
	}
	l.mustEnd(t)
	exits.mustBeClean(t, old)
	for _, p := range i.pods(t) {
		for _, before := range old {
			if p.Name == before.Name {
				t.Errorf("pod %s is still there", p.Name)
			}
		}
	}
	i.leader(t, holder)
	i.mustReconcile(t)
}

// mustReconcile checks that the leader writes status.
func (i *installation) mustReconcile(t *testing.T) {
	t.Helper()
	start := time.Now()
	for _, step := range []struct {
		enabled bool
		want    string
	}{{false, "False/Disabled"}, {true, "True/Serving"}} {
		i.Patch(t, tenant, v1.Resource, "external", fmt.Sprintf(`{"spec":{"enabled":%t}}`, step.enabled))
		i.WaitReady(t, tenant, "external", step.want)
	}
	t.Logf("the status followed within %s", time.Since(start).Round(100*time.Millisecond))
}

// testAuditLog looks at every request that the proxy made (CRD-02, CHART-1).
func (i *installation) testAuditLog(t *testing.T) {
	i.MustNotHaveBeenForbidden(t)
	lists := i.Requests(t, func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Resource == "secrets" && (e.Verb == "list" || e.Verb == "watch")
	})
	if len(lists) == 0 {
		t.Error("the proxy has listed no Secrets at all: is the audit log read well?")
	}
	for _, e := range lists {
		if e.ObjectRef.Namespace != namespace {
			t.Errorf("%s %s", e.Verb, e.RequestURI)
		}
	}
}
