package status

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// REC-4, REC-5: whoever waits for Ready waits until requests are served. With the
// wrong CA the proxy can check nothing, every request is a 503, and Ready is Unknown
// with that reason, in FrontProxy as with a client_cert.
func (w *world) waits(t *testing.T) {
	wrong, right := pki.MustCA("wrong"), w.target.PKI.ServerCA
	gated := func(ca *pki.CA) *v1.ProxyKubeApi {
		c := proxy.Cluster(mine, "wait-gated", w.target.URL, ca)
		c.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(w.idp)}}
		half := func(key string) v1.CertSource {
			return v1.CertSource{Secret: &v1.KeyReference{Name: "mtls", Key: key}}
		}
		c.Spec.ClientCert = &v1.ClientCert{Cert: half("tls.crt"), Key: half("tls.key")}
		return c
	}
	front := func(ca *pki.CA) *v1.ProxyKubeApi {
		c := w.cluster("wait-front")
		c.Spec.Cert = proxy.Cluster(mine, "wait-front", w.target.URL, ca).Spec.Cert
		return c
	}
	pair := pki.Must(pki.MustCA("gate").Client("gate"))
	w.hub.Apply(t, proxy.Secret(mine, "mtls", map[string]string{"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM)}))
	w.approve(t, "wait-front")
	w.hub.Apply(t, front(wrong), gated(wrong))
	wait := func(name, timeout string) kube.Result {
		return w.hub.Admin.MustEnd(t, "wait", "-n", mine, "pka/"+name, "--for=condition=Ready", "--timeout="+timeout)
	}
	for name, passed := range map[string]int{"wait-front": http.StatusCreated, "wait-gated": http.StatusUnauthorized} {
		s := w.hub.WaitReady(t, mine, name, "Unknown/UpstreamTrustUnknown")
		if m := hub.Message(s, "Ready"); !strings.Contains(m, "certificate of the apiserver cannot be verified") || s.Error == nil || *s.Error != m {
			t.Errorf("%s: Ready says %q, error %v", name, m, s.Error)
		}
		if r := wait(name, "3s"); r.ExitCode == 0 || !strings.Contains(r.Stderr, "timed out") {
			t.Errorf("%s: kubectl wait: %+v", name, r)
		}
		if r := w.ask(t, name); r.Code != http.StatusServiceUnavailable || !strings.HasSuffix(r.Status.Message, "UpstreamTrustUnknown") {
			t.Errorf("%s: %d %q", name, r.Code, r.Status.Message)
		}
		w.hub.Apply(t, map[string]any{"wait-front": front(right), "wait-gated": gated(right)}[name])
		if r := wait(name, "60s"); r.ExitCode != 0 {
			t.Errorf("%s: kubectl wait: %+v", name, r)
		}
		// The apiserver does not know the issuer of alice's token: its own 401 passes.
		if r := w.ask(t, name); r.Code != passed {
			t.Errorf("%s: Ready, and a request is %d %q", name, r.Code, r.Status.Message)
		}
	}
}
