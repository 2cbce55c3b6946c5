package tenant

import (
	"net/http"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// whispered are the contents of Secrets that no status, Event or log may tell.
var whispered = []string{"whispered-" + pki.MustCA("whispered").Certificate.SerialNumber.String(), "PRIVATE KEY"}

// API-4, API-5: a reference leads nowhere but to what its author may read. What
// is refused by its name or namespace is not even asked for.
func references(w *world) {
	up := rawserver.Start(w, rawserver.Options{})
	pair := up.FrontProxy(0)
	all := map[string]string{
		"ca.crt": string(up.ServerCA.PEM), "tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM), "token": whispered[0],
		"issuer_url": w.idp.Issuer,
	}
	const agent, front = "proxyauth-agent-team-a.x", "proxyauth-frontproxy-team-z.prod"
	w.apply(
		labelled(hubNamespace, front, all), labelled(hubNamespace, agent, all), proxy.Secret(hubNamespace, "unlabelled", all),
		proxy.ConfigMap(hubNamespace, "settings", all),
		proxy.Secret(mine, front, all), proxy.Secret(mine, agent, all), labelled(mine, "labelled", all),
		proxy.Secret(theirs, "ca", all), proxy.ConfigMap(theirs, "ca", all),
	)
	ca := func(r *v1.KeyReference) func(*v1.ProxyKubeApi) {
		return func(c *v1.ProxyKubeApi) { c.Spec.Cert = &v1.CertSource{Secret: r} }
	}
	clientCert := func(cert, key v1.CertSource) func(*v1.ProxyKubeApi) {
		return func(c *v1.ProxyKubeApi) { c.Spec.ClientCert = &v1.ClientCert{Cert: cert, Key: key} }
	}
	secret := func(namespace, name, key string) v1.CertSource {
		return v1.CertSource{Secret: keyRef(namespace, name, key)}
	}
	const protected = "names a Secret of the proxy itself"
	tests := []struct {
		name   string
		change func(*v1.ProxyKubeApi)
		path   string
		says   string
	}{
		{"front", ca(keyRef("", front, "ca.crt")), "spec.cert.Secret.name", protected},
		{"agent", ca(keyRef("", agent, "ca.crt")), "spec.cert.Secret.name", protected},
		{"front-of-proxy", ca(keyRef(hubNamespace, front, "ca.crt")), "spec.cert.Secret.namespace", "reference_namespaces"},
		{"agent-of-proxy", ca(keyRef(hubNamespace, agent, "ca.crt")), "spec.cert.Secret.namespace", "reference_namespaces"},
		{"any-of-proxy", ca(keyRef(hubNamespace, "unlabelled", "ca.crt")), "spec.cert.Secret.namespace", "reference_namespaces"},
		{"labelled", ca(keyRef("", "labelled", "ca.crt")), "spec.cert.Secret.name", protected},
		{"of-others", ca(keyRef(theirs, "ca", "ca.crt")), "spec.cert.Secret.namespace", "reference_namespaces"},
		{"map-of-others", func(c *v1.ProxyKubeApi) { c.Spec.Cert = &v1.CertSource{ConfigMap: keyRef(theirs, "ca", "ca.crt")} }, "spec.cert.ConfigMap.namespace", "reference_namespaces"},
		{"map-of-proxy", func(c *v1.ProxyKubeApi) {
			c.Spec.Cert = &v1.CertSource{ConfigMap: keyRef(hubNamespace, "settings", "ca.crt")}
		}, "spec.cert.ConfigMap.namespace", "reference_namespaces"},
		{"mtls-front", clientCert(secret("", front, "tls.crt"), secret("", front, "tls.key")), "spec.client_cert.cert.Secret.name", protected},
		{"mtls-front-of-proxy", clientCert(secret(hubNamespace, front, "tls.crt"), secret(hubNamespace, front, "tls.key")), "spec.client_cert.key.Secret.namespace", "reference_namespaces"},
		{"mtls-labelled", clientCert(secret("", "labelled", "tls.crt"), secret("", "labelled", "tls.key")), "spec.client_cert.key.Secret.name", protected},
		{"mtls-mixed", clientCert(v1.CertSource{ConfigMap: keyRef(theirs, "ca", "tls.crt")}, secret("", agent, "tls.key")), "spec.client_cert.key.Secret.name", protected},
		{"config-from", func(c *v1.ProxyKubeApi) {
			c.Spec.AuthConfig.OidcProvider = &v1.OidcProvider{ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: agent}}}
		}, "spec.auth_config.oidc_provider.config_from.Secret.name", protected},
		{"config-of-proxy", func(c *v1.ProxyKubeApi) {
			ns := hubNamespace
			c.Spec.AuthConfig.OidcProvider = &v1.OidcProvider{ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: "unlabelled", Namespace: &ns}}}
		}, "spec.auth_config.oidc_provider.config_from.Secret.namespace", "reference_namespaces"},
		{"fallback", func(c *v1.ProxyKubeApi) {
			token := secret(hubNamespace, agent, "token")
			c.Spec.VirtualAPIs = []v1.VirtualAPI{{Kind: "OpenShiftProject", ListFallbackToken: &token}}
		}, "spec.virtual_apis[0].list_fallback_token.Secret.name", protected},
	}
	objects := make([]any, 0, len(tests))
	for _, tt := range tests {
		c := w.passthrough(mine, "ref-"+tt.name, up)
		tt.change(c)
		objects = append(objects, c)
	}
	w.apply(objects...)
	for _, tt := range tests {
		name := "ref-" + tt.name
		if message := w.ready(name, "False/InvalidSpec"); !strings.Contains(message, tt.path+": ") || !strings.Contains(message, tt.says) {
			w.Errorf("%s: %q", name, message)
		}
		if r := w.ask(mine, name); r.Code != http.StatusServiceUnavailable || r.Status.Message != passing+"InvalidSpec" {
			w.Errorf("%s: %d %q", name, r.Code, r.Status.Message)
		}
	}
	for _, e := range w.hub.Requests(w, func(e *auditv1.Event) bool {
		if e.Verb != "get" || e.ObjectRef == nil {
			return false
		}
		ns, name := e.ObjectRef.Namespace, e.ObjectRef.Name
		return name == front || name == agent || name == "unlabelled" || name == "settings" || ns == theirs && name == "ca"
	}) {
		w.Errorf("the proxy asked for %s", e.RequestURI)
	}
	if got := withCertificate(up); len(got) > 0 {
		w.Errorf("a certificate was presented: %v", got[0])
	}
}

