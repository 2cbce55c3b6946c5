package k8swatch

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Key names a ProxyKubeApi.
type Key = types.NamespacedName

// Cluster is one ProxyKubeApi with the Secrets it names, as compiled at one
// moment. It is a plain value that is never changed after package compile
// returned it, so that the request path reads it without a lock.
type Cluster struct {
	Key        Key
	UID        types.UID
	Generation int64

	// Enabled is spec.enabled. Requests to a disabled cluster are answered with 404.
	Enabled bool
	// Mode is spec.upstream_auth.mode, Passthrough when absent. It may be a mode
	// that this version does not know; Ready then has that reason.
	Mode v1.UpstreamMode

	// Target is where the apiserver is.
	Target Target
	// DeniedTargets are where no connection to it may lead.
	DeniedTargets *egress.Policy
	// ServerName is the SNI, and the name that the apiserver's certificate must
	// have.
	ServerName string
	// CA verifies the apiserver's certificate; nil means the system roots.
	// A CA that is not known is an empty pool, which verifies nothing (API-6).
	CA *x509.CertPool
	// CAHash is a digest of the CA's certificates, empty for the system
	// roots.
	CAHash string
	// FrontProxy is the certificate that relay and probe present to the apiserver
	// in FrontProxy; nil when there is none that may be presented.
	FrontProxy *ClientCertificate
	// ClientCert is the certificate of spec.client_cert, which the relay presents
	// in Passthrough (CERT-9); nil when there is none, and in any other mode.
	ClientCert *ClientCertificate

	UserPrefix  string
	GroupPrefix string
	ForwardUID  bool

	Auth Auth
	// RequiredGroup is the group a caller must have (ACC-1), empty for none.
	RequiredGroup string

	// Ready is the Ready condition without the trust reasons, which depend on the
	// verdict of the probe (status.EffectiveReady adds them).
	Ready Condition
	// Notices are the conditions that close nothing (REC-6), sorted by type.
	Notices []Condition
	// Preparing says that the object is in Passthrough with at least one
	// non-empty prefix (REC-7).
	Preparing bool
	// Missing lists what would stop FrontProxy while Preparing (REC-7), without
	// the verdict of the probe.
	Missing []Condition

	// TargetKnown says that the apiserver can be asked whether it answers
	// (REC-6): the cluster is enabled, its target and CA are known.
	TargetKnown bool
	// Probe says that the trust of the apiserver can be probed (TRUST-1): the
	// target is known, the cluster is in FrontProxy or preparing, both prefixes are
	// valid and there is a certificate to present.
	Probe bool

	// ClientCertSecret and ClientCertTarget are the Secret of the front-proxy
	// certificate and the target that its annotation must name (REC-3), in
	// FrontProxy and in preparation; empty otherwise.
	ClientCertSecret string
	ClientCertTarget string

	// RecompileAt is when the object must be compiled again though nothing changed,
	// because a certificate expires or begins to be valid; zero for never.
	RecompileAt time.Time
}

// MaxMode bounds what a message repeats of a mode that is not known, in bytes.
const MaxMode = 64

// TargetKind says how a target is reached.
type TargetKind int

// The kinds of target.
const (
	TargetExternal TargetKind = iota + 1
	TargetService
	TargetAgent
)

// Target is where an apiserver is.
type Target struct {
	Kind TargetKind
	// Canonical is the form of CERT-2.
	Canonical string
	// Address is the host:port to dial.
	Address string
	// Host is the Host header (authority) of requests to the apiserver:
	// host, and port where the URL has one.
	Host string
	// BasePath is the path base without a trailing slash, as written
	// (escaped form); empty for none.
	BasePath string
}

// ClientCertificate is a client certificate with its key.
type ClientCertificate struct {
	TLS tls.Certificate
	// Leaf is the parsed certificate.
	Leaf *x509.Certificate
	// Fingerprint is the hex SHA-256 of the leaf's DER form.
	Fingerprint string
}

// Format prints the fingerprint whatever the verb: an Ed25519 key would print
// as its bytes (SIG-3).
func (c ClientCertificate) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "certificate %s", c.Fingerprint)
}

// MarshalJSON writes the fingerprint alone, for loggers that encode values.
func (c ClientCertificate) MarshalJSON() ([]byte, error) { return json.Marshal(c.Fingerprint) }

// Condition is a condition without its time.
type Condition struct {
	Type    string
	Status  string // metav1.ConditionStatus as string: True, False, Unknown
	Reason  string
	Message string
}

// Presented is the certificate that requests present to the apiserver, nil for none:
// in Passthrough never the front-proxy certificate (ID-4).
func (c *Cluster) Presented() *ClientCertificate {
	if c.Mode == v1.ModeFrontProxy {
		return c.FrontProxy
	}
	return c.ClientCert
}
