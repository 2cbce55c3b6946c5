package differential

import (
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
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
	var jwt []v1.JWTAuthenticator
	for _, name := range configs {
		w.idps[name] = oidc.Start(t, oidc.Options{CA: ca})
		jwt = append(jwt, authenticator(name, w.idps[name]))
	}
	for id, alg := range keys {
		if err := w.idps[basic].AddKey(id, alg); err != nil {
			t.Fatal(err)
		}
	}
	w.claims = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.fetched.Add(1)
		idp := w.idps[basic]
		_, _ = io.WriteString(rw, idp.Mint(idp.Claims(oidc.Alice, map[string]any{"groups": []string{"fetched"}}), oidc.Sign{}))
	}))
	w.claims.TLS = &tls.Config{Certificates: []tls.Certificate{pki.Must(ca.Server()).TLS()}}
	w.claims.StartTLS()
	t.Cleanup(w.claims.Close)

	authorities, err := kube.NewPKI()
	if err != nil {
		t.Fatal(err)
	}
	header := authorities.DefaultRequestHeader()
	header.UIDHeaders = true
	w.api = kube.Start(t, kube.Options{PKI: authorities, RequestHeader: header, AuthenticationConfig: kube.AuthenticationConfig(jwt...)})
	cluster := proxy.FrontProxyCluster("team-a", "prod", w.api.URL, authorities.ServerCA, forwarded, jwt...)
	cluster.Spec.UpstreamAuth.ForwardUID = true
	w.px = proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"prod.yaml": proxy.Manifests(cluster, proxy.FrontProxySecret("team-a", "prod", w.api.URL, pki.Must(w.api.FrontProxy()))),
	}})
	w.px.MustServe(t, "team-a", "prod")
	w.direct, w.through = w.api.HTTPClient(nil), w.px.Client("h1")
	t.Cleanup(w.direct.CloseIdleConnections)
	t.Cleanup(w.through.CloseIdleConnections)
	w.awaitIssuers(t)
	return w
}

// awaitIssuers waits until the apiserver has the keys of all issuers, which it
// fetches in the background.
func (w *world) awaitIssuers(t *testing.T) {
	t.Helper()
	for _, name := range configs {
		idp := w.idps[name]
		token := idp.Token(oidc.Alice, good[name])
		for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			r := kube.MustWhoAmI(t, w.direct, w.api.URL, kube.Bearer(token))
			if r.Code == http.StatusCreated {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the apiserver does not know %s: %d %s\n%s", name, r.Code, r.Status.Message, w.api.Log()[max(0, len(w.api.Log())-3000):])
			}
		}
	}
}

func TestAgainstApiserver(t *testing.T) {
	w := newWorld(t)
	t.Run("AUTH-4, AUTH-10, AUTH-11 verdicts", w.verdicts)
	t.Run("AUTH-5 key fetches", w.keyFetches)
	t.Run("AUTH-13 provider away", w.providerAway)
}

// verdicts: the proxy takes a bearer for the same user as a kube-apiserver with
// the same jwt, but for what the table says.
func (w *world) verdicts(t *testing.T) {
	all := cases(w)
	differences := 0
	for _, c := range all {
		t.Run(c.config+": "+c.name, func(t *testing.T) { w.compare(t, &c) })
		if c.why != "" {
			differences++
		}
	}
	t.Logf("%d bearers: %d alike, %d different on purpose", len(all), len(all)-differences, differences)
	for _, c := range all {
		if c.why != "" {
			t.Logf("%-45s apiserver: %-45.45q proxy: %-45.45q %s", c.config+": "+c.name, c.apiserver, c.proxy, c.why)
		}
	}
}

func (w *world) compare(t *testing.T, c *testCase) {
	header := c.header(w)
	got := w.ask(t, w.api.URL, header)
	if c.patient {
		for deadline := time.Now().Add(20 * time.Second); got != c.apiserver && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			got = w.ask(t, w.api.URL, header)
		}
	}
	if got != c.apiserver {
		t.Errorf("the apiserver: %q, want %q", got, c.apiserver)
	}
	fetched := w.fetched.Load()
	want := c.apiserver
	if c.why != "" {
		want = c.proxy
		if want == c.apiserver {
			t.Errorf("no difference, but a reason: %s", c.why)
		}
	}
	if got := w.ask(t, w.proxied(), header); got != want {
		t.Errorf("the proxy: %q, want %q", got, want)
	}
	if n := w.fetched.Load() - fetched; n > 0 {
		t.Errorf("the proxy fetched a URL that the token names")
	}
}

