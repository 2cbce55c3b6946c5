package source

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	hubsource "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/hub"
)

const external = `{"service":{"ExternalService":{"url":"https://10.0.0.1"}}}`

// withCA refers to a Secret.
func withCA(name string) string {
	return `{"service":{"ExternalService":{"url":"https://10.0.0.1"}},"cert":{"Secret":{"name":"` + name + `","key":"ca.crt"}}}`
}

func said(s *corev1.Secret, err error) string {
	switch {
	case err == nil:
		return string(s.Data["ca.crt"])
	case apierrors.IsNotFound(err):
		return "not found"
	case apierrors.IsForbidden(err):
		return "forbidden"
	}
	return "failed: " + err.Error()
}

func TestObjects(t *testing.T) {
	t.Parallel()
	h := newHub(t, v1.CRD)
	h.putSecret("team-a", "ca", "A", nil)
	h.put("team-a", "before", withCA("ca"))
	f := follow(t, h.config(), nil).started()

	t.Run("the first list", func(t *testing.T) {
		if f.object("team-a", "before") == nil || len(f.Keys()) != 1 {
			t.Errorf("objects: %v", f.Keys())
		}
		if got := f.secret("team-a", "ca"); got != "A" {
			t.Errorf("its reference: %s", got)
		}
	})
	t.Run("created, changed, disabled and deleted", func(t *testing.T) {
		h.put("team-a", "new", external)
		eventually(t, "created", func() bool { return f.object("team-a", "new") != nil })
		if got := f.object("team-a", "new"); got.ManagedFields != nil || got.Spec.Enabled == nil {
			t.Errorf("not as the hub defaults it, or with fields that are not read: %+v", got)
		}
		h.put("team-a", "new", `{"enabled":false,"service":{"ExternalService":{"url":"https://10.0.0.2"}}}`)
		eventually(t, "changed", func() bool { return !f.object("team-a", "new").Spec.EnabledOrDefault() })
		h.remove("team-a", "new")
		eventually(t, "deleted", func() bool { return f.object("team-a", "new") == nil })
		eventually(t, "told", func() bool { return f.timesTold("ProxyKubeApi", "team-a", "new") >= 3 })
	})
	t.Run("deleted and created again", func(t *testing.T) {
		before := f.object("team-a", "before").UID
		h.remove("team-a", "before")
		h.put("team-a", "before", external)
		eventually(t, "another object", func() bool {
			o := f.object("team-a", "before")
			return o != nil && o.UID != before && o.Spec.Cert == nil
		})
	})
	t.Run("a status alone", func(t *testing.T) {
		told := f.timesTold("ProxyKubeApi", "team-a", "before")
		_, err := h.objects.Namespace("team-a").Patch(t.Context(), "before", types.MergePatchType, []byte(`{"status":{"error":"x"}}`), metav1.PatchOptions{}, "status")
		must(t, err)
		eventually(t, "the status", func() bool {
			o := f.Latest(k8swatch.Key{Namespace: "team-a", Name: "before"})
			return o.Status != nil && o.Status.Error != nil && *o.Status.Error == "x"
		})
		eventually(t, "told", func() bool { return f.timesTold("ProxyKubeApi", "team-a", "before") > told })
	})
	t.Run("a Service", func(t *testing.T) {
		if _, err := f.Service("team-a", "api"); !apierrors.IsNotFound(err) {
			t.Errorf("before: %v", err)
		}
		h.ApplyText(t, "{apiVersion: v1, kind: Service, metadata: {name: api, namespace: team-a}, spec: {ports: [{name: https, port: 6443}]}}")
		eventually(t, "seen", func() bool {
			s, err := f.Service("team-a", "api")
			return err == nil && len(s.Spec.Ports) == 1 && s.Spec.Ports[0].Port == 6443
		})
	})
	t.Run("references that are refused are never asked for", func(t *testing.T) {
		h.putSecret("team-b", "theirs", "B", nil)
		h.putSecret("team-a", "proxyauth-agent-x", "C", nil)
		h.put("team-a", "curious", `{"service":{"ExternalService":{"url":"https://10.0.0.1"}},"cert":{"Secret":{"name":"theirs","namespace":"team-b","key":"ca.crt"}}}`)
		h.put("team-a", "curious-too", withCA("proxyauth-agent-x"))
		eventually(t, "shown", func() bool { return f.object("team-a", "curious") != nil && f.object("team-a", "curious-too") != nil })
		if got := f.secret("team-b", "theirs"); !strings.HasPrefix(got, "failed") {
			t.Errorf("a Secret of another namespace: %s", got)
		}
		asked := h.Requests(t, func(e *auditv1.Event) bool {
			return e.ObjectRef != nil && (e.ObjectRef.Name == "theirs" || e.ObjectRef.Name == "proxyauth-agent-x")
		})
		if len(asked) != 0 {
			t.Errorf("asked for: %s", asked[0].RequestURI)
		}
	})
	f.stop()
	h.MustNotHaveBeenForbidden(t)
	t.Run("who asked", func(t *testing.T) {
		for _, e := range h.Requests(t, func(e *auditv1.Event) bool { return !strings.HasPrefix(e.UserAgent, "proxyauthk8s/") }) {
			t.Errorf("%s %s as %q", e.Verb, e.RequestURI, e.UserAgent)
		}
	})
	t.Run("lists and watches", func(t *testing.T) {
		for _, e := range h.Requests(t, func(e *auditv1.Event) bool { return e.Verb == "list" || e.Verb == "watch" }) {
			own := e.ObjectRef.Resource == "secrets" && e.ObjectRef.Namespace == proxyNamespace && strings.Contains(e.RequestURI, "managed-by%3Dproxyauthk8s")
			if !own && e.ObjectRef.Resource != "services" && e.ObjectRef.Resource != "proxykubeapis" {
				t.Errorf("%s %s", e.Verb, e.RequestURI)
			}
		}
	})
}

