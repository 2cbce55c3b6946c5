package keypair

import (
	"crypto/x509"
	"encoding/asn1"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

var (
	oidCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
)

// ReservedSubject returns the first common name or organization that starts
// with "system:". Every one counts, not only the last CN that Go calls the
// common name: another reader may take the first. No common name at all is
// allowed: whether an apiserver takes it is a matter of its
// --requestheader-allowed-names, and the probe tells.
func ReservedSubject(cert *x509.Certificate) (string, bool) {
	for _, name := range cert.Subject.Names {
		if !name.Type.Equal(oidCommonName) && !name.Type.Equal(oidOrganization) {
			continue
		}
		if value, ok := name.Value.(string); ok && strings.HasPrefix(value, k8swatch.ReservedPrefix) {
			return value, true
		}
	}
	return "", false
}
