package clientcert

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

const (
	namespace = "team-a"
	name      = "prod"
	// probeAgent is how the proxy's own requests call themselves.
	probeAgent = "proxyauth-probe"
)

// manifests is a cluster in Passthrough that presents pair to the server at
// url, from a Secret; nil presents none.
func manifests(idp *oidc.Provider, url string, ca *pki.CA, pair *pki.KeyPair) string {
	c := proxy.Cluster(namespace, name, url, ca)
	c.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []v1.JWTAuthenticator{proxy.Authenticator(idp)}}
	if pair == nil {
		return proxy.Manifests(c)
	}
	half := func(key string) v1.CertSource {
		return v1.CertSource{Secret: &v1.KeyReference{Name: "mtls", Key: key}}
	}
	c.Spec.ClientCert = &v1.ClientCert{Cert: half("tls.crt"), Key: half("tls.key")}
	return proxy.Manifests(c, proxy.Secret(namespace, "mtls", map[string]string{"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM)}))
}

// start starts a proxy for one such cluster and waits until it is known.
func start(t *testing.T, settings, objects string) *proxy.Proxy {
	t.Helper()
	px := proxy.Start(t, proxy.Options{Settings: settings, Manifests: map[string]string{"prod.yaml": objects}})
	px.MustCluster(t, namespace, name, func(*proxy.ClusterStatus) bool { return true })
	return px
}

// ask sends one review and returns its code, the user that the server saw, and the
// message of a refusal.
func ask(t *testing.T, px *proxy.Proxy, token string) *kube.Review {
	t.Helper()
	client := px.Client("h2")
	defer client.CloseIdleConnections()
	header := kube.Bearer(token)
	header.Set("User-Agent", "user")
	return kube.MustWhoAmI(t, client, px.ClusterURL(namespace, name), header)
}

// crowd sends n requests at once and returns the answers, which may be no
// reviews.
func crowd(t *testing.T, px *proxy.Proxy, token string, n int) []*kube.Review {
	t.Helper()
	answers := make([]*kube.Review, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i] = ask(t, px, token) })
	}
	all.Wait()
	return answers
}

func wantClosed(t *testing.T, r *kube.Review, reason string) {
	t.Helper()
	if r.Code != http.StatusServiceUnavailable || r.Status.Message != "this cluster is not ready: "+reason || r.Header.Get("Retry-After") != "" {
		t.Fatalf("%d %q, want 503 %s", r.Code, r.Status.Message, reason)
	}
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s", what)
		}
	}
}

// fake is a TLS server in place of an apiserver.
type fake struct {
	url string
	ca  *pki.CA

	mu sync.Mutex
	// The code of a review without Authorization, or the user that it names.
	code int
	user string
	// checks is when these came, users how many others, serials whose
	// certificates these had.
	checks  []time.Time
	users   int
	serials []string
}

// newFake serves with a certificate of its own CA; demands is the CA whose
// certificates are let in, nil for all clients.
func newFake(t *testing.T, code int, demands *pki.CA) *fake {
	t.Helper()
	f := &fake{ca: pki.MustCA("fake"), code: code}
	s := httptest.NewUnstartedServer(f)
	s.EnableHTTP2 = true
	serving := pki.Must(f.ca.Server()).TLS()
	s.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12}
	if demands != nil {
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, demands.Pool()
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

func (f *fake) set(code int, user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.code, f.user = code, user
}

func (f *fake) seen() (checks []time.Time, users int, serials []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.checks...), f.users, append([]string(nil), f.serials...)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	code, user := f.code, f.user
	switch {
	case r.Header.Get("Authorization") != "":
		f.users++
		if len(r.TLS.PeerCertificates) > 0 {
			f.serials = append(f.serials, r.TLS.PeerCertificates[0].SerialNumber.String())
		}
		code, user = http.StatusCreated, "alice"
	case strings.HasSuffix(r.URL.Path, "/version"):
	default:
		f.checks = append(f.checks, time.Now())
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
		"status": map[string]any{"userInfo": map[string]any{"username": user}},
	})
}

func newIDP(t *testing.T) *oidc.Provider {
	t.Helper()
	idp, err := oidc.New(oidc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { idp.Stop() })
	return idp
}

// printed is the status that `caddy proxyauth status -o json` prints.
func printed(t *testing.T, px *proxy.Proxy) *proxy.ClusterStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := px.Command(ctx, "proxyauth", "status", "-o", "json", "--address", px.Admin)
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%v %+v", err, r)
	}
	var list []proxy.ClusterStatus
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v in %s", err, r.Stdout)
	}
	return &list[0]
}
