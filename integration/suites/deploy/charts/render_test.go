package charts

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

func TestLint(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			newHelm(t, os.DevNull).mustRun(t, "lint", "--strict", "--values", values, chart(t))
		})
	}
	newHelm(t, os.DevNull).mustRun(t, "lint", "--strict", crdsChart(t))
}

// The chart of the CRD renders what is generated, and one annotation more.
func TestCRDs(t *testing.T) {
	t.Parallel()
	got := one[*apiextensionsv1.CustomResourceDefinition](t, render(t, crdsChart(t)))
	text, err := os.ReadFile(repositoryPath(t, "k8swatch", "api", "v1", "weebo.si.rs_proxykubeapis.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(text, want); err != nil {
		t.Fatal(err)
	}
	want.Annotations["helm.sh/resource-policy"] = "keep"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What holds with any values.
func TestEverySet(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, chart(t), "--values", values)
			checkNames(t, release, namespace, objects)
			checkWiring(t, objects)
			checkPod(t, one[*appsv1.Deployment](t, objects))
		})
	}
}

// elsewhere are the kinds that values may put into another namespace.
var elsewhere = map[string]bool{
	"Role": true, "RoleBinding": true, "ServiceMonitor": true, "PodMonitor": true, "PrometheusRule": true, "ConfigMap": true,
}

// checkNames demands namespaces and labels of everything, and no two objects
// of one name.
func checkNames(t *testing.T, release, namespace string, objects []runtime.Object) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range objects {
		meta, ok := o.(metav1.Object)
		if !ok {
			t.Fatalf("%T has no metadata", o)
		}
		kind := o.GetObjectKind().GroupVersionKind().Kind
		key := kind + " " + meta.GetNamespace() + "/" + meta.GetName()
		if seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
		wide := kind == "Namespace" || strings.HasPrefix(kind, "ClusterRole")
		if wide != (meta.GetNamespace() == "") {
			t.Errorf("%s: wrong namespace", key)
		}
		labels := meta.GetLabels()
		if meta.GetNamespace() != namespace && !wide && !elsewhere[kind] {
			t.Errorf("%s: not in the namespace of the release", key)
		}
		if labels["app.kubernetes.io/instance"] != release || labels["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("%s: labels %v", key, labels)
		}
	}
}

// checkWiring demands that selectors find the pods, and that ports, accounts
// and volumes that are named are there.
func checkWiring(t *testing.T, objects []runtime.Object) {
	t.Helper()
	d := one[*appsv1.Deployment](t, objects)
	pod := d.Spec.Template
	selectors := map[string]map[string]string{"Deployment": d.Spec.Selector.MatchLabels}
	ports := map[string]bool{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	for _, s := range all[*corev1.Service](objects) {
		selectors["Service "+s.Name] = s.Spec.Selector
		for _, p := range s.Spec.Ports {
			if !ports[p.TargetPort.StrVal] {
				t.Errorf("Service %s: the pod has no port %s", s.Name, p.TargetPort.StrVal)
			}
		}
	}
	for _, b := range all[*policyv1.PodDisruptionBudget](objects) {
		selectors["PodDisruptionBudget"] = b.Spec.Selector.MatchLabels
	}
	for _, n := range all[*networkingv1.NetworkPolicy](objects) {
		selectors["NetworkPolicy"] = n.Spec.PodSelector.MatchLabels
		for _, rule := range n.Spec.Ingress {
			for _, p := range rule.Ports {
				if !ports[p.Port.StrVal] {
					t.Errorf("NetworkPolicy: the pod has no port %s", p.Port.StrVal)
				}
			}
		}
	}
	for what, selector := range selectors {
		if len(selector) != 2 {
			t.Errorf("%s selects by %v", what, selector)
		}
		for k, v := range selector {
			if pod.Labels[k] != v {
				t.Errorf("%s selects %s=%s, the pod has %q", what, k, v, pod.Labels[k])
			}
		}
	}
	for _, account := range all[*corev1.ServiceAccount](objects) {
		if account.Name != pod.Spec.ServiceAccountName {
			t.Errorf("the pod uses ServiceAccount %s, not %s", pod.Spec.ServiceAccountName, account.Name)
		}
	}
	if name := pod.Spec.Volumes[0].ConfigMap.Name; byName[*corev1.ConfigMap](objects, name) == nil {
		t.Errorf("the pod mounts ConfigMap %s, which is not there", name)
	}
}

// checkPod holds the pod to CHART-2.
func checkPod(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]
	if u := d.Spec.Strategy.RollingUpdate; u == nil || *u.MaxUnavailable != intstr.FromInt32(0) {
		t.Errorf("strategy %+v", d.Spec.Strategy)
	}
	if *spec.TerminationGracePeriodSeconds != 45 {
		t.Errorf("terminationGracePeriodSeconds %d", *spec.TerminationGracePeriodSeconds)
	}
	if len(spec.TopologySpreadConstraints) == 0 {
		t.Error("no topologySpreadConstraints")
	}
	if len(spec.Containers) != 1 || len(spec.InitContainers) != 0 || spec.HostNetwork || spec.HostPID || spec.HostIPC {
		t.Errorf("more than one plain container: %+v", spec)
	}
	p := spec.SecurityContext
	if !*p.RunAsNonRoot || *p.RunAsUser == 0 || *p.RunAsGroup == 0 || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context of the pod: %+v", p)
	}
	want := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if diff := cmp.Diff(want, c.SecurityContext); diff != "" {
		t.Errorf("security context of the container: %s", diff)
	}
	for probe, want := range map[*corev1.Probe]string{c.StartupProbe: "/livez", c.LivenessProbe: "/livez", c.ReadinessProbe: "/readyz"} {
		if probe == nil || probe.HTTPGet.Path != want || probe.HTTPGet.Port.StrVal != "health" {
			t.Errorf("probe %+v, want %s", probe, want)
		}
	}
	for _, port := range c.Ports {
		if port.ContainerPort < 1024 || port.HostPort != 0 {
			t.Errorf("port %+v needs a privilege", port)
		}
		if port.Name == "health" && port.ContainerPort != 9180 {
			t.Errorf("health is on %d", port.ContainerPort)
		}
	}
	environment := map[string]string{}
	for _, e := range c.Env {
		environment[e.Name] = e.Value
		if e.ValueFrom != nil {
			environment[e.Name] = e.ValueFrom.FieldRef.FieldPath
		}
	}
	for name, want := range map[string]string{
		"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
		"HOME": "/data", "XDG_CONFIG_HOME": "/data/config", "XDG_DATA_HOME": "/data/data",
	} {
		if environment[name] != want {
			t.Errorf("%s = %q, want %q", name, environment[name], want)
		}
	}
	checkWritable(t, spec)
}

