package keypair

import (
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func FuzzParseCertificates(f *testing.F) {
	good := k8stest.Certificate(f)
	f.Add(good.Crt)
	f.Add(join(good.Crt, good.Crt, good.Key))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, data []byte) {
		certs, err := ParseCertificates(data)
		if (len(certs) > 0) == (err != nil) {
			t.Fatalf("%d certificates, %v", len(certs), err)
		}
	})
}