// CRD-02: with the shipped rights, a right that is taken away for one namespace
// shows there alone, and comes back without a restart.
func TestRights(t *testing.T) {
	t.Parallel()
	h := newHub(t, v1.CRD, "rbac.secretNamespaces={team-a,team-b}")
	for _, namespace := range []string{"team-a", "team-b"} {
		h.putSecret(namespace, "ca", "A", nil)
		h.put(namespace, "prod", withCA("ca"))
	}
	f := follow(t, h.config(), nil).started()
	if a, b := f.secret("team-a", "ca"), f.secret("team-b", "ca"); a != "A" || b != "A" {
		t.Fatalf("at first: %s, %s", a, b)
	}
	h.MustNotHaveBeenForbidden(t)

	h.patchSecret("team-a", "ca", `{"data":{"ca.crt":"Qg=="}}`)
	eventually(t, "a change of the Secret", func() bool { return f.secret("team-a", "ca") == "B" })
	eventually(t, "told", func() bool { return f.timesTold("Secret", "team-a", "ca") > 0 })

	const binding = hub.Namespace + ":proxyauthk8s:references"
	h.Admin.MustRun(t, "delete", "rolebinding", binding, "-n", "team-a")
	eventually(t, "the right is missed", func() bool { return f.secret("team-a", "ca") == "forbidden" })
	if got := f.secret("team-b", "ca"); got != "A" {
		t.Errorf("the other namespace: %s", got)
	}
	h.Grant(t, "rbac.secretNamespaces={team-a,team-b}")
	eventually(t, "the right is back", func() bool { return f.secret("team-a", "ca") == "B" })

	must(t, h.core.Secrets("team-a").Delete(t.Context(), "ca", metav1.DeleteOptions{}))
	eventually(t, "the Secret is missed", func() bool { return f.secret("team-a", "ca") == "not found" })
}

