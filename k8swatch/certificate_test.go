package k8swatch

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"
)

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

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
	ec := ecKey(t)
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
			pair := certificate(t, func(o *certOptions) { o.signer = test.signer })
			got := parseKeyPair(pair.crt, test.key, secretPair)
			if got.fault != nil {
				t.Fatal(got.fault)
			}
			// crypto/tls agrees.
			want, err := tls.X509KeyPair(pair.crt, test.key)
			if err != nil || !bytes.Equal(want.Certificate[0], got.certificate.TLS.Certificate[0]) {
				t.Errorf("crypto/tls: %v", err)
			}
			if len(got.certificate.Fingerprint) != 64 || got.certificate.TLS.Leaf != got.leaf {
				t.Errorf("certificate %+v", got.certificate)
			}
		})
	}
}

func TestPairsThatCannotBeUsed(t *testing.T) { // CERT-3, CERT-6
	good, other := certificate(t), certificate(t, func(o *certOptions) { o.signer = ecKey(t) })
	ca := certificate(t, func(o *certOptions) { o.subject.CommonName = "ca"; o.signer = ecKey(t) })
	garbage := []byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")
	usage := func(u ...x509.ExtKeyUsage) pemPair {
		return certificate(t, func(o *certOptions) { o.usages = u })
	}
	unknownUsage := certificate(t, func(o *certOptions) { o.usages, o.unknown = nil, true })
	serverAuth, both, anyUsage, none := usage(x509.ExtKeyUsageServerAuth), usage(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth), usage(x509.ExtKeyUsageAny), usage()
	tests := map[string]struct {
		crt, key []byte
		fault    string
		chain    int
		leaf     bool
	}{
		"good":                    {good.crt, good.key, "", 1, true},
		"with an intermediate":    {join(good.crt, ca.crt), good.key, "", 2, true},
		"key before certificate":  {join(good.key, good.crt), good.key, "", 1, true},
		"key file with the chain": {good.crt, join(good.crt, good.key), "", 1, true},
		"intermediate first":      {join(ca.crt, good.crt), good.key, secretPair.otherKey().Error(), 0, true},
		"another's key":           {good.crt, other.key, secretPair.otherKey().Error(), 0, true},
		"no certificate":          {nil, good.key, "tls.crt holds no PEM certificate", 0, false},
		"no key":                  {good.crt, nil, secretPair.noKey().Error(), 0, true},
		"swapped":                 {good.key, good.crt, "tls.crt holds no PEM certificate", 0, false},
		"not PEM":                 {[]byte("x"), good.key, "tls.crt holds no PEM certificate", 0, false},
		"bad DER":                 {garbage, good.key, "tls.crt holds a certificate that cannot be parsed (number 1)", 0, false},
		"bad intermediate":        {join(good.crt, garbage), good.key, "tls.crt holds a certificate that cannot be parsed (number 2)", 0, true},
		"cut short":               {good.crt[:len(good.crt)-30], good.key, "tls.crt holds no PEM certificate", 0, false},
		"half an intermediate":    {join(good.crt, ca.crt[:60]), good.key, "tls.crt holds a certificate whose PEM block is broken", 0, true},
		"bad key":                 {good.crt, pemBlock("PRIVATE KEY", []byte("x"), nil), secretPair.noKey().Error(), 0, true},
		"public key":              {good.crt, pemBlock("PUBLIC KEY", []byte("x"), nil), secretPair.noKey().Error(), 0, true},
		"encrypted key":           {good.crt, pemBlock("ENCRYPTED PRIVATE KEY", []byte("x"), nil), secretPair.noKey().Error(), 0, true},
		"serverAuth only":         {serverAuth.crt, serverAuth.key, errClientAuth.Error(), 0, true},
		"an unknown usage only":   {unknownUsage.crt, unknownUsage.key, errClientAuth.Error(), 0, true},
		"both usages":             {both.crt, both.key, "", 1, true},
		"any usage":               {anyUsage.crt, anyUsage.key, "", 1, true},
		"no usage extension":      {none.crt, none.key, "", 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := parseKeyPair(test.crt, test.key, secretPair)
			fault := ""
			if got.fault != nil {
				fault = got.fault.Error()
			}
			if fault != test.fault || (got.certificate == nil) != (fault != "") || (got.leaf != nil) != test.leaf {
				t.Fatalf("fault %q, certificate %v, leaf %v; want %q, leaf %v", fault, got.certificate != nil, got.leaf != nil, test.fault, test.leaf)
			}
			if got.certificate != nil && len(got.certificate.TLS.Certificate) != test.chain {
				t.Errorf("a chain of %d", len(got.certificate.TLS.Certificate))
			}
		})
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestReservedSubjects(t *testing.T) { // CERT-3
	extra := func(oid asn1.ObjectIdentifier, value string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: oid, Value: value}
	}
	tests := map[string]struct {
		subject pkix.Name
		want    string
	}{
		"plain":               {pkix.Name{CommonName: "front-proxy-a", Organization: []string{"acme"}}, ""},
		"no common name":      {pkix.Name{Organization: []string{"acme"}}, ""},
		"nothing":             {pkix.Name{}, ""},
		"CN":                  {pkix.Name{CommonName: "system:admin"}, "system:admin"},
		"CN, only the prefix": {pkix.Name{CommonName: "system:"}, "system:"},
		"O":                   {pkix.Name{CommonName: "a", Organization: []string{"system:masters"}}, "system:masters"},
		"second O":            {pkix.Name{CommonName: "a", Organization: []string{"acme", "system:masters"}}, "system:masters"},
		"first of two CNs":    {pkix.Name{CommonName: "a", ExtraNames: []pkix.AttributeTypeAndValue{extra(oidCommonName, "system:a"), extra(oidCommonName, "b")}}, "system:a"},
		"last of two CNs":     {pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{extra(oidCommonName, "b"), extra(oidCommonName, "system:a")}}, "system:a"},
		"upper case":          {pkix.Name{CommonName: "System:admin"}, ""},
		"inside":              {pkix.Name{CommonName: "x-system:admin"}, ""},
		"OU":                  {pkix.Name{CommonName: "a", OrganizationalUnit: []string{"system:masters"}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pair := certificate(t, func(o *certOptions) { o.subject = test.subject })
			got, reserved := reservedSubject(parseKeyPair(pair.crt, pair.key, secretPair).leaf)
			if got != test.want || reserved != (test.want != "") {
				t.Errorf("%q, %v; want %q", got, reserved, test.want)
			}
		})
	}
}

