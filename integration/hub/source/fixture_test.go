package source

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/realtools"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	proxyNamespace = "proxyauth"
	account        = "system:serviceaccount:proxyauth:proxyauthk8s"
	managedBy      = "app.kubernetes.io/managed-by"
)

// soon bounds what must happen at once; loaded machines are slow. What is
// measured is logged.
const soon = 30 * time.Second

// hub is an apiserver with the CRD and the rights of the chart.
type hub struct {
	*kube.APIServer
	t       *testing.T
	kubectl kube.Kubectl
	core    corev1client.CoreV1Interface
	objects dynamic.NamespaceableResourceInterface
}

// newHub starts a hub; crd is installed and the chart's rights are granted with
// those values.
func newHub(t *testing.T, crd string, values ...string) *hub {
	t.Helper()
	h := &hub{APIServer: kube.Start(t, kube.Options{}), t: t}
	h.kubectl = h.Kubectl(t, "")
	for _, namespace := range []string{proxyNamespace, "team-a", "team-b"} {
		h.kubectl.MustRun(t, "create", "namespace", namespace)
	}
	if crd != "" {
		h.installCRD(crd)
	}
	h.apply(chartRights(t, values...))
	objects, err := dynamic.NewForConfig(h.AdminConfig())
	must(t, err)
	h.objects = objects.Resource(v1.SchemeGroupVersionResource)
	h.core, err = corev1client.NewForConfig(h.AdminConfig())
	must(t, err)
	return h
}