// CERT-5, CERT-8: the Secrets of the product follow the watch at once.
func TestSecretsOfTheProxy(t *testing.T) {
	t.Parallel()
	h := newHub(t, v1.CRD)
	const name = "proxyauth-frontproxy-team-a.prod"
	labelled := map[string]string{managedBy: "proxyauthk8s"}
	h.put("team-a", "prod", `{"service":{"ExternalService":{"url":"https://10.0.0.1"}},"upstream_auth":{"user_prefix":"p:","group_prefix":"p:"}}`)
	// Long enough that no read by name can be what shows a change.
	f := follow(t, h.config(), func(o *hubsource.Options) { o.ReferenceTTL = time.Hour })
	f.Follow("tls")
	f.started()

	is := func(want string) func() bool {
		return func() bool { return f.secret(proxyNamespace, name) == want }
	}
	if !is("not found")() {
		t.Errorf("absent: %s", f.secret(proxyNamespace, name))
	}
	h.putSecret(proxyNamespace, name, "A", labelled)
	eventually(t, "made", is("A"))
	h.patchSecret(proxyNamespace, name, `{"data":{"ca.crt":"Qg=="}}`)
	eventually(t, "renewed", is("B"))
	h.patchSecret(proxyNamespace, name, `{"metadata":{"labels":{"`+managedBy+`":null}}}`)
	eventually(t, "no longer labelled", func() bool {
		s, err := f.Secret(proxyNamespace, name)
		return apierrors.IsNotFound(err) || err == nil && s.Labels[managedBy] == ""
	})
	eventually(t, "there without its label", func() bool {
		s, err := f.Secret(proxyNamespace, name)
		return err == nil && s.Labels[managedBy] == ""
	})
	h.patchSecret(proxyNamespace, name, `{"metadata":{"labels":{"`+managedBy+`":"proxyauthk8s"}}}`)
	eventually(t, "labelled again", func() bool {
		s, err := f.Secret(proxyNamespace, name)
		return err == nil && s.Labels[managedBy] != ""
	})
	must(t, h.core.Secrets(proxyNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	eventually(t, "deleted", is("not found"))

	t.Run("followed by name", func(t *testing.T) {
		follows := func(want string) func() bool {
			return func() bool { return f.secret(proxyNamespace, "tls") == want }
		}
		eventually(t, "absent", follows("not found"))
		h.putSecret(proxyNamespace, "tls", "A", nil)
		eventually(t, "made", follows("A"))
		h.patchSecret(proxyNamespace, "tls", `{"data":{"ca.crt":"Qg=="}}`)
		eventually(t, "renewed", follows("B"))
		eventually(t, "told", func() bool { return f.timesTold("Secret", proxyNamespace, "tls") >= 2 })
		f.Follow("tls")
		f.Follow("later")
		h.putSecret(proxyNamespace, "later", "A", nil)
		eventually(t, "another", func() bool { return f.secret(proxyNamespace, "later") == "A" })
	})
	f.stop()
	h.MustNotHaveBeenForbidden(t)
	watches := h.Requests(t, func(e *auditv1.Event) bool {
		return e.Verb == "watch" && e.Stage == auditv1.StageResponseComplete && strings.Contains(e.RequestURI, "fieldSelector=metadata.name%3Dtls")
	})
	if len(watches) > 2 {
		t.Errorf("%d watches of one Secret", len(watches))
	}
}

// An object may be older than the CRD.
func TestAnObjectOfAnotherShape(t *testing.T) {
	t.Parallel()
	h := newHub(t, openSchema(t, v1.CRD))
	h.put("team-a", "good", external)
	h.put("team-a", "odd", `{"service":"https://10.0.0.1"}`)
	h.InstallCRD(t, v1.CRD)
	f := follow(t, h.config(), nil).started()
	if len(f.Keys()) != 2 {
		t.Fatalf("objects: %v", f.Keys())
	}
	odd := f.Object(k8swatch.Key{Namespace: "team-a", Name: "odd"})
	if !strings.Contains(odd.Invalid, "spec.service") || odd.ProxyKubeApi.UID == "" {
		t.Errorf("the odd one: %q, %+v", odd.Invalid, odd.ProxyKubeApi.ObjectMeta)
	}
	if good := f.Object(k8swatch.Key{Namespace: "team-a", Name: "good"}); good.Invalid != "" {
		t.Errorf("the good one: %q", good.Invalid)
	}
	h.put("team-a", "odd", external)
	eventually(t, "mended", func() bool { return f.Object(k8swatch.Key{Namespace: "team-a", Name: "odd"}).Invalid == "" })
}

func TestWatchNamespaces(t *testing.T) {
	t.Parallel()
	h := newHub(t, v1.CRD, "watchNamespaces={team-a}")
	h.put("team-a", "prod", external)
	h.put("team-b", "prod", external)
	h.ApplyText(t, "{apiVersion: v1, kind: Service, metadata: {name: api, namespace: team-a}, spec: {ports: [{port: 443}]}}")
	f := follow(t, h.config(), func(o *hubsource.Options) { o.WatchNamespaces = []string{"team-a"} }).started()
	if f.object("team-a", "prod") == nil || f.object("team-b", "prod") != nil {
		t.Errorf("objects: %v", f.Keys())
	}
	if _, err := f.Service("team-a", "api"); err != nil {
		t.Errorf("a Service of the namespace: %v", err)
	}
	h.put("team-a", "new", external)
	eventually(t, "created", func() bool { return f.object("team-a", "new") != nil })
	h.MustNotHaveBeenForbidden(t)

	// Without the right it is an ordinary read that fails, and with it one
	// that works.
	h.ApplyText(t, "{apiVersion: v1, kind: Service, metadata: {name: api, namespace: team-b}, spec: {ports: [{port: 443}]}}")
	h.put("team-a", "new", `{"service":{"KubernetesService":{"name":"api","namespace":"team-b"}}}`)
	eventually(t, "forbidden", func() bool { _, err := f.Service("team-b", "api"); return apierrors.IsForbidden(err) })
	h.Admin.MustRun(t, "create", "clusterrole", "services", "--verb=get", "--resource=services")
	h.Admin.MustRun(t, "create", "clusterrolebinding", "services", "--clusterrole=services", "--serviceaccount=proxyauth:proxyauthk8s")
	eventually(t, "read by name", func() bool { _, err := f.Service("team-b", "api"); return err == nil })
}