func TestExpiringFrom(t *testing.T) { // REC-6
	const day = 24 * time.Hour
	tests := map[string]struct{ lifetime, left time.Duration }{
		"24 h": {day, 8*time.Hour - 10*time.Minute},
		"90 d": {90 * day, 30*day - 10*time.Minute},
		"89 d": {89 * day, 89*day/3 - 10*time.Minute},
		"10 y": {3650 * day, 30*day - 10*time.Minute},
		"1 h":  {time.Hour, 10 * time.Minute},
		"15 m": {15 * time.Minute, -5 * time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cert := &x509.Certificate{NotBefore: testNow, NotAfter: testNow.Add(test.lifetime)}
			if left := cert.NotAfter.Sub(expiringFrom(cert)); left != test.left {
				t.Errorf("told with %v left, want %v", left, test.left)
			}
		})
	}
}

// Whatever a Secret holds, parsing it neither panics nor lets a fault repeat it.
// What is accepted, crypto/tls accepts too.
func FuzzParseKeyPair(f *testing.F) {
	good := certificate(f)
	f.Add(good.crt, good.key)
	f.Add(join(good.crt, good.crt[:80]), good.key)
	f.Add(good.key, good.crt)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nsecretsecret\n-----END CERTIFICATE-----"), []byte("-----BEGIN PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, crt, key []byte) {
		p := parseKeyPair(crt, key, secretPair)
		if (p.certificate == nil) == (p.fault == nil) {
			t.Fatalf("certificate %v, fault %v", p.certificate, p.fault)
		}
		if p.content != pairContent(crt, key) {
			t.Fatal("the content is another's")
		}
		if p.leaf != nil {
			reservedSubject(p.leaf)
			validityFault(p.leaf, testNow)
			expiringFrom(p.leaf)
		}
		if p.fault != nil {
			if len(p.fault.Error()) > 120 || strings.ContainsAny(p.fault.Error(), "\r\n\x00") {
				t.Fatalf("fault %q", p.fault)
			}
			return
		}
		want, err := tls.X509KeyPair(crt, key)
		if err != nil {
			t.Fatalf("crypto/tls: %v", err)
		}
		if len(want.Certificate) != len(p.certificate.TLS.Certificate) || !bytes.Equal(want.Certificate[0], p.leaf.Raw) {
			t.Fatal("crypto/tls reads another chain")
		}
	})
}

func FuzzParseCertificates(f *testing.F) {
	good := certificate(f)
	f.Add(good.crt)
	f.Add(join(good.crt, good.crt, good.key))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, data []byte) {
		certs, err := parseCertificates(data)
		if (len(certs) > 0) == (err != nil) {
			t.Fatalf("%d certificates, %v", len(certs), err)
		}
		if err == nil {
			authorityHash(certs)
		}
	})
}

// No log and no error can hold a key by printing the value that has it.
func TestCertificatesPrintNoKey(t *testing.T) { // SIG-3
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair := certificate(t, func(o *certOptions) { o.signer = key })
	c := parseKeyPair(pair.crt, pair.key, secretPair).certificate
	holder := struct {
		Pointer *ClientCertificate
		Value   ClientCertificate
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
