package source

import (
	"context"
	"encoding/json"
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
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

const (
	proxyNamespace = hub.Namespace
	managedBy      = "app.kubernetes.io/managed-by"
)

// soon bounds what must happen at once; loaded machines are slow. What is
// measured is logged.
const soon = 30 * time.Second

// fixture is a hub and clients of it.
type fixture struct {
	*hub.Hub
	t       *testing.T
	core    corev1client.CoreV1Interface
	objects dynamic.NamespaceableResourceInterface
}

// newHub starts a hub; crd is installed and the chart's rights are granted with
// those values.
func newHub(t *testing.T, crd string, values ...string) *fixture {
	t.Helper()
	h := &fixture{Hub: hub.New(t, kube.Options{}), t: t}
	if crd != "" {
		h.InstallCRD(t, crd)
	}
	h.Grant(t, values...)
	objects, err := dynamic.NewForConfig(h.AdminConfig())
	must(t, err)
	h.objects = objects.Resource(v1.SchemeGroupVersionResource)
	h.core, err = corev1client.NewForConfig(h.AdminConfig())
	must(t, err)
	return h
}

// config is that of the chart's ServiceAccount, as the product loads it.
func (h *fixture) config() *rest.Config { return h.configOf("proxyauthk8s") }

func (h *fixture) configOf(account string) *rest.Config {
	h.t.Helper()
	config, err := hubsource.LoadConfig(h.AccountKubeconfig(h.t, account))
	must(h.t, err)
	return config
}

// put creates or replaces a ProxyKubeApi.
func (h *fixture) put(namespace, name, spec string) {
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

func (h *fixture) remove(namespace, name string) {
	h.t.Helper()
	must(h.t, h.objects.Namespace(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
}

func (h *fixture) putSecret(namespace, name, value string, labels map[string]string) {
	h.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string][]byte{"ca.crt": []byte(value)}}
	_, err := h.core.Secrets(namespace).Create(h.t.Context(), secret, metav1.CreateOptions{})
	must(h.t, err)
}

func (h *fixture) patchSecret(namespace, name, patch string) {
	h.t.Helper()
	_, err := h.core.Secrets(namespace).Patch(h.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(h.t, err)
}

// follower is a running source and what it told.
type follower struct {
	*hubsource.Source
	t    *testing.T
	logs *observer.ObservedLogs
	stop func()

	mu    sync.Mutex
	first chan struct{}
	told  map[k8swatch.Change]int
}

// follow runs a source until the test ends.
func follow(t *testing.T, config *rest.Config, change func(*hubsource.Options)) *follower {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	o := hubsource.Options{Config: config, Namespace: proxyNamespace, ReferenceTTL: time.Second, Logger: zap.New(core)}
	if change != nil {
		change(&o)
	}
	k, err := hubsource.New(o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{Source: k, t: t, logs: logs, first: make(chan struct{}), told: map[k8swatch.Change]int{}}
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
	took := hub.Eventually(t, what, soon, holds)
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	return took
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
