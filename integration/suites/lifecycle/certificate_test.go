package lifecycle

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// realWatch is a watch whose events are not numbered.
const realWatch = "/api/v1/namespaces/default/configmaps?watch=1"

var clientAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

// renewal is how soon new connections have a renewed certificate (CERT-8: within
// seconds).
const renewal = 5 * time.Second

// load sends requests from many clients at once until it is stopped.
type load struct {
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	answered atomic.Int64
	// pause is what each client waits after an answer.
	pause  atomic.Int64
	mu     sync.Mutex
	failed []error
}

// startLoad starts clients, half of them on HTTP/1.1, half on HTTP/2, that ask
// again and again.
func startLoad(t *testing.T, px *proxy.Proxy, clients int, one func(ctx context.Context, client *http.Client, n int) error) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	h2 := px.Client("h2")
	t.Cleanup(h2.CloseIdleConnections)
	for n := range clients {
		client := h2
		if n%2 == 0 {
			client = px.Client("h1")
			t.Cleanup(client.CloseIdleConnections)
		}
		l.wg.Go(func() {
			for ctx.Err() == nil {
				err := one(ctx, client, n)
				if ctx.Err() != nil {
					return
				}
				l.answered.Add(1)
				if err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
				time.Sleep(time.Duration(l.pause.Load()))
			}
		})
	}
	return l
}

// stop ends the load; no request may have failed.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if n := len(l.failed); n > 0 {
		t.Errorf("%d of %d requests failed, the first with: %v", n, l.answered.Load(), l.failed[0])
	}
}

// more waits until that many more requests were answered.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	want := l.answered.Load() + n
	eventually(t, fmt.Sprintf("%d more requests are answered", n), 2*patience, func() error {
		if got := l.answered.Load(); got < want {
			return fmt.Errorf("%d are missing", want-got)
		}
		return nil
	})
}

// CERT-8, TLS-01: the certificate is renewed under 100 concurrent requests.
// No request fails. New requests and new upgrades have the new serial within
// seconds, then none has the old one, and streams go on.
func TestTLS01(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"a.yaml": manifest("cluster-a", up, 1, nil)}})
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	url := px.URL + target("cluster-a", getPath)
	l := startLoad(t, px, 100, func(ctx context.Context, client *http.Client, _ int) error { return ask(ctx, client, url) })
	l.more(t, 200)

	for serial := int64(2); serial <= 4; serial++ {
		px.MustWrite(t, "a.yaml", cluster("cluster-a", up, serial, nil)...)
		took := eventually(t, "requests have the new serial", renewal, func() error {
			all := up.Requests()
			if last := all[len(all)-1]; last.Serial.Int64() != serial {
				return fmt.Errorf("the last one has %s", last.Serial)
			}
			return nil
		})
		// What was on its way over the old connections is answered now.
		l.more(t, 300)
		up.Reset()
		l.more(t, 300)
		allAlive(t, streams)
		for _, kind := range []string{spdy, ws} {
			openStream(t, px, "cluster-a", kind).Close()
		}
		seen := map[int64]map[string]int{}
		for _, r := range up.Requests() {
			kind := strings.ToLower(r.Header.Get("Upgrade"))
			if seen[r.Serial.Int64()] == nil {
				seen[r.Serial.Int64()] = map[string]int{}
			}
			seen[r.Serial.Int64()][kind]++
		}
		if got := slices.Collect(maps.Keys(seen)); !slices.Equal(got, []int64{serial}) {
			t.Errorf("serials after the renewal: %v, want %d alone", seen, serial)
		}
		if n := seen[serial]; n[""] == 0 || n["websocket"] != 1 || n["spdy/3.1"] != 1 {
			t.Errorf("requests with serial %d by protocol: %v", serial, n)
		}
		t.Logf("serial %d after %s", serial, took.Round(time.Millisecond))
	}
	l.stop(t)
	closeAll(streams)
	// Retired connections are closed once idle: the new ones remain.
	px.MustServe(t, namespace, "cluster-a")
	eventually(t, "no goroutine is left on retired connections", patience, func() error {
		if n := countGoroutines(t, px, "net/http.(*http2clientConnReadLoop).run"); n > 1 {
			return fmt.Errorf("%d HTTP/2 connections to the apiserver are open", n)
		}
		return nil
	})
	t.Logf("%d requests, three renewals, none failed", l.answered.Load())
}

