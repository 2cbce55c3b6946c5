package keypair

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

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
			pair := k8stest.Certificate(t, func(o *k8stest.CertOptions) { o.Subject = test.subject })
			got, reserved := ReservedSubject(Parse(pair.Crt, pair.Key, SecretNames()).Leaf)
			if got != test.want || reserved != (test.want != "") {
				t.Errorf("%q, %v; want %q", got, reserved, test.want)
			}
		})
	}
}
