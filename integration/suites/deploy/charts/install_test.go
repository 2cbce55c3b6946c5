package charts

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/schemas"
)

// hub is a real apiserver. Nothing runs on it: pods are judged, not started.
type hub struct {
	*kube.APIServer
	kubectl kube.Kubectl
	helm    helm
}

func newHub(t *testing.T) hub {
	t.Helper()
	a := kube.Start(t, kube.Options{})
	return hub{a, a.Kubectl(t, ""), newHelm(t, a.Kubeconfig)}
}

// namespace makes one in which only pods of the restricted standard may run.
func (h hub) namespace(t *testing.T, name string) {
	t.Helper()
	h.kubectl.MustRun(t, "create", "namespace", name)
	h.kubectl.MustRun(t, "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
}

// apply gives a manifest to kubectl.
func (h hub) apply(t *testing.T, object any, args ...string) kube.Result {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	k := h.kubectl
	k.Stdin = text
	return k.MustEnd(t, append([]string{"apply", "-f", "-"}, args...)...)
}

// get decodes what kubectl gets.
func (h hub) get(t *testing.T, into any, args ...string) {
	t.Helper()
	r := h.kubectl.MustRun(t, append([]string{"get", "--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(r.Stdout), into); err != nil {
		t.Fatalf("kubectl get %q: %v", args, err)
	}
}

// Releases with the definitions of this and of other projects in place.
func TestReleases(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	schemas.Install(t, h.APIServer)
	h.helm.mustRun(t, "install", "crds", crdsChart(t), "--namespace", "default")
	for _, ns := range []string{namespace, "team-a", "team-b", "team-c", "shared-ca"} {
		h.namespace(t, ns)
	}
	t.Run("values", h.testValues)
	t.Run("rights", h.testRights)
	t.Run("two releases in a namespace", h.testTwoReleases)
	t.Run("sets", h.testSets)
}

// testValues installs each set of values, changes to the defaults and back,
// has a pod judged by the restricted standard, and uninstalls.
func (h hub) testValues(t *testing.T) {
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			ns := "release-" + name
			h.namespace(t, ns)
			notes := h.helm.mustRun(t, "install", release, chart(t), "--namespace", ns, "--values", values)
			checkNotes(t, name, notes)
			h.checkPod(t, ns)
			h.helm.mustRun(t, "upgrade", release, chart(t), "--namespace", ns, "--reset-values")
			h.helm.mustRun(t, "upgrade", release, chart(t), "--namespace", ns, "--values", values)
			h.helm.mustRun(t, "uninstall", release, "--namespace", ns)
			left := h.kubectl.MustRun(t, "get", "--namespace", ns, "--output", "name",
				"deployments,services,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,certificates,servicemonitors")
			if left := strings.ReplaceAll(left.Stdout, "configmap/kube-root-ca.crt\n", ""); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// checkNotes looks for the warnings that a set of values deserves.
func checkNotes(t *testing.T, set, notes string) {
	t.Helper()
	for warning, sets := range map[string][]string{
		"WARNING: rbac.secretNamespaces is empty":                  {"default", "every"},
		"WARNING: tls.mode is off":                                 {"off"},
		"WARNING: with fewer than two replicas":                    {"off"},
		"WARNING: audienceValidation is warn: clusters in":         {"off"},
		"WARNING: this cluster does not know ProxyKubeApi":         nil,
		"presents the certificate of the kubernetes.io/tls Secret": {"default", "every"},
		"Clients may reach the proxy from the address of a node":   {"every"},
		"The Caddyfile is yours":                                   {"caddyfile"},
	} {
		want := false
		for _, s := range sets {
			want = want || s == set
		}
		if strings.Contains(notes, warning) != want {
			t.Errorf("%q in the notes: want %v\n%s", warning, want, notes)
		}
	}
}

// checkPod asks the apiserver whether it would admit a pod of the Deployment.
func (h hub) checkPod(t *testing.T, ns string) {
	t.Helper()
	var list appsv1.DeploymentList
	h.get(t, &list, "deployments", "--namespace", ns)
	if len(list.Items) != 1 {
		t.Fatalf("%d Deployments", len(list.Items))
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "judged", Namespace: ns, Labels: list.Items[0].Spec.Template.Labels},
		Spec:       list.Items[0].Spec.Template.Spec,
	}
	if r := h.apply(t, pod, "--dry-run=server", "--validate=strict"); r.ExitCode != 0 {
		t.Errorf("a pod of the Deployment: %s%s", r.Stdout, r.Stderr)
	}
	// The judge is awake: the same pod with a right to the node is refused.
	pod.Spec.HostNetwork = true
	if r := h.apply(t, pod, "--dry-run=server"); r.ExitCode == 0 || !strings.Contains(r.Stderr, "PodSecurity") {
		t.Errorf("a pod on the network of its node: exit code %d\n%s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
}

// The definition is kept when its release goes, and with it every object; the
// chart takes it over when it is installed again.
func TestDefinitionIsKept(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.namespace(t, namespace)
	h.namespace(t, "team-a")
	// Without the definition the proxy's chart says so.
	values := []string{"--namespace", namespace, "--set", "rbac.secretNamespaces={team-a}"}
	notes := h.helm.mustRun(t, append([]string{"install", release, chart(t)}, values...)...)
	if !strings.Contains(notes, "WARNING: this cluster does not know ProxyKubeApi") {
		t.Errorf("no warning:\n%s", notes)
	}
	h.helm.mustRun(t, "install", "crds", crdsChart(t), "--namespace", namespace)
	h.kubectl.MustEstablish(t, "proxykubeapis.weebo.si.rs")
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "weebo.si.rs/v1", "kind": "ProxyKubeApi",
		"metadata": map[string]any{"name": "prod", "namespace": namespace},
		"spec": map[string]any{
			"service":     map[string]any{"ExternalService": map[string]any{"url": "https://192.0.2.1:6443"}},
			"auth_config": map[string]any{"validate_against": "Kubernetes"},
		},
	}}
	if r := h.apply(t, object.Object, "--validate=strict"); r.ExitCode != 0 {
		t.Fatalf("%s%s", r.Stdout, r.Stderr)
	}

	columns := func(args ...string) []string {
		r := h.kubectl.MustRun(t, append([]string{"get", "pka", "--namespace", namespace}, args...)...)
		head, _, _ := strings.Cut(r.Stdout, "\n")
		return strings.Fields(head)
	}
	if diff := cmp.Diff([]string{"NAME", "READY", "REASON", "PATH", "AGE"}, columns()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"NAME", "READY", "REASON", "PATH", "AGE", "UPSTREAM", "TRUST", "MESSAGE"}, columns("--output", "wide")); diff != "" {
		t.Error(diff)
	}

	h.helm.mustRun(t, "upgrade", "crds", crdsChart(t), "--namespace", namespace)
	h.helm.mustRun(t, "uninstall", release, "--namespace", namespace)
	h.helm.mustRun(t, "uninstall", "crds", "--namespace", namespace)
	h.kubectl.MustRun(t, "get", "pka", "prod", "--namespace", namespace)
	h.helm.mustRun(t, "install", "crds", crdsChart(t), "--namespace", namespace)
	h.kubectl.MustRun(t, "get", "pka", "prod", "--namespace", namespace)
}
