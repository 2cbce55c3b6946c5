package tenant

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func urlPatch(url string) string {
	return fmt.Sprintf(`{"spec":{"service":{"ExternalService":{"url":%q}}}}`, url)
}

// CERT-1, STREAM-1: an approved cluster that is moved to another target loses its
// certificate and its streams. Not one request goes to the new target.
func repointing(w *world) {
	up, elsewhere := rawserver.Start(w, rawserver.Options{Handler: ticking}), rawserver.Start(w, rawserver.Options{})
	w.approve(mine, "moved", up, 0)
	w.apply(w.cluster(mine, "moved", up))
	w.answers(mine, "moved", http.StatusCreated, "")
	ended := w.watching(mine, "moved")

	w.patch(v1.Resource, "moved", urlPatch(elsewhere.URL))
	if took := ended(); took > 5*time.Second+slack {
		w.Errorf("the watch ended after %v", took)
	}
	w.answers(mine, "moved", http.StatusServiceUnavailable, notReady+"ClientCertTargetMismatch")
	w.ready("moved", "False/ClientCertTargetMismatch")
	w.stays(mine, "moved", http.StatusServiceUnavailable, notReady+"ClientCertTargetMismatch", time.Second)
	// A CA of their own, a name of their own, and back and forth.
	w.apply(w.cluster(mine, "moved", elsewhere))
	w.patch(v1.Resource, "moved", `{"spec":{"tls_server_name":"localhost"}}`)
	w.stays(mine, "moved", http.StatusServiceUnavailable, notReady+"ClientCertTargetMismatch", time.Second)
	for range 3 {
		w.patch(v1.Resource, "moved", urlPatch(up.URL))
		w.patch(v1.Resource, "moved", urlPatch(elsewhere.URL))
		w.ask(mine, "moved")
	}
	if got := withCertificate(elsewhere); len(got) > 0 {
		w.Errorf("%v came with certificate %v", got[0], got[0].Serial)
	}
	if got := elsewhere.Requests(); len(got) > 0 {
		w.Errorf("%v reached the new target", got[0])
	}
	w.apply(w.cluster(mine, "moved", up))
	w.answers(mine, "moved", http.StatusCreated, "")
}

// CERT-2: a target is what its URL says, letter by letter but for slashes at
// its end; whatever else leads to the same address is another target.
func spellings(w *world) {
	up := rawserver.Start(w, rawserver.Options{})
	_, port, _ := strings.Cut(up.Host, ":")
	w.approve(mine, "spelled", up, 0)
	w.apply(w.cluster(mine, "spelled", up))
	w.answers(mine, "spelled", http.StatusCreated, "")
	const mismatch, same, refused = "False/ClientCertTargetMismatch", "True/Serving", ""
	for _, tt := range []struct{ url, want string }{
		{up.URL + "/", same},
		{"https://localhost:" + port, mismatch},
		{up.URL + "///", same},
		{"https://LOCALHOST:" + port, mismatch},
		{"https://127.1:" + port, mismatch},
		{"https://127.0.0.1.:" + port, mismatch},
		{up.URL, same},
		{"https://127.0.0.1:0" + port, refused},
		{up.URL + "/base", mismatch},
		{up.URL + "/", same},
		{up.URL + "/%2e", "False/InvalidSpec"},
		{up.URL + "/a/../", "False/InvalidSpec"},
		{up.URL, same},
		{up.URL + "#/", refused},
		{up.URL + "?", refused},
		{"https://127.0.0.1@localhost:" + port, refused},
		{"HTTPS://127.0.0.1:" + port, refused},
		{up.URL + " ", refused},
		{up.URL + "\\t/", refused},
		{"http://127.0.0.1:" + port, refused},
	} {
		r := w.tenant.MustEnd(w, "patch", "-n", mine, v1.Resource, "spelled", "--type=merge", "-p", urlPatch(tt.url))
		switch {
		case r.ExitCode == 0 && tt.want == refused:
			w.Errorf("%q was accepted", tt.url)
		case r.ExitCode != 0 && strings.HasSuffix(tt.want, "/InvalidSpec"), tt.want == refused:
		case r.ExitCode != 0:
			w.Errorf("%q was refused: %s", tt.url, r.Stderr)
		default:
			w.ready("spelled", tt.want)
		}
	}
	for _, r := range up.Requests() {
		if !strings.HasPrefix(r.Target, "/apis/") {
			w.Errorf("%v", r)
		}
	}
}