// API-5: a Secret that gets the label of the product is withdrawn: the value that
// was read before serves no cluster, not even when the Secret cannot be read later.
func labelThatComes(w *world) {
	up := rawserver.Start(w, rawserver.Options{NoIdentity: true})
	w.apply(proxy.Secret(mine, "ca-later", map[string]string{"ca.crt": string(up.ServerCA.PEM)}))
	c := w.passthrough(mine, "later", up)
	c.Spec.Cert = &v1.CertSource{Secret: keyRef("", "ca-later", "ca.crt")}
	w.apply(c)
	w.ready("later", "True/Serving")

	w.patch("secret", "ca-later", `{"metadata":{"labels":{"`+proxy.ManagedByLabel+`":"`+proxy.ManagedBy+`"}}}`)
	w.answers(mine, "later", http.StatusServiceUnavailable, passing+"InvalidSpec")
	w.ready("later", "False/InvalidSpec")
	w.remove("secret", "ca-later")
	w.answers(mine, "later", http.StatusServiceUnavailable, passing+"ReferenceNotFound")
	w.stays(mine, "later", http.StatusServiceUnavailable, passing+"ReferenceNotFound", 2*time.Second)
	w.apply(proxy.Secret(mine, "ca-later", map[string]string{"ca.crt": string(up.ServerCA.PEM)}))
	w.ready("later", "True/Serving")
}
