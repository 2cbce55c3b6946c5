package status

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/leakcheck"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// API-4, API-5: what the proxy admin opens with the chart's referenceNamespaces
// is read from there, by the chart's rights; nothing else is, and when the value
// is taken back the clusters are closed.
func (w *world) openedNamespace(t *testing.T) {
	ca := map[string]string{"ca.crt": string(w.target.PKI.ServerCA.PEM)}
	own := proxy.Secret(opened, "labelled", ca)
	own.Labels = map[string]string{proxy.ManagedByLabel: proxy.ManagedBy}
	w.hub.Apply(t, proxy.Secret(opened, "ca", ca), proxy.ConfigMap(opened, "ca", ca), own, proxy.Secret(hub.Namespace, "ca", ca))
	at := func(namespace, name string) *v1.KeyReference {
		return &v1.KeyReference{Namespace: &namespace, Name: name, Key: "ca.crt"}
	}
	references := map[string]*v1.CertSource{
		"by-secret": {Secret: at(opened, "ca")}, "by-map": {ConfigMap: at(opened, "ca")},
		"labelled": {Secret: at(opened, "labelled")}, "elsewhere": {Secret: at(hub.Namespace, "ca")},
	}
	for name, cert := range references {
		w.approve(t, name)
		c := w.cluster(name)
		c.Spec.Cert = cert
		w.hub.Apply(t, c)
	}
	closed := func(names ...string) {
		t.Helper()
		for _, name := range names {
			w.hub.WaitReady(t, mine, name, "False/InvalidSpec")
			w.answers(t, name, http.StatusServiceUnavailable)
		}
	}
	closed("by-secret", "by-map", "labelled", "elsewhere")
	if n := len(w.reads(t)); n != 0 {
		t.Errorf("%d reads in namespaces that are not opened", n)
	}

	// The chart's own words for it.
	option := regexp.MustCompile(`reference_namespaces .*`).FindString(hub.Render(t, "configmap.yaml", "referenceNamespaces={"+opened+"}"))
	if option == "" {
		t.Fatal("the chart's configuration has no reference_namespaces")
	}
	w.reload(t, option)
	for _, name := range []string{"by-secret", "by-map"} {
		w.hub.WaitReady(t, mine, name, "True/Serving")
		if r := w.answers(t, name, http.StatusCreated); r.User.Username != prefix+"alice" {
			t.Errorf("%s: arrived as %q", name, r.User.Username)
		}
	}
	closed("labelled", "elsewhere")
	found := map[string]bool{}
	for _, e := range w.reads(t) {
		if found[e.ObjectRef.Resource+"/"+e.ObjectRef.Name] = true; e.ResponseStatus.Code != http.StatusOK || e.ObjectRef.Namespace != opened {
			t.Errorf("%s: %d", e.RequestURI, e.ResponseStatus.Code)
		}
	}
	if !found["secrets/ca"] || !found["configmaps/ca"] {
		t.Errorf("read: %v", found)
	}

	w.reload(t, "")
	closed("by-secret", "by-map", "labelled", "elsewhere")
	s := w.hub.Cluster(t, mine, "by-secret").Status
	if got := hub.Message(s, "Ready"); !strings.Contains(got, "spec.cert.Secret.namespace") || !strings.Contains(got, "reference_namespaces") {
		t.Errorf("Ready says %q", got)
	}
}

func (w *world) reload(t *testing.T, settings string) {
	t.Helper()
	if err := w.px.Reload(t.Context(), func(o *proxy.Options) { o.Settings = settings }); err != nil {
		t.Fatal(err)
	}
}

// reads are the reads by name of the references of openedNamespace.
func (w *world) reads(t *testing.T) []auditv1.Event {
	t.Helper()
	return w.hub.Requests(t, func(e *auditv1.Event) bool {
		return e.Verb == "get" && e.ObjectRef != nil && (e.ObjectRef.Name == "ca" || e.ObjectRef.Name == "labelled")
	})
}

// alike is how many characters all keys of one kind begin with.
const alike = 48

// CERT-4: the front-proxy Secret may be there before its object and outlives it:
// it has no owner.
func (w *world) outlives(t *testing.T) {
	pair := w.approve(t, "brief")
	w.hub.Apply(t, w.cluster("brief"))
	w.answers(t, "brief", http.StatusCreated)
	w.hub.Delete(t, mine, v1.Resource, "brief")
	w.answers(t, "brief", http.StatusNotFound)
	owners := w.hub.Admin.MustRun(t, "get", "secret", "-n", hub.Namespace, "proxyauth-frontproxy-team-a.brief", "-o", "jsonpath={.metadata.ownerReferences}{.metadata.finalizers}").Stdout
	if owners != "" {
		t.Errorf("owned: %s", owners)
	}
	w.hub.Apply(t, w.cluster("brief"))
	w.answers(t, "brief", http.StatusCreated)

	// Nor is it on disk, whole or in pieces.
	files, err := w.px.Files()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(w.temporary)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left in the temporary folder: %s", filepath.Join(w.temporary, e.Name()))
	}
	pieces := leakcheck.Pieces{}
	body := strings.Split(string(pair.KeyPEM), "\n")[1:]
	body[0] = body[0][alike:]
	for _, line := range body {
		if !strings.HasPrefix(line, "-----") {
			pieces.Add("the key", line)
		}
	}
	if len(files) == 0 || len(pieces) == 0 {
		t.Errorf("%d files, %d pieces", len(files), len(pieces))
	}
	for file, content := range files {
		pieces.Absent(t, file, string(content))
	}
}

// written looks at all that the proxy has written to the hub: statuses, Events and
// its Lease, and so no Secret (CERT-4), no object and no finalizer (API-9).
func (w *world) written(t *testing.T) {
	t.Helper()
	kinds := map[string]int{}
	for _, e := range w.hub.Requests(t, func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.Verb != "get" && e.Verb != "list" && e.Verb != "watch"
	}) {
		kind := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			kind += "/" + e.ObjectRef.Subresource
		}
		kinds[kind]++
		switch {
		case kind == v1.Resource+"/status", kind == "events":
		case kind == "leases" && e.ObjectRef.Namespace == hub.Namespace:
		default:
			t.Errorf("%s %s", e.Verb, e.RequestURI)
		}
	}
	if kinds[v1.Resource+"/status"] == 0 || kinds["events"] == 0 {
		t.Errorf("written: %v", kinds)
	}
	out := w.hub.Admin.MustRun(t, "get", v1.Resource, "-A", "-o", `jsonpath={range .items[*]}{.metadata.name}={.metadata.finalizers}{.metadata.ownerReferences}{"\n"}{end}`).Stdout
	if out = strings.TrimSpace(out); out == "" {
		t.Fatal("no objects")
	}
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(strings.TrimSpace(line), "=") {
			t.Errorf("an object with a finalizer or an owner: %s", line)
		}
	}
}
