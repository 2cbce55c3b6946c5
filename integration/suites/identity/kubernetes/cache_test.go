package kubernetes

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// AUTH-12: a thousand requests at once with a new token are one review in the
// apiserver's audit log.
func TestCrowdIsOneReview(t *testing.T) {
	w := get(t)
	token := w.account(t, "default", "crowd")
	const user = "system:serviceaccount:default:crowd"
	px := start(t, "token_cache_ttl 10m", w.cluster("prod"))
	client := px.Client("h2")
	defer client.CloseIdleConnections()
	wantUser(t, askOver(t, client, px, "prod", devToken), "dev") // connects
	var all sync.WaitGroup
	answers := make([]int, 1000)
	for i := range answers {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, px.ClusterURL(ns, "prod")+"/version", nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			answers[i] = resp.StatusCode
		})
	}
	all.Wait()
	for _, code := range answers {
		if code != http.StatusOK {
			t.Fatalf("an answer %d", code)
		}
	}
	if n := reviews(t, w.api, user); n != 1 {
		t.Errorf("%d reviews", n)
	}
}

// AUTH-12: a change of what is asked, or over which connection, drops what was
// remembered, and no other change does. Whatever is remembered ends with its
// configuration: one that comes back, even at once, begins anew.
func TestChangesThatDropTheCache(t *testing.T) {
	w := get(t)
	token := w.account(t, "default", "changes")
	const user = "system:serviceaccount:default:changes"
	another := pki.MustCA("another")
	gate := func(serial int64) *v1.ClientCert {
		pair := pki.Must(another.Client(fmt.Sprint("gate-", serial)))
		half := func(pem []byte) v1.CertSource {
			encoded := base64.StdEncoding.EncodeToString(pem)
			return v1.CertSource{Cert: &encoded}
		}
		return &v1.ClientCert{Cert: half(pair.CertPEM), Key: half(pair.KeyPEM)}
	}
	group, serverName := "system:authenticated", "kubernetes.default.svc"
	bundle := base64.StdEncoding.EncodeToString(pki.Bundle(w.api.PKI.ServerCA, another))

	c := w.cluster("prod")
	px := start(t, "token_cache_ttl 10m", c, w.cluster("other"))
	wantUser(t, ask(t, px, "prod", token), user)
	wantUser(t, ask(t, px, "other", token), user)
	want := 2 // no cluster believes what was found out for another
	for _, tt := range []struct {
		name   string
		change func(*v1.ProxyKubeApiSpec)
		drops  bool
	}{
		{"a group is required", func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = &group }, false},
		{"the target", func(s *v1.ProxyKubeApiSpec) {
			s.Service.ExternalService.URL = strings.Replace(w.api.URL, "127.0.0.1", "localhost", 1)
		}, true},
		{"the CA", func(s *v1.ProxyKubeApiSpec) { s.Cert = &v1.CertSource{Cert: &bundle} }, true},
		{"the server name", func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = serverName }, true},
		{"a client certificate", func(s *v1.ProxyKubeApiSpec) { s.ClientCert = gate(1) }, true},
		{"another client certificate", func(s *v1.ProxyKubeApiSpec) { s.ClientCert = gate(2) }, true},
		{"no client certificate", func(s *v1.ProxyKubeApiSpec) { s.ClientCert, s.TLSServerName = nil, "kubernetes.default" }, true},
		{"back to what it was before, which begins anew", func(s *v1.ProxyKubeApiSpec) { s.TLSServerName = serverName }, true},
		{"auth_config", func(s *v1.ProxyKubeApiSpec) {
			s.AuthConfig.OidcProvider = &v1.OidcProvider{}
		}, true},
		{"no group is required", func(s *v1.ProxyKubeApiSpec) { s.ProxyGroup = nil }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.change(&c.Spec)
			generation := px.MustServe(t, ns, "prod").Status.ObservedGeneration
			px.MustWrite(t, "prod.yaml", c)
			px.MustCluster(t, ns, "prod", func(s *proxy.ClusterStatus) bool {
				return s.Status.ObservedGeneration > generation && s.Ready() == "True/Serving"
			})
			if tt.drops {
				want++
			}
			for range 3 {
				wantUser(t, ask(t, px, "prod", token), user)
				wantUser(t, ask(t, px, "other", token), user)
			}
			if n := reviews(t, w.api, user); n != want {
				t.Fatalf("%d reviews, want %d", n, want)
			}
		})
	}
}

// AUTH-8, AUTH-12: a flood of unknown tokens does not flood the apiserver, gives no
// 401 for a token that was not judged, and shuts out no known caller.
func TestFlood(t *testing.T) {
	w := get(t)
	token := w.account(t, "default", "flooded")
	const user, tokens = "system:serviceaccount:default:flooded", 1500
	px := start(t, "token_cache_ttl 1s", w.cluster("prod"))
	client := px.Client("h2")
	defer client.CloseIdleConnections()
	wantUser(t, askOver(t, client, px, "prod", token), user)

	// More at a time than wait for their turn.
	const workers = 24
	before, began := reviews(t, w.api, ""), time.Now()
	var sent, refused, limited, late atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for i := sent.Add(1); i <= tokens && !t.Failed(); i = sent.Add(1) {
				r, err := kube.WhoAmI(t.Context(), client, px.ClusterURL(ns, "prod"), flooder(i))
				switch {
				case err != nil:
					t.Error(err)
				case r.Code == http.StatusUnauthorized:
					refused.Add(1)
				case r.Code == http.StatusServiceUnavailable && strings.Contains(r.Status.Message, "too many tokens were refused lately"):
					limited.Add(1)
				case r.Code == http.StatusBadGateway && strings.Contains(r.Status.Message, "did not answer in time"):
					late.Add(1) // on a busy machine
				default:
					t.Errorf("%d %s", r.Code, r.Status.Message)
				}
			}
		})
	}
	for sent.Load() < tokens && !t.Failed() {
		wantUser(t, askOver(t, client, px, "prod", token), user)
		time.Sleep(100 * time.Millisecond)
	}
	wait.Wait()
	took := time.Since(began)
	asked := reviews(t, w.api, "") - before
	t.Logf("%d tokens in %v: %d reviews, %d of them refused, %d tokens not asked about, %d too late", tokens, took, asked, refused.Load(), limited.Load(), late.Load())
	// An address may have 500 refused at once and 25 a second, of which 10 wait.
	if most := 510 + 25*(int(took/time.Second)+1); asked > most || asked < int(refused.Load()) || asked > int(refused.Load()+late.Load()) {
		t.Errorf("%d reviews, want %d at most", asked, most)
	}
	if late.Load() == 0 && asked < 500 {
		t.Errorf("%d reviews, want 500 at least", asked)
	}
}

// flooder is the header of an unknown token.
func flooder(i int64) http.Header {
	header := kube.Bearer(fmt.Sprintf("random-token-%d", i))
	header.Set("User-Agent", userAgent)
	return header
}
