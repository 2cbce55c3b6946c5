package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	// Namespace is the proxy's own.
	Namespace = proxy.Namespace
	// Account is the user name of the chart's ServiceAccount.
	Account = "system:serviceaccount:" + Namespace + ":proxyauthk8s"

	// soon bounds what must come; loaded machines are slow.
	soon = 60 * time.Second
)

// Tenants are the namespaces that there are besides the proxy's.
var Tenants = []string{"team-a", "team-b"}

// Hub is an apiserver with the CRD and the chart's ServiceAccount.
type Hub struct {
	*kube.APIServer
	// Admin is a kubectl with all rights.
	Admin kube.Kubectl
	// Kubeconfig is that of the chart's ServiceAccount.
	Kubeconfig string

	client onceClient
}

// Start starts a hub with the CRD and the chart's rights. The values are the
// chart's, as in --set.
func Start(tb testing.TB, o kube.Options, values ...string) *Hub {
	tb.Helper()
	h := New(tb, o)
	h.InstallCRD(tb, template(tb, "proxyauthk8s-crds", nil))
	h.Grant(tb, values...)
	return h
}

// New starts a hub that lacks the CRD and knows no ServiceAccount of the chart.
func New(tb testing.TB, o kube.Options) *Hub {
	tb.Helper()
	h := &Hub{APIServer: kube.Start(tb, o)}
	h.Admin = h.Kubectl(tb, "")
	for _, namespace := range append([]string{Namespace}, Tenants...) {
		h.Apply(tb, &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	return h
}

// As is the hub as the user of a kubectl has it: Admin is that kubectl, and what the
// methods do is done by that user.
func (h *Hub) As(user kube.Kubectl) *Hub { return &Hub{APIServer: h.APIServer, Admin: user} }

// InstallCRD installs a CRD of ProxyKubeApi and waits until it is served.
func (h *Hub) InstallCRD(tb testing.TB, crd string) {
	tb.Helper()
	h.ApplyText(tb, crd)
	h.Eventually(tb, "the CRD is served", func() bool {
		code, _ := h.request(tb, http.MethodGet, ClustersPath, "", nil)
		return code == http.StatusOK
	})
}

// Grant makes the chart's ServiceAccount with its rights.
func (h *Hub) Grant(tb testing.TB, values ...string) {
	tb.Helper()
	h.ApplyText(tb, template(tb, "proxyauthk8s", []string{"templates/rbac.yaml", "templates/serviceaccount.yaml"}, values...))
	h.Kubeconfig = h.AccountKubeconfig(tb, "proxyauthk8s")
}

// template renders a chart, or some of its templates, in the proxy's namespace.
func template(tb testing.TB, chart string, only []string, values ...string) string {
	tb.Helper()
	root, err := realtools.RepoRoot()
	if err != nil {
		tb.Fatal(err)
	}
	args := []string{"template", "proxyauthk8s", filepath.Join(root, "charts", chart), "--namespace", Namespace,
		// A helm that is built without the flags of its releases takes 1.20 for the latest.
		"--kube-version", "1.37.0"}
	for _, file := range only {
		args = append(args, "--show-only", file)
	}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	cmd := exec.CommandContext(tb.Context(), realtools.Need(tb, realtools.Helm), args...)
	cmd.Env = append(process.ThriftyCommand(), "HOME="+tb.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("rendering %s: %v: %s", chart, err, stderr.String())
	}
	return stdout.String()
}

// Render renders one template of the chart. The values are as in --set.
func Render(tb testing.TB, file string, values ...string) string {
	tb.Helper()
	return template(tb, "proxyauthk8s", []string{"templates/" + file}, values...)
}

// AccountKubeconfig writes a kubeconfig with a token of a ServiceAccount of
// the proxy's namespace, and returns its path.
func (h *Hub) AccountKubeconfig(tb testing.TB, account string) string {
	tb.Helper()
	var request authenticationv1.TokenRequest
	path := objectPath(Namespace, "serviceaccounts", account) + "/token"
	answer := h.must(tb, http.MethodPost, path, "application/json", []byte(`{"spec":{"expirationSeconds":28800}}`))
	if err := json.Unmarshal(answer, &request); err != nil {
		tb.Fatalf("POST %s: %v", path, err)
	}
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := kube.WriteKubeconfig(file, kube.Access{Server: h.URL, CA: h.PKI.ServerCA.PEM, Token: request.Status.Token}); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Apply puts objects into force, whatever was there before.
func (h *Hub) Apply(tb testing.TB, objects ...any) {
	tb.Helper()
	h.ApplyText(tb, proxy.Manifests(objects...))
}

// ApplyText is Apply of manifests.
func (h *Hub) ApplyText(tb testing.TB, manifests string) {
	tb.Helper()
	h.Admin.MustApply(tb, manifests)
}

// Cluster is a ProxyKubeApi as the hub has it.
func (h *Hub) Cluster(tb testing.TB, namespace, name string) *v1.ProxyKubeApi {
	tb.Helper()
	object := new(v1.ProxyKubeApi)
	h.Get(tb, objectPath(namespace, v1.Resource, name), object)
	if object.Status == nil {
		object.Status = new(v1.ProxyKubeApiStatus)
	}
	return object
}

// WaitStatus waits until the status of an object is as wanted.
func (h *Hub) WaitStatus(tb testing.TB, namespace, name, what string, want func(*v1.ProxyKubeApiStatus) bool) *v1.ProxyKubeApiStatus {
	tb.Helper()
	return h.wait(tb, namespace, name, what, func(o *v1.ProxyKubeApi) bool { return want(o.Status) })
}

// WaitReady waits for Ready in the form "status/reason", of the newest generation:
// the status of the one before may say the same.
func (h *Hub) WaitReady(tb testing.TB, namespace, name, want string) *v1.ProxyKubeApiStatus {
	tb.Helper()
	return h.wait(tb, namespace, name, want, func(o *v1.ProxyKubeApi) bool {
		return Condition(o.Status, "Ready") == want && o.Status.ObservedGeneration == o.Generation
	})
}

func (h *Hub) wait(tb testing.TB, namespace, name, what string, want func(*v1.ProxyKubeApi) bool) *v1.ProxyKubeApiStatus {
	tb.Helper()
	var last *v1.ProxyKubeApi
	deadline := time.Now().Add(soon)
	for {
		if last = h.Cluster(tb, namespace, name); want(last) {
			return last.Status
		}
		if time.Now().After(deadline) {
			text, _ := json.MarshalIndent(last.Status, "", " ")
			tb.Fatalf("no status of %s/%s with %s within %v, but\n%s", namespace, name, what, soon, text)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Condition is a condition in the form "status/reason", empty for none.
func Condition(s *v1.ProxyKubeApiStatus, kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s/%s", c.Status, c.Reason)
		}
	}
	return ""
}

// Message is that of a condition, empty for none.
func Message(s *v1.ProxyKubeApiStatus, kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// Events are those about a ProxyKubeApi.
func (h *Hub) Events(tb testing.TB, namespace, name string) []corev1.Event {
	tb.Helper()
	var list corev1.EventList
	selector := url.QueryEscape("involvedObject.kind=" + v1.Kind + ",involvedObject.name=" + name)
	h.Get(tb, objectPath(namespace, "events", "")+"?fieldSelector="+selector, &list)
	return list.Items
}

// WaitEvent waits for an Event with that reason.
func (h *Hub) WaitEvent(tb testing.TB, namespace, name, reason string) corev1.Event {
	tb.Helper()
	var found corev1.Event
	h.Eventually(tb, "the Event "+reason, func() bool {
		events := h.Events(tb, namespace, name)
		i := slices.IndexFunc(events, func(e corev1.Event) bool { return e.Reason == reason })
		if i >= 0 {
			found = events[i]
		}
		return i >= 0
	})
	return found
}

// Requests are those of the chart's ServiceAccount that ended and match.
func (h *Hub) Requests(tb testing.TB, match func(*auditv1.Event) bool) []auditv1.Event {
	tb.Helper()
	all, err := h.AuditEvents()
	if err != nil {
		tb.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e auditv1.Event) bool {
		return e.User.Username != Account || e.Stage != auditv1.StageResponseComplete || !match(&e)
	})
}

// MustNotHaveBeenForbidden fails the test for each request of the chart's
// ServiceAccount that the hub refused (CRD-02).
func (h *Hub) MustNotHaveBeenForbidden(tb testing.TB) {
	tb.Helper()
	for _, e := range h.Requests(tb, func(e *auditv1.Event) bool {
		return e.ResponseStatus != nil && (e.ResponseStatus.Code == 403 || e.ResponseStatus.Code == 401)
	}) {
		tb.Errorf("forbidden: %s %s", e.Verb, e.RequestURI)
	}
}

// StatusWrites counts the writes of a cluster's status by the ServiceAccount,
// of all clusters with an empty name.
func (h *Hub) StatusWrites(tb testing.TB, name string) int {
	tb.Helper()
	return len(h.Requests(tb, func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Resource == v1.Resource && e.ObjectRef.Subresource == "status" &&
			(name == "" || e.ObjectRef.Name == name) && (e.Verb == "patch" || e.Verb == "update")
	}))
}

// Eventually is the function of that name, with the time that the other methods
// wait.
func (h *Hub) Eventually(tb testing.TB, what string, holds func() bool) time.Duration {
	tb.Helper()
	return Eventually(tb, what, soon, holds)
}

// Eventually waits until something holds, and says how long that took.
func Eventually(tb testing.TB, what string, within time.Duration, holds func() bool) time.Duration {
	tb.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > within {
			tb.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(25 * time.Millisecond)
	}
	return time.Since(start)
}
