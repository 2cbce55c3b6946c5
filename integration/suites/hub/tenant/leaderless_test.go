package tenant

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/hub"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// foreignLease is held by a program that never gives it up.
func foreignLease() *coordinationv1.Lease {
	holder, seconds, now := "somebody-else", int32(3600), metav1.NowMicro()
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: "proxyauthk8s"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
}

// identityName is the CN of a certificate that the apiserver takes for a user.
const identityName = "somebody"

// TRUST-3, CERT-9: without a leader that probes on schedule, a replica finds out
// itself what it may serve. No request, from the first moment on, runs under the
// name in a certificate.
func TestNoLeaderAndNoRequestAsACertificate(t *testing.T) {
	t.Parallel()
	etcd := kube.StartSharedEtcd(t)
	w := &world{T: t, idp: oidc.Start(t, oidc.Options{})}
	w.hub = hub.Start(t, kube.Options{Etcd: etcd})
	w.addTenant(t)
	target := kube.Start(t, kube.Options{Etcd: etcd})
	w.token = w.idp.Token(oidc.Alice, nil)
	slow := w.slowPipe(target.Host, time.Second)

	good := pki.Must(target.FrontProxy())
	// The name is one that may assert identities, but --client-ca-file makes it
	// an identity of its own.
	reserved := pki.Must(target.PKI.ClientCA.Client(kube.FrontProxyName))
	mtls := pki.Must(target.PKI.ClientCA.Client(identityName))
	inFrontProxy := func(name, url string, pair *pki.KeyPair) []any {
		return []any{proxy.FrontProxySecret(mine, name, url, pair),
			proxy.FrontProxyCluster(mine, name, url, target.PKI.ServerCA, prefix, proxy.Authenticator(w.idp))}
	}
	inPassthrough := func(name, url string, pair *pki.KeyPair) []any {
		c := proxy.FrontProxyCluster(mine, name, url, target.PKI.ServerCA, prefix, proxy.Authenticator(w.idp))
		c.Spec.UpstreamAuth = nil
		c.Spec.ClientCert = &v1.ClientCert{Cert: v1.CertSource{Secret: keyRef("", name, "tls.crt")}, Key: v1.CertSource{Secret: keyRef("", name, "tls.key")}}
		return []any{proxy.Secret(mine, name, map[string]string{"tls.crt": string(pair.CertPEM), "tls.key": string(pair.KeyPEM)}), c}
	}
	w.apply(foreignLease())
	w.apply(inFrontProxy("good", target.URL, good)...)
	w.apply(inFrontProxy("good-slow", slow, good)...)
	w.apply(inFrontProxy("front", target.URL, reserved)...)
	w.apply(inFrontProxy("front-slow", slow, reserved)...)
	w.apply(inPassthrough("mtls", target.URL, mtls)...)
	w.apply(inPassthrough("mtls-slow", slow, mtls)...)

	w.px = proxy.Start(t, proxy.Options{Hub: w.hub.Kubeconfig, Settings: "probe_interval 1s"})
	names := []string{"good", "good-slow", "front", "front-slow", "mtls", "mtls-slow", "front-new", "mtls-new", "front-new-slow"}
	asked := w.pour(names)
	w.apply(inFrontProxy("front-new", target.URL, reserved)...)
	w.apply(inPassthrough("mtls-new", target.URL, mtls)...)
	w.apply(inFrontProxy("front-new-slow", slow, reserved)...)
	for _, name := range []string{"good", "good-slow"} {
		w.answers(mine, name, http.StatusCreated, "")
	}
	for _, name := range []string{"front", "front-slow", "front-new", "front-new-slow"} {
		w.answers(mine, name, http.StatusServiceUnavailable, notReady+"UpstreamIdentityNotHonoured")
	}
	for _, name := range []string{"mtls", "mtls-slow", "mtls-new"} {
		w.answers(mine, name, http.StatusServiceUnavailable, passing+"ClientCertIsIdentity")
	}
	// Renewed with a certificate that is an identity, and back, under load.
	for range 2 {
		w.apply(inFrontProxy("good", target.URL, reserved)...)
		w.answers(mine, "good", http.StatusServiceUnavailable, notReady+"UpstreamIdentityNotHonoured")
		w.apply(inFrontProxy("good", target.URL, good)...)
		w.answers(mine, "good", http.StatusCreated, "")
	}
	if n := asked(); n < 50 {
		t.Errorf("only %d requests", n)
	}
	events, err := target.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]int{}
	for _, e := range events {
		if e.Stage != auditv1.StageResponseComplete {
			continue
		}
		ours := e.UserAgent == "proxyauth-probe" && (e.RequestURI == kube.ReviewPath || e.RequestURI == "/version")
		users[e.User.Username]++
		if name := e.User.Username; !ours && (name == identityName || name == kube.FrontProxyName) {
			t.Errorf("%s %s as %s (%s)", e.Verb, e.RequestURI, name, e.UserAgent)
		}
	}
	if users[prefix+oidc.Alice] == 0 || users[identityName] == 0 || users[kube.FrontProxyName] == 0 {
		t.Errorf("the audit log knows %v", users)
	}
	if n := w.hub.StatusWrites(t, ""); n > 0 {
		t.Errorf("%d statuses were written by one that does not lead", n)
	}
	if holder := w.hub.Admin.MustRun(t, "get", "lease", "-n", hubNamespace, "proxyauthk8s", "-o", "jsonpath={.spec.holderIdentity}").Stdout; holder != "somebody-else" {
		t.Errorf("the Lease is held by %q", holder)
	}
	w.hub.MustNotHaveBeenForbidden(t)
}

// pour sends requests to clusters from now on. What it returns ends that, and
// says how many there were.
func (w *world) pour(names []string) (stop func() int) {
	done := make(chan struct{})
	var requests atomic.Int64
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			client := w.px.Client("h2")
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
				r, err := kube.WhoAmI(w.Context(), client, w.px.ClusterURL(mine, name), kube.Bearer(w.token))
				requests.Add(1)
				switch {
				case err != nil:
					w.Errorf("%s: %v", name, err)
					return
				case r.Code == http.StatusCreated && (r.User.Username != prefix+oidc.Alice || !strings.HasPrefix(name, "good")):
					w.Errorf("%s: as %q", name, r.User.Username)
				case r.Code != http.StatusCreated && r.Code != http.StatusServiceUnavailable && r.Code != http.StatusNotFound:
					w.Errorf("%s: %d %q", name, r.Code, r.Status.Message)
				}
			}
		})
	}
	end := sync.OnceFunc(func() { close(done); all.Wait() })
	w.Cleanup(end)
	return func() int {
		end()
		return int(requests.Load())
	}
}

// slowPipe leads to an address, each connection a while after it was made.
func (w *world) slowPipe(target string, delay time.Duration) (url string) {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	var flows sync.WaitGroup
	ended := w.Context()
	flows.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			flows.Go(func() {
				defer client.Close()
				time.Sleep(delay)
				server, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer server.Close()
				for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
					flows.Go(func() {
						_, _ = io.Copy(ends[0], ends[1])
						ends[0].Close()
						ends[1].Close()
					})
				}
				<-ended.Done()
			})
		}
	})
	w.Cleanup(func() { l.Close(); flows.Wait() })
	return "https://" + l.Addr().String()
}
