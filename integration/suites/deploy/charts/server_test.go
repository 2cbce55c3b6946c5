package charts

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// testSets has a real apiserver judge every object of every set: strictly by
// its schema, and by all that admission and validation of its kind demand.
func (h hub) testSets(t *testing.T) {
	judge := newJudge(t, h)
	created := map[string]bool{}
	for name, s := range loadSets(t) {
		objects := documents(t, s.manifest(t, name))
		for _, o := range objects {
			if o.GetKind() == "Namespace" {
				// As long as it is not there for what stands in it.
				if refusal := judge.create(t, o); refusal != "" {
					t.Errorf("%s: Namespace %s: %s", name, o.GetName(), refusal)
				}
			}
		}
		for _, o := range objects {
			if ns := o.GetNamespace(); ns != "" && !created[ns] {
				created[ns] = true
				h.kubectl.MustEnd(t, "create", "namespace", ns)
			}
		}
		t.Run(name, func(t *testing.T) {
			var wait sync.WaitGroup
			for _, o := range objects {
				if o.GetKind() == "Namespace" {
					continue
				}
				wait.Go(func() {
					if refusal := judge.create(t, o); refusal != "" {
						t.Errorf("%s %s: %s", o.GetKind(), o.GetName(), refusal)
					}
				})
			}
			wait.Wait()
		})
	}
	// The judge is awake.
	objects := documents(t, mustTemplate(t, release, namespace, chart(t), "--set", "extraVolumes[0].nam=x"))
	for _, o := range objects {
		if refusal := judge.create(t, o); strings.Contains(refusal, `unknown field \"spec.template.spec.volumes[3].nam\"`) != (o.GetKind() == "Deployment") {
			t.Errorf("%s: %q", o.GetKind(), refusal)
		}
	}
}

// judge creates objects without keeping them.
type judge struct {
	client *http.Client
	url    string
}

func newJudge(t *testing.T, h hub) judge {
	t.Helper()
	client, err := rest.HTTPClientFor(h.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return judge{client, h.URL}
}

// create asks the apiserver to create an object, and to keep nothing.
func (j judge) create(t *testing.T, o *unstructured.Unstructured) (refusal string) {
	t.Helper()
	path := "/apis/" + o.GetAPIVersion()
	if !strings.Contains(o.GetAPIVersion(), "/") {
		path = "/api/" + o.GetAPIVersion()
	}
	if ns := o.GetNamespace(); ns != "" {
		path += "/namespaces/" + ns
	}
	body, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	url := j.url + path + "/" + plural(o.GetKind()) + "?dryRun=All&fieldValidation=Strict"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := j.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusCreated {
		return ""
	}
	return string(text)
}

// plural is the name of a kind in URLs.
func plural(kind string) string {
	name := strings.ToLower(kind)
	if stem, ok := strings.CutSuffix(name, "y"); ok {
		return stem + "ies"
	}
	if strings.HasSuffix(name, "s") {
		return name + "es"
	}
	return name + "s"
}

// testTwoReleases installs two releases into one namespace: each has a Lease
// that it may take and the other may not, so that both have a leader; with
// tls.mode acme each has a namespace for its certificates (CHART-3).
func (h hub) testTwoReleases(t *testing.T) {
	const ns = "two-releases"
	h.namespace(t, ns)
	releases := []string{"first", "second"}
	for _, r := range releases {
		h.helm.mustRun(t, "install", r, chart(t), "--namespace", ns, "--set", "tls.mode=acme,tls.acme.hosts={k8s.example.com}")
		defer h.helm.mustRun(t, "uninstall", r, "--namespace", ns)
	}
	leases := map[string]string{}
	for _, r := range releases {
		config := new(corev1.ConfigMap)
		h.get(t, config, "configmap", r+"-proxyauthk8s", "--namespace", ns)
		leases[r] = leaseOf(t, config)
	}
	if leases["first"] == leases["second"] {
		t.Fatalf("both take part in the election of %s", leases["first"])
	}
	for _, r := range releases {
		account := "system:serviceaccount:" + ns + ":" + r + "-proxyauthk8s"
		for other, lease := range leases {
			for _, verb := range []string{"get", "update"} {
				what := attributes(ns, verb+" leases.coordination.k8s.io "+lease)
				if other == r {
					h.MustAllow(t, account, nil, what)
				} else if h.review(t, account, what) {
					t.Errorf("%s may %s the Lease %s", r, verb, lease)
				}
			}
		}
		h.MustAllow(t, account, nil, authorizationv1.ResourceAttributes{Namespace: ns, Verb: "create", Group: "coordination.k8s.io", Resource: "leases"})
	}
}
