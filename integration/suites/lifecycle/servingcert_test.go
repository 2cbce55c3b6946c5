package lifecycle

import (
	"crypto/tls"
	"errors"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// ownSite has the certificate of a Secret, for two names. The certificate has one
// of them.
const ownSite = `
https://k8s.test:%{port2}, https://other.test:%{port2} {
	bind 127.0.0.1
	tls {
		get_certificate proxyauth k8s-tls
	}
	respond "served"
}
`

// servingManifest is the Secret of the proxy's own certificate.
func servingManifest(px *proxy.Proxy, serial int64, change func(*corev1.Secret)) string {
	pair := pki.Must(px.CA.Issue(pki.Request{DNSNames: []string{"k8s.test"}, Serial: big.NewInt(serial)}))
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: proxy.Namespace, Name: "k8s-tls"},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{"tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM},
	}
	if change != nil {
		change(s)
	}
	return proxy.Manifests(s)
}

// shake makes a handshake for a name and returns the serial number served.
func shake(px *proxy.Proxy, name string) (int64, error) {
	dialer := &net.Dialer{Timeout: patience}
	conn, err := tls.DialWithDialer(dialer, "tcp", "127.0.0.1:"+px.Value("port2"), &tls.Config{RootCAs: px.CA.Pool(), ServerName: name})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

func waitServed(t *testing.T, px *proxy.Proxy, serial int64) time.Duration {
	t.Helper()
	return eventually(t, "the certificate is served", patience, func() error {
		got, err := shake(px, "k8s.test")
		if err == nil && got != serial {
			err = errors.New("another certificate")
		}
		return err
	})
}

func waitLogged(t *testing.T, px *proxy.Proxy, text string) {
	t.Helper()
	eventually(t, "logged: "+text, patience, func() error {
		b, err := os.ReadFile(px.Value("log"))
		if err == nil && !strings.Contains(string(b), text) {
			err = errors.New("it is not")
		}
		return err
	})
}

// CONF-4: the proxy's own certificate comes from a Secret that may appear
// later, is renewed without a reload under steady handshakes of which none
// fails, and stays when its renewal is broken, also over a reload.
func TestServingCertificate(t *testing.T) {
	t.Parallel()
	px := proxy.Start(t, proxy.Options{LogLevel: "INFO", Sites: ownSite})
	if serial, err := shake(px, "k8s.test"); err == nil {
		t.Fatalf("served %d, from nowhere", serial)
	}
	waitLogged(t, px, "handshakes fail for want of a certificate")

	put := func(content string) {
		t.Helper()
		write(t, px.Directory, "tls.yaml", content)
	}
	put(servingManifest(px, 1, nil))
	waitServed(t, px, 1)
	stop, failures := steadyHandshakes(t, px)

	put(servingManifest(px, 2, nil))
	if took := waitServed(t, px, 2); took > renewal {
		t.Errorf("the renewal was served after %s", took)
	}

	// The key of another certificate, then another type: the last good one stays.
	put(servingManifest(px, 3, func(s *corev1.Secret) { s.Data["tls.key"] = pki.Must(px.CA.Server()).KeyPEM }))
	waitLogged(t, px, "tls.key is not the key of the first certificate in tls.crt")
	waitServed(t, px, 2)
	reload(t, px, nil)
	waitServed(t, px, 2)
	reload(t, px, func(o *proxy.Options) { o.Settings = "token_cache_ttl 20s" }) // another runtime
	waitServed(t, px, 2)
	put(servingManifest(px, 3, func(s *corev1.Secret) {
		s.Data["tls.crt"] = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	}))
	waitLogged(t, px, "holds a certificate that cannot be parsed")
	waitServed(t, px, 2)

	// Deleted, as one does to have cert-manager issue again.
	if err := px.RemoveManifest("tls.yaml"); err != nil {
		t.Fatal(err)
	}
	waitLogged(t, px, "it does not exist")
	waitServed(t, px, 2)
	put(servingManifest(px, 4, nil))
	waitServed(t, px, 4)

	n, serials := stop()
	if err := failures(); err != nil {
		t.Errorf("a handshake failed: %v", err)
	}
	if !slices.Equal(serials, []int64{1, 2, 4}) {
		t.Errorf("%d handshakes, with the serial numbers %d", n, serials)
	}

	// A name that is not in the certificate fails, and no CA is asked for it.
	if serial, err := shake(px, "other.test"); err == nil {
		t.Errorf("served %d for another name", serial)
	}
	log, err := os.ReadFile(px.Value("log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "is not for that name") || strings.Contains(string(log), "obtain") {
		t.Errorf("the log of a handshake for another name:\n%s", log)
	}

	// API-5: it becomes a Secret of the product.
	put(servingManifest(px, 5, func(s *corev1.Secret) { s.Labels = map[string]string{proxy.ManagedByLabel: proxy.ManagedBy} }))
	eventually(t, "a Secret of the product is not served", patience, func() error {
		if _, err := shake(px, "k8s.test"); err == nil {
			return errors.New("it is")
		}
		return nil
	})
}

// steadyHandshakes makes handshakes until stop, which returns how many there
// were and the serial numbers in the order of their first appearance.
func steadyHandshakes(t *testing.T, px *proxy.Proxy) (stop func() (int, []int64), failure func() error) {
	t.Helper()
	var done atomic.Bool
	var mu sync.Mutex
	var wg sync.WaitGroup
	var serials []int64
	var failed error
	total := 0
	for range 4 {
		wg.Go(func() {
			for !done.Load() {
				serial, err := shake(px, "k8s.test")
				mu.Lock()
				total++
				switch {
				case errors.Is(err, syscall.ECONNRESET):
					// A reload of Caddy drops what waits on the listener it
					// closes. A handshake that fails ends with an alert.
				case err != nil:
					failed = errors.Join(failed, err)
				case !slices.Contains(serials, serial):
					serials = append(serials, serial)
				}
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	end := func() { done.Store(true); wg.Wait() }
	t.Cleanup(end)
	return func() (int, []int64) { end(); return total, serials }, func() error { return failed }
}

// A configuration without the app is refused with a message that says so.
func TestServingCertificateNeedsTheApp(t *testing.T) {
	t.Parallel()
	px := proxy.Start(t, proxy.Options{})
	file := t.TempDir() + "/Caddyfile"
	text := px.Expand("{\n\tadmin off\n}\n" + ownSite)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := px.Command(t.Context(), "validate", "--config", file, "--adapter", "caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode == 0 || !strings.Contains(r.Stderr, "get_certificate proxyauth: the global option proxyauth is missing") {
		t.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
	}
}
