package keypair

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

func pemBlock(kind string, der []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestKeysOfAllKinds(t *testing.T) { // CERT-3
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := k8stest.ECKey(t)
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return pemBlock("PRIVATE KEY", der, err)
	}
	sec1, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	parameters := pemBlock("EC PARAMETERS", []byte{6, 5, 0x2b, 0x81, 4, 0, 0x22}, nil)
	tests := map[string]struct {
		signer crypto.Signer
		key    []byte
	}{
		"RSA, PKCS #8":       {rsaKey, pkcs8(rsaKey)},
		"RSA, PKCS #1":       {rsaKey, pemBlock("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey), nil)},
		"EC, PKCS #8":        {ec, pkcs8(ec)},
		"EC, SEC 1":          {ec, pemBlock("EC PRIVATE KEY", sec1, nil)},
		"EC with parameters": {ec, append(parameters, pemBlock("EC PRIVATE KEY", sec1, nil)...)},
		"Ed25519":            {edKey, pkcs8(edKey)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pair := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Signer = test.signer })
			got := Parse(pair.Crt, test.key, SecretNames())
			if got.Fault != nil {
				t.Fatal(got.Fault)
			}
			// crypto/tls agrees.
			want, err := tls.X509KeyPair(pair.Crt, test.key)
			if err != nil || !bytes.Equal(want.Certificate[0], got.Certificate.TLS.Certificate[0]) {
				t.Errorf("crypto/tls: %v", err)
			}
			if len(got.Certificate.Fingerprint) != 64 || got.Certificate.TLS.Leaf != got.Leaf {
				t.Errorf("certificate %+v", got.Certificate)
			}
		})
	}
}