// proxied is the cluster behind the proxy.
func (w *world) proxied() string { return w.px.ClusterURL("team-a", "prod") }

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

// keyFetches: who signs with another key makes the apiserver fetch the keys
// for each token, and the proxy once a minute; who changes a signature makes
// the apiserver fetch, and the proxy not at all.
func (w *world) keyFetches(t *testing.T) {
	idp := w.idps[prefixes]
	tests := []struct {
		name             string
		token            func() string
		apiserver, proxy int // fetches for ten tokens
	}{
		{"known key, changed signature", func() string { return oidc.FlipSignatureBit(idp.Token(oidc.Alice, nil)) }, 10, 0},
		{"unknown key", func() string { return idp.EmbeddedKey(idp.Claims(oidc.Alice, nil)) }, 10, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fetches := func(base string) int {
				before := idp.Calls(oidc.Keys)
				for range 10 {
					if got := w.ask(t, base, kube.Bearer(tt.token())); got != "401" {
						t.Errorf("%s: %s", base, got)
					}
				}
				return idp.Calls(oidc.Keys) - before
			}
			apiserver, proxied := fetches(w.api.URL), fetches(w.proxied())
			if apiserver != tt.apiserver || proxied != tt.proxy {
				t.Errorf("fetches: %d by the apiserver, %d by the proxy, want %d and %d", apiserver, proxied, tt.apiserver, tt.proxy)
			}
		})
	}
}

// providerAway: tokens of known keys are good at both while the provider is
// away. One that only the provider could judge is a 401 of the apiserver and a
// 503 of the proxy.
func (w *world) providerAway(t *testing.T) {
	idp := w.idps[email]
	known := kube.Bearer(idp.Token(oidc.Alice, map[string]any{"jti": nil}))
	if err := idp.AddKey("late", jose.ES256); err != nil {
		t.Fatal(err)
	}
	late := kube.Bearer(idp.Mint(idp.Claims(oidc.Alice, map[string]any{"jti": nil}), oidc.Sign{KeyID: "late"}))
	idp.Suspend()
	const alice = "alice@example.test [team-a|a,b]"
	for _, tt := range []struct {
		name             string
		header           http.Header
		apiserver, proxy string
	}{
		{"known key", known, alice, alice},
		{"unknown key", late, "401", "503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.ask(t, w.api.URL, tt.header); got != tt.apiserver {
				t.Errorf("the apiserver: %s, want %s", got, tt.apiserver)
			}
			if got := w.ask(t, w.proxied(), tt.header); got != tt.proxy {
				t.Errorf("the proxy: %s, want %s", got, tt.proxy)
			}
		})
	}
}

// testCase is a bearer and what becomes of it. proxy and why are empty where
// the two agree.
type testCase struct {
	config, name string
	// claims are changes of the configuration's good token; jti is left out
	// unless it is among them.
	claims map[string]any
	sign   oidc.Sign
	// lines make the Authorization header; nil is one good line.
	lines func(token string) []string
	// token replaces the token.
	token     func(idp *oidc.Provider, claims map[string]any) string
	apiserver string
	proxy     string
	why       string
	// patient asks the apiserver again: it prepares something first.
	patient bool
}

func (c *testCase) header(w *world) http.Header {
	idp := w.idps[c.config]
	changes := map[string]any{"jti": nil}
	for _, more := range []map[string]any{good[c.config], c.claims} {
		maps.Copy(changes, more)
	}
	claims := idp.Claims(oidc.Alice, changes)
	token := ""
	if c.token != nil {
		token = c.token(idp, claims)
	} else {
		token = idp.Mint(claims, c.sign)
	}
	lines := []string{"Bearer " + token}
	if c.lines != nil {
		lines = c.lines(token)
	}
	return http.Header{"Authorization": lines}
}