func (h *hub) apply(manifest string) {
	h.t.Helper()
	k := h.kubectl
	k.Stdin = []byte(manifest)
	k.MustRun(h.t, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

func (h *hub) installCRD(crd string) {
	h.t.Helper()
	h.apply(crd)
	h.kubectl.MustRun(h.t, "wait", "--for=condition=Established", "--timeout=60s", "crd/proxykubeapis.weebo.si.rs")
	// An established CRD is served a moment later.
	eventually(h.t, "the CRD is served", func() bool {
		return h.kubectl.MustEnd(h.t, "get", "--raw", "/apis/weebo.si.rs/v1/proxykubeapis").ExitCode == 0
	})
}

// chartRights renders the chart's ServiceAccount and its rights.
func chartRights(t *testing.T, values ...string) string {
	t.Helper()
	helm, err := realtools.Path(t.Context(), realtools.Helm, nil)
	must(t, err)
	root, err := realtools.RepoRoot()
	must(t, err)
	args := []string{"template", "proxyauthk8s", filepath.Join(root, "charts", "proxyauthk8s"), "--namespace", proxyNamespace,
		"--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	cmd := exec.CommandContext(t.Context(), helm, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return stdout.String()
}

// config is that of the chart's ServiceAccount, as the product loads it.
func (h *hub) config() *rest.Config { return h.configOf("proxyauthk8s") }

func (h *hub) configOf(account string) *rest.Config {
	h.t.Helper()
	token := strings.TrimSpace(h.kubectl.MustRun(h.t, "create", "token", account, "-n", proxyNamespace).Stdout)
	file := filepath.Join(h.t.TempDir(), "kubeconfig")
	must(h.t, kube.WriteKubeconfig(file, kube.Access{Server: h.URL, CA: h.PKI.ServerCA.PEM, Token: token}))
	config, err := k8swatch.LoadKubernetesConfig(file)
	must(h.t, err)
	return config
}

// put creates or replaces a ProxyKubeApi.
func (h *hub) put(namespace, name, spec string) {
	h.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	must(h.t, json.Unmarshal([]byte(spec), &object.Object))
	object.Object = map[string]any{"spec": object.Object}
	object.SetAPIVersion("weebo.si.rs/v1")
	object.SetKind("ProxyKubeApi")
	object.SetNamespace(namespace)
	object.SetName(name)
	client := h.objects.Namespace(namespace)
	last, err := client.Get(h.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(h.t.Context(), object, metav1.CreateOptions{})
	} else if err == nil {
		object.SetResourceVersion(last.GetResourceVersion())
		_, err = client.Update(h.t.Context(), object, metav1.UpdateOptions{})
	}
	must(h.t, err)
}

func (h *hub) remove(namespace, name string) {
	h.t.Helper()
	must(h.t, h.objects.Namespace(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
}

func (h *hub) putSecret(namespace, name, value string, labels map[string]string) {
	h.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string][]byte{"ca.crt": []byte(value)}}
	_, err := h.core.Secrets(namespace).Create(h.t.Context(), secret, metav1.CreateOptions{})
	must(h.t, err)
}

func (h *hub) patchSecret(namespace, name, patch string) {
	h.t.Helper()
	_, err := h.core.Secrets(namespace).Patch(h.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(h.t, err)
}

// requests are those of the chart's ServiceAccount that match.
func (h *hub) requests(match func(e *auditv1.Event) bool) []auditv1.Event {
	h.t.Helper()
	all, err := h.AuditEvents()
	must(h.t, err)
	return slices.DeleteFunc(all, func(e auditv1.Event) bool { return e.User.Username != account || !match(&e) })
}

func (h *hub) mustNotHaveBeenForbidden() {
	h.t.Helper()
	for _, e := range h.requests(forbidden) {
		h.t.Errorf("forbidden: %s %s", e.Verb, e.RequestURI)
	}
}

func forbidden(e *auditv1.Event) bool {
	return e.ResponseStatus != nil && (e.ResponseStatus.Code == 403 || e.ResponseStatus.Code == 401)
}

// follower is a running source and what it told.
type follower struct {
	*k8swatch.Kubernetes
	t    *testing.T
	logs *observer.ObservedLogs
	stop func()

	mu    sync.Mutex
	first chan struct{}
	told  map[k8swatch.Change]int
}

// follow runs a source until the test ends.
func follow(t *testing.T, config *rest.Config, change func(*k8swatch.KubernetesOptions)) *follower {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	o := k8swatch.KubernetesOptions{Config: config, Namespace: proxyNamespace, ReferenceTTL: time.Second, Logger: zap.New(core)}
	if change != nil {
		change(&o)
	}
	k, err := k8swatch.NewKubernetes(o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{Kubernetes: k, t: t, logs: logs, first: make(chan struct{}), told: map[k8swatch.Change]int{}}
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx, f.changed) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(soon):
			t.Error("Run does not end")
		}
		for _, entry := range logs.All() {
			t.Logf("log: %s: %s %v", entry.Level, entry.Message, entry.ContextMap())
			if strings.Contains(entry.Message, config.BearerToken) {
				t.Error("the log holds the token")
			}
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *follower) changed(changes ...k8swatch.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(changes) == 0 {
		close(f.first)
	}
	for _, c := range changes {
		f.told[c]++
	}
}

// started waits for the first full list.
func (f *follower) started() *follower {
	f.t.Helper()
	select {
	case <-f.first:
	case <-time.After(soon):
		f.t.Fatal("no first list")
	}
	return f
}

func (f *follower) timesTold(kind, namespace, name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told[k8swatch.Change{Kind: kind, Namespace: namespace, Name: name}]
}

// object is an object as it is shown, nil when there is none.
func (f *follower) object(namespace, name string) *v1.ProxyKubeApi {
	if o := f.Object(k8swatch.Key{Namespace: namespace, Name: name}); o != nil {
		return o.ProxyKubeApi
	}
	return nil
}

// secret is what the source says of a Secret: its value or the error's reason.
func (f *follower) secret(namespace, name string) string { return said(f.Secret(namespace, name)) }

// count is how often the log says something.
func (f *follower) count(message string) int {
	n := 0
	for _, entry := range f.logs.All() {
		if strings.Contains(entry.Message, message) {
			n++
		}
	}
	return n
}

// eventually waits until something holds, and says how long that took.
func eventually(t *testing.T, what string, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > soon {
			t.Fatalf("not within %v: %s", soon, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(start)
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	return took
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