// CERT-8 on a real apiserver, which looks at the certificate's validity with
// each request: the load and a watch outlive a certificate of a few seconds
// whose renewal comes in time.
func TestCERT8RealApiserver(t *testing.T) {
	t.Parallel()
	api := real.Get(t)[0]
	allow(t, api, "t:alice")
	issue := func(valid time.Duration) *pki.KeyPair {
		return pki.Must(api.PKI.FrontProxyCA.Issue(pki.Request{
			CommonName: kube.FrontProxyName, Usages: clientAuth, NotAfter: time.Now().Add(valid),
		}))
	}
	objects := func(pair *pki.KeyPair) []any {
		return []any{
			proxy.FrontProxyCluster(namespace, "real", api.URL, api.PKI.ServerCA, "t:", proxy.Authenticator(provider())),
			proxy.FrontProxySecret(namespace, "real", api.URL, pair),
		}
	}
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Manifests: map[string]string{"real.yaml": proxy.Manifests(objects(issue(time.Hour))...)}})
	px.MustServe(t, namespace, "real")
	renew := func(pair *pki.KeyPair) {
		px.MustWrite(t, "real.yaml", objects(pair)...)
		px.MustCluster(t, namespace, "real", func(s *proxy.ClusterStatus) bool {
			u := s.Status.UpstreamAuth
			return u != nil && u.ClientCertNotAfter != nil && u.ClientCertNotAfter.Time.Equal(pair.Certificate.NotAfter)
		})
	}

	configMaps := api.client(t).ConfigMaps("default")
	url := px.URL + target("real", "/api/v1/namespaces/default/configmaps?limit=5")
	l := startLoad(t, px, 100, func(ctx context.Context, client *http.Client, _ int) error {
		return askList(ctx, client, url)
	})
	l.more(t, 100)
	// Issued when all that takes long on a busy machine is done.
	first := issue(30 * time.Second)
	renew(first)
	watch := openWatchH2(t, px, target("real", realWatch), "watch of a real apiserver on HTTP/2")
	watchH1 := openWatchH1(t, px, target("real", realWatch), "watch of a real apiserver on HTTP/1.1")
	l.more(t, 100)

	for n := range 2 {
		renewed := issue(time.Hour)
		renew(renewed)
		if n == 0 {
			// From now on the apiserver refuses every request with the first.
			l.pause.Store(int64(time.Second))
			time.Sleep(time.Until(first.Certificate.NotAfter.Add(time.Second)))
			l.pause.Store(0)
			refuses(t, api, first)
		}
		l.more(t, 300)
		name := fmt.Sprintf("renewal-%d", n)
		if _, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*reading{watch, watchH1} {
			eventually(t, "the watch tells of "+name, patience, func() error {
				if lines, fault, err := w.state(); err != nil || fault != "" || !strings.Contains(w.lastLine(), name) {
					return fmt.Errorf("%d events, %v %s", lines, err, fault)
				}
				return nil
			})
		}
	}
	l.stop(t)
	t.Logf("%d requests on a real apiserver, two renewals, none failed", l.answered.Load())
}

// refuses says that an apiserver does not take a certificate any more.
func refuses(t *testing.T, api *apiServer, pair *pki.KeyPair) {
	t.Helper()
	client := api.HTTPClient(pair)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/api/v1/namespaces/default/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Remote-User", "t:alice")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("an expired certificate is answered %s: this test proves nothing", res.Status)
	}
}

// askList sends a GET that must be answered with a list.
func askList(ctx context.Context, client *http.Client, url string) error {
	res, body, err := readAnswer(ctx, client, url)
	if err != nil {
		return err
	}
	var list metav1.TypeMeta
	if err := json.Unmarshal(body, &list); err != nil || res.StatusCode != http.StatusOK || list.Kind != "ConfigMapList" {
		return fmt.Errorf("answered %s: %.300s", res.Status, body)
	}
	return nil
}

