package caddymodule

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// writeServingSecret makes a certificate for these names in a directory.
func writeServingSecret(t *testing.T, dir string, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"metadata": map[string]any{"name": "k8s-tls", "namespace": "proxyauth"},
		"stringData": map[string]string{
			"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.json"), manifest, 0o644); err != nil {
		t.Fatal(err)
	}
}

// loadGetter runs a configuration with a certificate manager, with a directory
// as its source, and returns the manager.
func loadGetter(t *testing.T, directory, settings string) *CertGetter {
	t.Helper()
	config := fmt.Sprintf(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {"proxyauth": {"directory": %q%s}}
	}`, directory, settings)
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
	ctx := caddy.ActiveContext()
	module, err := ctx.LoadModuleByID("tls.get_certificate.proxyauth", json.RawMessage(`{"secret": "k8s-tls"}`))
	if err != nil {
		t.Fatal(err)
	}
	return module.(*CertGetter)
}

// CONF-4: the certificate is served for the names in it, and to clients that
// send none. A name that is not in it is an error and never "not mine", on which
// certmagic would ask a CA.
func TestCertGetterNames(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	dir := t.TempDir()
	writeServingSecret(t, dir, "*.k8s.example.com", "k8s.example.com")
	getter := loadGetter(t, dir, "")
	for name, says := range map[string]string{
		"":                       "",
		"k8s.example.com":        "",
		"a.k8s.example.com":      "",
		"A.K8S.example.com":      "",
		"a.b.k8s.example.com":    "is not for that name",
		"example.com":            "is not for that name",
		"k8s.example.com.evil":   "is not for that name",
		"\n" + "k8s.example.com": "is not for that name",
	} {
		cert, err := getter.GetCertificate(t.Context(), &tls.ClientHelloInfo{ServerName: name})
		switch {
		case says == "" && (err != nil || cert == nil || cert.Leaf == nil):
			t.Errorf("%q: %v, %v", name, cert, err)
		case says != "" && (cert != nil || err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%q: %v, %v", name, cert, err)
		}
	}
}

// The last good certificate outlives a reload with other options and another
// directory, and nothing is left when no configuration uses it.
func TestCertGetterReload(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	dir := t.TempDir()
	writeServingSecret(t, dir, "k8s.example.com")
	hello := &tls.ClientHelloInfo{ServerName: "k8s.example.com"}
	first, err := loadGetter(t, dir, "").GetCertificate(t.Context(), hello)
	if err != nil {
		t.Fatal(err)
	}
	// The context of the first configuration ends with the reload, and with it
	// the first manager: the second has to be there before, as in a reload.
	empty := t.TempDir()
	held, err := process.Current().ServeCertificate("k8s-tls")
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadGetter(t, empty, `, "token_cache_ttl": "20s"`).GetCertificate(t.Context(), hello)
	if err != nil || second != first {
		t.Errorf("%v, %v", second, err)
	}
	held.Release()
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := process.Certificates(); n != 0 {
		t.Errorf("%d certificates are still in use", n)
	}
}

func TestCertGetterProvision(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	for config, says := range map[string]string{
		`{"secret": "k8s-tls"}`: "the global option proxyauth is missing",
		`{}`:                    "the Secret's name",
		`{"secret": "` + k8swatch.FrontProxySecretPrefix + `a.b"}`: "belongs to the product",
	} {
		_, err := ctx.LoadModuleByID("tls.get_certificate.proxyauth", json.RawMessage(config))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", config, err)
		}
	}
}