// CERT-3, TRUST-2: other prefixes are another set, closed until its apiserver
// was asked; an admin who writes them on the Secret has the last word.
func prefixes(w *world) {
	up := rawserver.Start(w, rawserver.Options{})
	w.approve(mine, "prefixed", up, 0)
	w.apply(w.cluster(mine, "prefixed", up))
	w.answers(mine, "prefixed", http.StatusCreated, "")
	change := func(user, group string) {
		w.patch(v1.Resource, "prefixed", fmt.Sprintf(`{"spec":{"upstream_auth":{"user_prefix":%q,"group_prefix":%q}}}`, user, group))
	}
	for _, reserved := range []string{"system:", "system:masters"} {
		r := w.tenant.MustEnd(w, "patch", "-n", mine, v1.Resource, "prefixed", "--type=merge", "-p", `{"spec":{"upstream_auth":{"group_prefix":"`+reserved+`"}}}`)
		if r.ExitCode == 0 {
			w.Errorf("prefix %s was accepted", reserved)
		}
	}
	// The new set is asked about before its first request.
	up.Reset()
	change("other:", "other:")
	w.hub.Eventually(w, "the new prefix", func() bool {
		r := w.ask(mine, "prefixed")
		return r.Code == http.StatusCreated && r.User.Username == "other:alice"
	})
	probed := false
	for _, r := range up.AllRequests() {
		switch {
		case r.Identity == nil:
		case r.Identity.User == "other:proxyauth-probe":
			probed = true
		case r.Identity.User == "other:alice" && !probed:
			w.Errorf("%v came before the new set was probed", r)
		}
	}
	// Written on the Secret they bind.
	secret := proxy.FrontProxySecret(mine, "prefixed", up.URL, up.FrontProxy(0))
	secret.Annotations[proxy.PrefixAnnotation] = "other:"
	w.apply(secret)
	w.answers(mine, "prefixed", http.StatusCreated, "")
	for _, p := range [][2]string{{prefix, prefix}, {"other:", prefix}, {prefix, "other:"}, {"other:x", "other:x"}} {
		change(p[0], p[1])
		w.answers(mine, "prefixed", http.StatusServiceUnavailable, notReady+"ClientCertTargetMismatch")
		if message := w.ready("prefixed", "False/ClientCertTargetMismatch"); !strings.Contains(message, proxy.PrefixAnnotation) || strings.Contains(message, "other:") {
			w.Errorf("%q", message)
		}
		change("other:", "other:")
		w.answers(mine, "prefixed", http.StatusCreated, "")
	}
}

// API-6, CERT-2: a Service cannot send the proxy to a name of its author's
// choice, and another number behind the name of its port is another target.
func services(w *world) {
	// The name of the Service leads nowhere here: nothing but the answer is missing.
	const unreached = "Unknown/UpstreamTrustUnknown"
	up := rawserver.Start(w, rawserver.Options{})
	service := func(change func(*corev1.ServiceSpec)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "api"}}
		s.APIVersion, s.Kind = "v1", "Service"
		s.Spec.Ports = []corev1.ServicePort{{Name: "https", Port: 6443}}
		if change != nil {
			change(&s.Spec)
		}
		return s
	}
	object := w.cluster(mine, "served", up)
	port := "https"
	object.Spec.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "api", PortName: &port}}
	secret := proxy.FrontProxySecret(mine, "served", up.URL, up.FrontProxy(0))
	secret.Annotations[proxy.TargetAnnotation] = "service:" + mine + "/api:6443"
	w.apply(secret, service(nil), object)
	w.ready("served", unreached)

	w.apply(service(func(s *corev1.ServiceSpec) { s.Ports[0].Port = 7443 }))
	w.ready("served", "False/ClientCertTargetMismatch")
	w.apply(service(func(s *corev1.ServiceSpec) { s.Ports[0].Name = "other" }))
	w.ready("served", "False/ServiceNotFound")
	w.apply(service(nil))
	w.ready("served", unreached)

	w.patch("service", "api", `{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null}}`)
	if message := w.ready("served", "False/InvalidSpec"); !strings.Contains(message, "ExternalName") || strings.Contains(message, "localhost") {
		w.Errorf("%q", message)
	}
	w.answers(mine, "served", http.StatusServiceUnavailable, notReady+"InvalidSpec")
	w.apply(&corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "outside"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})
	outside := w.passthrough(mine, "outside", up)
	outside.Spec.Service = v1.Service{KubernetesService: &v1.KubernetesService{Name: "outside"}}
	w.apply(outside)
	w.ready("outside", "False/InvalidSpec")
	up.None(w)
	if got := withCertificate(up); len(got) > 0 {
		w.Errorf("%v", got[0])
	}
}
