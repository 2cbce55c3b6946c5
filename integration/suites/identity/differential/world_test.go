package differential

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// world is one apiserver that validates bearers itself, and the proxy in front
// of the same one in FrontProxy.
type world struct {
	idps            map[string]*oidc.Provider
	api             *kube.APIServer
	px              *proxy.Proxy
	direct, through *http.Client
	// claims answers what _claim_sources names, and counts.
	claims  *httptest.Server
	fetched atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{idps: map[string]*oidc.Provider{}}
	ca := pki.MustCA("idp-ca")
	jwt := map[string][]v1.JWTAuthenticator{}
	for cluster, configs := range clusters {
		for _, config := range configs {
			w.idps[config] = oidc.Start(t, oidc.Options{CA: ca})
			jwt[cluster] = append(jwt[cluster], authenticator(config, w.idps[config]))
		}
	}
	addKeys(t, w.idps[basic], w.idps[costly])
	w.claims = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.fetched.Add(1)
		idp := w.idps[basic]
		_, _ = io.WriteString(rw, idp.Mint(idp.Claims(oidc.Alice, changes{"groups": []string{"fetched"}}), oidc.Sign{}))
	}))
	w.claims.TLS = &tls.Config{Certificates: []tls.Certificate{pki.Must(ca.Server()).TLS()}}
	w.claims.StartTLS()
	t.Cleanup(w.claims.Close)

	authorities, err := kube.NewPKI()
	if err != nil {
		t.Fatal(err)
	}
	requestHeader := authorities.DefaultRequestHeader()
	requestHeader.UIDHeaders = true
	w.api = kube.Start(t, kube.Options{
		PKI: authorities, RequestHeader: requestHeader,
		AuthenticationConfig: kube.AuthenticationConfig(slices.Concat(jwt["prod"], jwt["more"])...),
	})
	manifests := map[string]string{}
	for name := range clusters {
		cluster := proxy.FrontProxyCluster("team-a", name, w.api.URL, authorities.ServerCA, forwarded, jwt[name]...)
		cluster.Spec.UpstreamAuth.ForwardUID = true
		manifests[name+".yaml"] = proxy.Manifests(cluster, proxy.FrontProxySecret("team-a", name, w.api.URL, pki.Must(w.api.FrontProxy())))
	}
	w.px = proxy.Start(t, proxy.Options{Manifests: manifests})
	for name := range clusters {
		w.px.MustServe(t, "team-a", name)
	}
	w.direct, w.through = w.api.HTTPClient(nil), w.px.Client("h1")
	w.direct.Transport.(*http.Transport).ForceAttemptHTTP2 = false // for upgrades
	t.Cleanup(w.direct.CloseIdleConnections)
	t.Cleanup(w.through.CloseIdleConnections)
	w.awaitIssuers(t)
	return w
}

// addKeys gives two issuers the keys that the table signs with.
func addKeys(t *testing.T, basic, costly *oidc.Provider) {
	t.Helper()
	add := func(idp *oidc.Provider, id string, alg jose.SignatureAlgorithm) {
		if err := idp.AddKey(id, alg); err != nil {
			t.Fatal(err)
		}
	}
	for id, alg := range map[string]jose.SignatureAlgorithm{
		"rs384": jose.RS384, "rs512": jose.RS512, "ps256": jose.PS256, "ps384": jose.PS384, "ps512": jose.PS512,
		"es384": jose.ES384, "es512": jose.ES512, "ed": jose.EdDSA,
		"enc": jose.ES256, "ops": jose.ES256, "hidden": jose.ES256,
	} {
		add(basic, id, alg)
	}
	basic.WithdrawKey("hidden")
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	basic.AddSigner("rs1024", jose.RS256, weak)
	// What a JWK says about its use (RFC 7517, sections 4.2 and 4.3).
	basic.SetFault(oidc.Keys, oidc.Fault{Edit: func(document map[string]any) {
		for _, k := range document["keys"].([]any) {
			switch k := k.(map[string]any); k["kid"] {
			case "enc":
				k["use"] = "enc"
			case "ops":
				k["key_ops"] = []string{"deriveKey"}
			}
		}
	}})
	// With E1, the keys for ES256 of which one fits that a token does not name.
	for i := range 8 {
		add(costly, fmt.Sprintf("fit-%d", i+2), jose.ES256)
	}
}

// awaitIssuers waits until the apiserver has the keys of all issuers, which it
// fetches in the background.
func (w *world) awaitIssuers(t *testing.T) {
	t.Helper()
	for config := range w.idps {
		header := goodBearer(w, config).header()
		for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			r := kube.MustWhoAmI(t, w.direct, w.api.URL, header.Clone())
			if r.Code == http.StatusCreated {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the apiserver does not know %s: %d %s\n%s", config, r.Code, r.Status.Message, w.api.Log()[max(0, len(w.api.Log())-3000):])
			}
		}
	}
}

// proxied is the cluster behind the proxy that has a configuration.
func (w *world) proxied(config string) string {
	for name, configs := range clusters {
		if slices.Contains(configs, config) {
			return w.px.ClusterURL("team-a", name)
		}
	}
	panic("no cluster has " + config)
}

// ask says what becomes of a bearer at the apiserver or at the proxy.
func (w *world) ask(t *testing.T, base string, header http.Header) string {
	t.Helper()
	if base == w.api.URL {
		return outcome(kube.MustWhoAmI(t, w.direct, base, header.Clone()))
	}
	r := kube.MustWhoAmI(t, w.through, base, header.Clone())
	switch r.Code {
	case http.StatusCreated:
		r.User = unprefixed(t, r.User)
	case http.StatusUnauthorized:
		if r.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("a 401 without WWW-Authenticate: %v", r.Header)
		}
	}
	return outcome(r)
}
