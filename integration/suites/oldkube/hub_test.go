//go:build long

package oldkube

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The product as the chart's ServiceAccount on the oldest hub, with the oldest
// cluster behind it: what it reads there and what it writes (CRD-02, REC-3,
// REC-4, CERT-7).
func TestLongHub(t *testing.T) {
	w := newWorld(t, realtools.KubeAPIServer128)
	h := hub.Start(t, kube.Options{APIServer: realtools.KubeAPIServer129, Etcd: w.etcd})
	isVersion(t, h.APIServer, realtools.KubeAPIServer129)
	px := proxy.Start(t, proxy.Options{Hub: h.Kubeconfig, Settings: "upstream_client_ttl 2s", Env: []string{"POD_NAME=proxy-a"}})

	t.Run("status", func(t *testing.T) {
		object, secret := w.frontProxy("prod", w.right, pki.Must(w.right.FrontProxy()))
		h.Apply(t, object, secret)
		s := h.WaitReady(t, ns, "prod", "True/Serving")
		if s.UpstreamAuth == nil || s.UpstreamAuth.Trust != v1.TrustTrusted || hub.Condition(s, "Reachable") != "True/Answered" ||
			!s.Exposed || s.Path == nil || *s.Path != "/clusters/team-a/prod" || s.Error != nil || s.ObservedGeneration != 1 {
			t.Errorf("status %+v", s)
		}
		out := h.Admin.MustRun(t, "get", "pka", "-n", ns, "prod", "-o", "wide").Stdout
		for _, column := range []string{"READY", "PATH", "UPSTREAM", "TRUST", "True", "/clusters/team-a/prod", "FrontProxy", "Trusted"} {
			if !strings.Contains(out, column) {
				t.Errorf("no %s in\n%s", column, out)
			}
		}
		h.WaitEvent(t, ns, "prod", "Serving")
		if user := px.Kubectl(t, ns, "prod", w.alice()).MustRun(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}").Stdout; user != prefix+"alice" {
			t.Errorf("whoami says %q", user)
		}
	})
	t.Run("Lease", func(t *testing.T) {
		holder := h.Admin.MustRun(t, "get", "lease", "-n", hub.Namespace, "proxyauthk8s", "-o", "jsonpath={.spec.holderIdentity}").Stdout
		if !strings.HasPrefix(holder, "proxy-a_") {
			t.Errorf("held by %q", holder)
		}
	})
	t.Run("reference", func(t *testing.T) {
		object := w.passthrough("referring", v1.ValidateKubernetes)
		object.Spec.Cert = &v1.CertSource{Secret: &v1.KeyReference{Name: "ca", Key: "ca.crt"}}
		h.Apply(t, object)
		h.WaitReady(t, ns, "referring", "False/ReferenceNotFound")
		h.Apply(t, proxy.Secret(ns, "ca", map[string]string{"ca.crt": string(w.pki.ServerCA.PEM)}))
		s := h.WaitReady(t, ns, "referring", "True/Serving")
		if hub.Condition(s, "Reachable") != "True/Answered" {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("Service", func(t *testing.T) {
		object := w.passthrough("served", v1.ValidateKubernetes)
		object.Spec.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "api"}}
		h.Apply(t, object)
		h.WaitReady(t, ns, "served", "False/ServiceNotFound")
		h.Apply(t, &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "api"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
		})
		h.WaitReady(t, ns, "served", "True/Serving")
	})
	t.Run("deletion", func(t *testing.T) {
		h.Delete(t, ns, v1.Resource, "prod")
		h.Eventually(t, "404", func() bool {
			r := px.Kubectl(t, ns, "prod", w.alice()).MustEnd(t, "get", "--raw", "/version")
			return strings.Contains(r.Stderr, "NotFound") || strings.Contains(r.Stderr, "could not find")
		})
	})
	h.MustNotHaveBeenForbidden(t)
	for _, e := range h.Requests(t, func(e *auditv1.Event) bool { return e.ResponseStatus != nil && e.ResponseStatus.Code >= 400 }) {
		// A first list as a watch is tried, which 1.29 does not know.
		asWatch := e.ResponseStatus.Code == http.StatusUnprocessableEntity && strings.Contains(e.ResponseStatus.Message, "sendInitialEvents")
		if !asWatch && e.ResponseStatus.Code != http.StatusNotFound {
			t.Errorf("refused: %d %s %s: %s", e.ResponseStatus.Code, e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
	}
}