func TestPairsThatCannotBeUsed(t *testing.T) { // CERT-3, CERT-6
	good, other := k8stest.Certificate(t), k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Signer = k8stest.ECKey(t) })
	ca := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject.CommonName = "ca"; o.Signer = k8stest.ECKey(t) })
	garbage := []byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")
	usage := func(u ...x509.ExtKeyUsage) k8stest.PemPair {
		return k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Usages = u })
	}
	unknownUsage := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Usages, o.Unknown = nil, true })
	serverAuth, both, anyUsage, none := usage(x509.ExtKeyUsageServerAuth), usage(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth), usage(x509.ExtKeyUsageAny), usage()
	tests := map[string]struct {
		crt, key []byte
		fault    string
		chain    int
		leaf     bool
	}{
		"good":                    {good.Crt, good.Key, "", 1, true},
		"with an intermediate":    {join(good.Crt, ca.Crt), good.Key, "", 2, true},
		"key before certificate":  {join(good.Key, good.Crt), good.Key, "", 1, true},
		"key file with the chain": {good.Crt, join(good.Crt, good.Key), "", 1, true},
		"intermediate first":      {join(ca.Crt, good.Crt), good.Key, SecretNames().otherKey().Error(), 0, true},
		"another's key":           {good.Crt, other.Key, SecretNames().otherKey().Error(), 0, true},
		"no certificate":          {nil, good.Key, "tls.crt holds no PEM certificate", 0, false},
		"no key":                  {good.Crt, nil, SecretNames().noKey().Error(), 0, true},
		"swapped":                 {good.Key, good.Crt, "tls.crt holds no PEM certificate", 0, false},
		"not PEM":                 {[]byte("x"), good.Key, "tls.crt holds no PEM certificate", 0, false},
		"bad DER":                 {garbage, good.Key, "tls.crt holds a certificate that cannot be parsed (number 1)", 0, false},
		"bad intermediate":        {join(good.Crt, garbage), good.Key, "tls.crt holds a certificate that cannot be parsed (number 2)", 0, true},
		"cut short":               {good.Crt[:len(good.Crt)-30], good.Key, "tls.crt holds no PEM certificate", 0, false},
		"half an intermediate":    {join(good.Crt, ca.Crt[:60]), good.Key, "tls.crt holds a certificate whose PEM block is broken", 0, true},
		"bad key":                 {good.Crt, pemBlock("PRIVATE KEY", []byte("x"), nil), SecretNames().noKey().Error(), 0, true},
		"public key":              {good.Crt, pemBlock("PUBLIC KEY", []byte("x"), nil), SecretNames().noKey().Error(), 0, true},
		"encrypted key":           {good.Crt, pemBlock("ENCRYPTED PRIVATE KEY", []byte("x"), nil), SecretNames().noKey().Error(), 0, true},
		"serverAuth only":         {serverAuth.Crt, serverAuth.Key, errClientAuth.Error(), 0, true},
		"an unknown usage only":   {unknownUsage.Crt, unknownUsage.Key, errClientAuth.Error(), 0, true},
		"both usages":             {both.Crt, both.Key, "", 1, true},
		"any usage":               {anyUsage.Crt, anyUsage.Key, "", 1, true},
		"no usage extension":      {none.Crt, none.Key, "", 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Parse(test.crt, test.key, SecretNames())
			fault := ""
			if got.Fault != nil {
				fault = got.Fault.Error()
			}
			if fault != test.fault || (got.Certificate == nil) != (fault != "") || (got.Leaf != nil) != test.leaf {
				t.Fatalf("fault %q, certificate %v, leaf %v; want %q, leaf %v", fault, got.Certificate != nil, got.Leaf != nil, test.fault, test.leaf)
			}
			if got.Certificate != nil && len(got.Certificate.TLS.Certificate) != test.chain {
				t.Errorf("a chain of %d", len(got.Certificate.TLS.Certificate))
			}
		})
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// Whatever a Secret holds, parsing it neither panics nor lets a fault repeat it.
// What is accepted, crypto/tls accepts too.
func FuzzParse(f *testing.F) {
	good := k8stest.Certificate(f)
	f.Add(good.Crt, good.Key)
	f.Add(join(good.Crt, good.Crt[:80]), good.Key)
	f.Add(good.Key, good.Crt)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nsecretsecret\n-----END CERTIFICATE-----"), []byte("-----BEGIN PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, crt, key []byte) {
		p := Parse(crt, key, SecretNames())
		if (p.Certificate == nil) == (p.Fault == nil) {
			t.Fatalf("certificate %v, fault %v", p.Certificate, p.Fault)
		}
		if p.Content != Content(crt, key) {
			t.Fatal("the content is another's")
		}
		if p.Leaf != nil {
			ReservedSubject(p.Leaf)
			ValidityFault(p.Leaf, k8stest.Now)
		}
		if p.Fault != nil {
			if len(p.Fault.Error()) > 120 || strings.ContainsAny(p.Fault.Error(), "\r\n\x00") {
				t.Fatalf("fault %q", p.Fault)
			}
			return
		}
		want, err := tls.X509KeyPair(crt, key)
		if err != nil {
			t.Fatalf("crypto/tls: %v", err)
		}
		if len(want.Certificate) != len(p.Certificate.TLS.Certificate) || !bytes.Equal(want.Certificate[0], p.Leaf.Raw) {
			t.Fatal("crypto/tls reads another chain")
		}
	})
}

// No log and no error can hold a key by printing the value that has it.
func TestCertificatesPrintNoKey(t *testing.T) { // SIG-3
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Signer = key })
	c := Parse(pair.Crt, pair.Key, SecretNames()).Certificate
	holder := struct {
		Pointer *k8swatch.ClientCertificate
		Value   k8swatch.ClientCertificate
	}{c, *c}
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	outputs := []string{string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		outputs = append(outputs, fmt.Sprintf(verb, holder), fmt.Sprintf(verb, c), fmt.Sprintf(verb, *c))
	}
	for _, out := range outputs {
		for _, form := range []string{fmt.Sprint([]byte(key)[:8]), hex.EncodeToString(key[:8]), base64.StdEncoding.EncodeToString(key[:9]), fmt.Sprintf("0x%x, 0x%x", key[0], key[1])} {
			if strings.Contains(out, strings.Trim(form, "[]")) {
				t.Errorf("%s holds the key", out)
			}
		}
		if len(out) > 400 {
			t.Errorf("%d bytes are printed: %.100s", len(out), out)
		}
	}
}
