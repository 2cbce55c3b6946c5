package kubernetes

import (
	"encoding/base64"
	"net/http"
	"sync"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// CERT-9 before AUTH-8: a review over a connection with a certificate that is an
// identity would name that identity for every token. Such a review is never made.
// With a certificate of the apiserver's --client-ca-file no caller is let in, from
// the first of 200 at once; with a certificate that the apiserver does not know
// each caller has the own identity.
func TestClientCertIsNobody(t *testing.T) {
	w := get(t)
	presenting := func(pair *pki.KeyPair) *v1.ProxyKubeApi {
		half := func(pem []byte) v1.CertSource {
			encoded := base64.StdEncoding.EncodeToString(pem)
			return v1.CertSource{Cert: &encoded}
		}
		c := w.cluster("prod")
		c.Spec.ClientCert = &v1.ClientCert{Cert: half(pair.CertPEM), Key: half(pair.KeyPEM)}
		return c
	}
	identity := presenting(pki.Must(w.api.PKI.ClientCA.Client("carol", "staff", "system:masters")))
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"prod.yaml": proxy.Manifests(identity)}})
	px.MustCluster(t, ns, "prod", func(*proxy.ClusterStatus) bool { return true })
	crowd := func(check func(token string)) {
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() { check([]string{devToken, "nobody-knows-this-token"}[i%2]) })
		}
		all.Wait()
	}
	crowd(func(token string) {
		if r := ask(t, px, "prod", token); r.Code != http.StatusServiceUnavailable || r.Status.Message != "this cluster is not ready: ClientCertIsIdentity" {
			t.Errorf("%d %s", r.Code, r.Status.Message)
		}
	})
	if n := reviews(t, w.api, "carol"); n != 0 {
		t.Errorf("%d reviews named the certificate's identity", n)
	}
	events, err := w.api.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.User.Username == "carol" && e.UserAgent != "proxyauth-probe" {
			t.Fatalf("%q ran as carol", e.UserAgent)
		}
	}

	px.MustWrite(t, "prod.yaml", presenting(pki.Must(pki.MustCA("gate").Client("carol", "system:masters"))))
	px.MustServe(t, ns, "prod")
	wantUser(t, ask(t, px, "prod", devToken), "dev")
	wantRefused(t, ask(t, px, "prod", "nobody-knows-this-token"), http.StatusUnauthorized, "refuses the token")
}