// checkWritable demands that only emptyDirs can be written to.
func checkWritable(t *testing.T, spec corev1.PodSpec) {
	t.Helper()
	empty := map[string]bool{}
	for _, v := range spec.Volumes {
		empty[v.Name] = v.EmptyDir != nil
		if v.HostPath != nil {
			t.Errorf("volume %s is a folder of the node", v.Name)
		}
	}
	var written []string
	for _, m := range spec.Containers[0].VolumeMounts {
		if empty[m.Name] {
			written = append(written, m.MountPath)
		} else if !m.ReadOnly {
			t.Errorf("volume %s can be written to", m.Name)
		}
	}
	if diff := cmp.Diff([]string{"/data", "/run/proxyauth"}, written); diff != "" {
		t.Error(diff)
	}
}

// What single values change.
func TestValues(t *testing.T) {
	t.Parallel()
	sets := valueSets(t)
	everything := render(t, chart(t), "--values", sets["every"])
	least := render(t, chart(t), "--values", sets["least"])
	defaults := render(t, chart(t))
	acme := render(t, chart(t), "--values", sets["acme"])
	off := render(t, chart(t), "--values", sets["off"])
	every := one[*appsv1.Deployment](t, everything)
	pod := every.Spec.Template

	kinds := func(objects []runtime.Object) string {
		var names []string
		for _, o := range objects {
			names = append(names, o.GetObjectKind().GroupVersionKind().Kind)
		}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), " ")
	}
	ports := func(objects []runtime.Object, n int) string {
		var text []string
		for _, p := range all[*corev1.Service](objects)[n].Spec.Ports {
			text = append(text, fmt.Sprintf("%d:%s", p.Port, p.TargetPort.StrVal))
		}
		return strings.Join(text, " ")
	}
	field := func(kind string, path ...string) string {
		for _, u := range all[*unstructured.Unstructured](least) {
			if u.GetKind() == kind {
				value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(value)
			}
		}
		return "no " + kind
	}
	policy := one[*networkingv1.NetworkPolicy](t, least).Spec
	for what, c := range map[string]struct{ got, want any }{
		"kinds by default":       {kinds(defaults), "ClusterRole ClusterRoleBinding ConfigMap Deployment NetworkPolicy PodDisruptionBudget Role RoleBinding Service ServiceAccount"},
		"kinds with the least":   {kinds(least), "Certificate ConfigMap Deployment NetworkPolicy PodDisruptionBudget Role RoleBinding Service ServiceAccount ServiceMonitor"},
		"kinds with off":         {kinds(off), "ClusterRole ClusterRoleBinding ConfigMap Deployment Role RoleBinding Service ServiceAccount"},
		"replicas by default":    {*one[*appsv1.Deployment](t, defaults).Spec.Replicas, int32(2)},
		"replicas":               {*every.Spec.Replicas, int32(3)},
		"image by default":       {one[*appsv1.Deployment](t, defaults).Spec.Template.Spec.Containers[0].Image, "ghcr.io/proxyauthk8s/caddy-proxyauthk8s:0.1.0"},
		"image":                  {pod.Spec.Containers[0].Image, "registry.example.com/proxy@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
		"pull policy":            {pod.Spec.Containers[0].ImagePullPolicy, corev1.PullNever},
		"pull secrets":           {pod.Spec.ImagePullSecrets[0].Name, "pull"},
		"full name":              {every.Name, "front"},
		"name":                   {pod.Labels["app.kubernetes.io/name"], "proxy"},
		"pod label":              {pod.Labels["example.com/tier"], "edge"},
		"pod annotation":         {pod.Annotations["example.com/note"], "1"},
		"user":                   {*pod.Spec.SecurityContext.RunAsUser, int64(1000680000)},
		"priority":               {pod.Spec.PriorityClassName, "system-cluster-critical"},
		"node selector":          {pod.Spec.NodeSelector["kubernetes.io/os"], "linux"},
		"toleration":             {pod.Spec.Tolerations[0].Key, "dedicated"},
		"affinity":               {pod.Spec.Affinity.PodAntiAffinity != nil, true},
		"spread":                 {pod.Spec.TopologySpreadConstraints[0].TopologyKey, "rack"},
		"resources":              {pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "50m"},
		"environment":            {pod.Spec.Containers[0].Env[5].Name, "HTTPS_PROXY"},
		"mount":                  {pod.Spec.Containers[0].VolumeMounts[3].MountPath, "/etc/proxyauth/tls"},
		"budget":                 {one[*policyv1.PodDisruptionBudget](t, everything).Spec.MaxUnavailable.String(), "25%"},
		"ports by default":       {ports(defaults, 0), "443:https"},
		"ports of metrics":       {ports(defaults, 1), "9180:health"},
		"ports with acme":        {ports(acme, 0), "443:https 80:http"},
		"ports with off":         {ports(off, 0), "80:http"},
		"port":                   {ports(everything, 0), "8443:https"},
		"node port":              {all[*corev1.Service](everything)[0].Spec.Ports[0].NodePort, int32(30443)},
		"service annotation":     {all[*corev1.Service](everything)[0].Annotations["example.com/team"], "platform"},
		"traffic policy":         {all[*corev1.Service](acme)[0].Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyLocal},
		"metrics stay inside":    {all[*corev1.Service](acme)[1].Spec.Type, corev1.ServiceTypeClusterIP},
		"account annotation":     {one[*corev1.ServiceAccount](t, everything).Annotations["example.com/role"], "proxy"},
		"certificate's Secret":   {field("Certificate", "spec", "secretName"), "proxy-proxyauthk8s-tls"},
		"certificate's names":    {field("Certificate", "spec", "dnsNames"), "[k8s.example.com]"},
		"certificate's issuer":   {field("Certificate", "spec", "issuerRef", "kind"), "ClusterIssuer"},
		"monitor's label":        {field("ServiceMonitor", "metadata", "labels", "release"), "prometheus"},
		"who reaches the proxy":  {policy.Ingress[0].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"], "ingress"},
		"what the proxy reaches": {policy.Egress[1].To[0].IPBlock.CIDR, "10.0.0.0/8"},
		"policy types":           {fmt.Sprint(policy.PolicyTypes), "[Ingress Egress]"},
		"policy by default":      {fmt.Sprint(one[*networkingv1.NetworkPolicy](t, defaults).Spec.PolicyTypes), "[Ingress Egress]"},
		"storage namespace":      {one[*corev1.Namespace](t, acme).Name, storageNamespace},
		"storage is kept":        {one[*corev1.Namespace](t, acme).Annotations["helm.sh/resource-policy"], "keep"},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	// Pods are replaced when, and only when, the Caddyfile changes.
	sum := func(args ...string) string {
		return one[*appsv1.Deployment](t, render(t, chart(t), args...)).Spec.Template.Annotations["checksum/caddyfile"]
	}
	if before := sum(); before != sum("--set", "replicas=5") || before == sum("--set", "impersonation=deny") || before == "" {
		t.Error("the checksum does not follow the Caddyfile")
	}
	const other = "tls.acme.caRoot=-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"
	if sum("--values", sets["acme"]) == sum("--values", sets["acme"], "--set", other) {
		t.Error("the checksum does not follow the roots of the authority")
	}
	if sum("--values", sets["every"]) == "ignored" {
		t.Error("podAnnotations replaces the checksum")
	}
}