// allow lets a user read ConfigMaps everywhere.
func allow(t *testing.T, api *apiServer, users ...string) {
	t.Helper()
	client, err := rbacclient.NewForConfig(api.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range users {
		name := "reads-" + strings.NewReplacer(":", "-", "/", "-").Replace(user)
		_, err = client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (a *apiServer) client(t *testing.T) *coreclient.CoreV1Client {
	t.Helper()
	client, err := coreclient.NewForConfig(a.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// CERT-5: the proxy admin withdraws the certificate: new requests are refused
// at once with the reason, open streams go on, and giving it back opens the
// cluster again.
func TestCERT5(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": proxy.Manifests(cluster("cluster-a", up, 1, nil)[0])}})
	good := func() *corev1.Secret { return cluster("cluster-a", up, 1, nil)[1].(*corev1.Secret) }
	reserved := pki.Must(up.FrontProxyCA.Client(rawserver.FrontProxyName, "system:masters"))
	px.MustWrite(t, "secret.yaml", good())
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	for _, tc := range []struct {
		name   string
		change func(*corev1.Secret) *corev1.Secret
		reason string
	}{
		{"deleted", func(*corev1.Secret) *corev1.Secret { return nil }, "ClientCertMissing"},
		{"label", func(s *corev1.Secret) *corev1.Secret { s.Labels = nil; return s }, "ClientCertMissing"},
		{"type", func(s *corev1.Secret) *corev1.Secret { s.Type = corev1.SecretTypeOpaque; return s }, "ClientCertMissing"},
		{"target", func(s *corev1.Secret) *corev1.Secret {
			s.Annotations[proxy.TargetAnnotation] = "external:https://10.0.0.10:6443"
			return s
		}, "ClientCertTargetMismatch"},
		{"prefix", func(s *corev1.Secret) *corev1.Secret { s.Annotations[proxy.PrefixAnnotation] = "other:"; return s }, "ClientCertTargetMismatch"},
		{"subject", func(s *corev1.Secret) *corev1.Secret {
			s.Data = map[string][]byte{"tls.crt": reserved.CertPEM, "tls.key": reserved.KeyPEM}
			return s
		}, "ClientCertSubjectReserved"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			waitCode(t, px, "cluster-a", 200)
			start := time.Now()
			if secret := tc.change(good()); secret != nil {
				px.MustWrite(t, "secret.yaml", secret)
			} else if err := px.RemoveManifest("secret.yaml"); err != nil {
				t.Fatal(err)
			}
			a := waitCode(t, px, "cluster-a", 503)
			took := time.Since(start)
			if want := "not ready for upstream mode FrontProxy: " + tc.reason; !strings.Contains(a.Body, want) {
				t.Errorf("the answer does not say %q: %s", want, a.Body)
			}
			px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool { return s.Ready() == "False/"+tc.reason })
			up.Reset()
			get(t, px, "cluster-a")
			up.None(t)
			allAlive(t, streams)
			t.Logf("closed after %s", took.Round(time.Millisecond))
			if took > renewal {
				t.Errorf("closed after %s", took)
			}
			px.MustWrite(t, "secret.yaml", good())
			waitCode(t, px, "cluster-a", 200)
		})
	}
	allAlive(t, streams)
}

// CERT-6: contents that cannot be used leave the pair that is held in service,
// with a notice, until it expires; without one the cluster is closed.
func TestCERT6(t *testing.T) {
	t.Parallel()
	up := upstream(t)
	px := proxy.Start(t, proxy.Options{Manifests: map[string]string{"a.yaml": proxy.Manifests(cluster("cluster-a", up, 1, nil)[0])}})
	secret := func(pair *pki.KeyPair) *corev1.Secret {
		return proxy.FrontProxySecret(namespace, "cluster-a", up.URL, pair)
	}
	put := func(s *corev1.Secret) { px.MustWrite(t, "secret.yaml", s) }
	notice := func(present bool) func(*proxy.ClusterStatus) bool {
		return func(s *proxy.ClusterStatus) bool {
			return s.Ready() == "True/Serving" && (s.Condition("ClientCertRenewalFailed") != nil) == present
		}
	}
	other := up.FrontProxy(3)
	broken := map[string]func(*corev1.Secret){
		"key of another pair": func(s *corev1.Secret) { s.Data["tls.key"] = other.KeyPEM },
		"no PEM":              func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("no certificate") },
		"empty":               func(s *corev1.Secret) { s.Data["tls.crt"], s.Data["tls.key"] = nil, nil },
		"expired": func(s *corev1.Secret) {
			p := pki.Must(up.FrontProxyCA.Issue(pki.Request{CommonName: rawserver.FrontProxyName, Usages: clientAuth, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}))
			s.Data = map[string][]byte{"tls.crt": p.CertPEM, "tls.key": p.KeyPEM}
		},
		"not yet valid": func(s *corev1.Secret) {
			p := pki.Must(up.FrontProxyCA.Issue(pki.Request{CommonName: rawserver.FrontProxyName, Usages: clientAuth, NotBefore: time.Now().Add(time.Hour)}))
			s.Data = map[string][]byte{"tls.crt": p.CertPEM, "tls.key": p.KeyPEM}
		},
		"for servers": func(s *corev1.Secret) {
			p := pki.Must(up.FrontProxyCA.Server())
			s.Data = map[string][]byte{"tls.crt": p.CertPEM, "tls.key": p.KeyPEM}
		},
	}
	put(secret(up.FrontProxy(7)))
	px.MustServe(t, namespace, "cluster-a")
	streams := openStreams(t, px, "cluster-a")
	for name, breakIt := range broken {
		t.Run(name, func(t *testing.T) {
			s := secret(up.FrontProxy(8))
			breakIt(s)
			put(s)
			px.MustCluster(t, namespace, "cluster-a", notice(true))
			up.Reset()
			if a := get(t, px, "cluster-a"); a.Code != 200 {
				t.Errorf("answered %d %s", a.Code, a.Body)
			}
			if got := up.Only(t).Serial.Int64(); got != 7 {
				t.Errorf("serial %d, want the one that is held", got)
			}
			allAlive(t, streams)
			put(secret(up.FrontProxy(7)))
			px.MustCluster(t, namespace, "cluster-a", notice(false))
		})
	}
	t.Run("the held pair expires", func(t *testing.T) {
		put(secret(pki.Must(up.FrontProxyCA.Issue(pki.Request{CommonName: rawserver.FrontProxyName, Usages: clientAuth, NotAfter: time.Now().Add(6 * time.Second)}))))
		px.MustCluster(t, namespace, "cluster-a", func(s *proxy.ClusterStatus) bool {
			u := s.Status.UpstreamAuth
			return u != nil && u.ClientCertNotAfter != nil && time.Until(u.ClientCertNotAfter.Time) < time.Minute
		})
		s := secret(up.FrontProxy(8))
		broken["no PEM"](s)
		put(s)
		px.MustCluster(t, namespace, "cluster-a", notice(true))
		if a := get(t, px, "cluster-a"); a.Code != 200 {
			t.Errorf("before it expires: %d %s", a.Code, a.Body)
		}
		a := waitCode(t, px, "cluster-a", 503)
		if !strings.Contains(a.Body, "ClientCertMissing") {
			t.Errorf("after it expired: %s", a.Body)
		}
		allAlive(t, streams)
	})
	t.Run("none is held", func(t *testing.T) {
		s := proxy.FrontProxySecret(namespace, "cluster-n", up.URL, up.FrontProxy(8))
		broken["no PEM"](s)
		px.MustWrite(t, "n.yaml", cluster("cluster-n", up, 1, nil)[0], s)
		a := waitCode(t, px, "cluster-n", 503)
		if !strings.Contains(a.Body, "ClientCertMissing") {
			t.Errorf("%s", a.Body)
		}
	})
}
