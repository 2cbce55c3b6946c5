package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/process"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Options shape one apiserver. The zero value is a cluster that trusts its
// aggregation CA and a dedicated front-proxy CA for request headers, uses RBAC
// and audits everything.
type Options struct {
	// APIServer is the program, of whatever version; zero is
	// realtools.KubeAPIServer. AuthenticationConfig needs 1.30 and
	// RequestHeader.UIDHeaders 1.32: an older one ends at once and names the flag
	// that it does not know.
	APIServer realtools.Tool
	// Etcd is shared with other apiservers, each under its own prefix; nil
	// starts one that ends with this apiserver, in the namespaces of Node.
	Etcd *Etcd
	// PKI is shared with other apiservers; nil makes one.
	PKI *PKI
	// RequestHeader replaces the default request-header settings.
	RequestHeader *RequestHeader
	// AuthenticationConfig is the content of an --authentication-config file.
	AuthenticationConfig string
	// OIDC is an issuer in place of AuthenticationConfig, by the flags that every
	// version has. Its first audience counts, and its claims with their prefixes.
	OIDC *v1.JWTAuthenticator
	// DNSNames are further names of the serving certificate. It always has
	// localhost, 127.0.0.1 and kubernetes.default.svc.
	DNSNames []string
	// ExtraArgs come last and so win over the arguments made here.
	ExtraArgs []string
	// Env is added to the environment.
	Env []string
	// Node is set when the cluster has a node and controllers.
	Node *Node
}

// Node is what an apiserver has to know of the machine that it is on.
type Node struct {
	// Address is where pods reach the apiserver.
	Address string
	// Namespaces are those of the machine: etcd and the apiserver start there.
	Namespaces *process.Namespaces
}

func (o *Options) namespaces() *process.Namespaces {
	if o.Node == nil {
		return nil
	}
	return o.Node.Namespaces
}

// address is where clients find the apiserver.
func (o *Options) address() string {
	if o.Node == nil {
		return "127.0.0.1"
	}
	return o.Node.Address
}

// RequestHeader is how the apiserver treats X-Remote-* headers.
type RequestHeader struct {
	// CAs go into one --requestheader-client-ca-file, in this order; with none
	// the flag is left out and no front proxy is trusted.
	CAs []*pki.CA
	// AllowedNames is --requestheader-allowed-names; empty allows every name.
	AllowedNames []string
	// NoGroupHeaders and NoExtraHeaders leave those flags out.
	NoGroupHeaders, NoExtraHeaders bool
	// UIDHeaders adds --requestheader-uid-headers, which is not a default.
	UIDHeaders bool
}

// PKI is the authorities and the service account key of a cluster.
type PKI struct {
	// ServerCA signs the serving certificate.
	ServerCA *pki.CA
	// ClientCA is --client-ca-file: what it signs is an identity.
	ClientCA *pki.CA
	// AggregationCA signs the apiserver's own proxy-client certificate.
	AggregationCA *pki.CA
	// FrontProxyCA is dedicated to this proxy.
	FrontProxyCA *pki.CA
	// ServiceAccount holds the key that signs service account tokens.
	ServiceAccount *pki.KeyPair
}

// ServiceCIDR is where Services get their addresses, the Service kubernetes
// the first one.
const (
	ServiceCIDR    = "10.96.0.0/16"
	serviceAddress = "10.96.0.1"
)

// Names that the default request-header settings allow.
const (
	AggregatorName = "front-proxy-client"
	FrontProxyName = "front-proxy-a"
)

// NewPKI makes all authorities of a cluster.
func NewPKI() (*PKI, error) {
	p := &PKI{}
	for _, ca := range []struct {
		dst  **pki.CA
		name string
	}{{&p.ServerCA, "server-ca"}, {&p.ClientCA, "client-ca"}, {&p.AggregationCA, "aggregation-ca"}, {&p.FrontProxyCA, "proxyauth-front-proxy-ca"}} {
		made, err := pki.NewCA(ca.name)
		if err != nil {
			return nil, err
		}
		*ca.dst = made
	}
	var err error
	p.ServiceAccount, err = p.ServerCA.Issue(pki.Request{CommonName: "service-account"})
	return p, err
}

// DefaultRequestHeader trusts both the aggregation CA and the dedicated
// front-proxy CA, from one file, for the two names they are used with.
func (p *PKI) DefaultRequestHeader() *RequestHeader {
	return &RequestHeader{
		CAs:          []*pki.CA{p.AggregationCA, p.FrontProxyCA},
		AllowedNames: []string{AggregatorName, FrontProxyName},
	}
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// layout is the files of one apiserver.
type layout struct{ dir, audit, kubeconfig string }

func (l layout) path(name string) string { return filepath.Join(l.dir, name) }

// writeFiles writes what the arguments name and returns the arguments that do
// not depend on the port.
func (l layout) writeFiles(o Options) ([]string, error) {
	files := map[string][]byte{
		"client-ca.crt":  o.PKI.ClientCA.PEM,
		"sa.key":         o.PKI.ServiceAccount.KeyPEM,
		"sa.crt":         o.PKI.ServiceAccount.CertPEM,
		"audit.yaml":     []byte(auditPolicy),
		"audit.log":      nil,
		"front-proxy.ca": pki.Bundle(o.RequestHeader.CAs...),
		"authn.yaml":     []byte(o.AuthenticationConfig),
	}
	for name, content := range files {
		if err := os.WriteFile(l.path(name), content, 0o600); err != nil {
			return nil, fmt.Errorf("writing the files of the apiserver: %w", err)
		}
	}
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", serviceAddress}
	if o.Node != nil {
		names = append(names, o.Node.Address)
	}
	serving, err := o.PKI.ServerCA.Server(append(names, o.DNSNames...)...)
	if err != nil {
		return nil, err
	}
	if _, _, err := serving.WriteFiles(l.dir, "serving"); err != nil {
		return nil, err
	}
	aggregator, err := o.PKI.AggregationCA.Client(AggregatorName)
	if err != nil {
		return nil, err
	}
	if _, _, err := aggregator.WriteFiles(l.dir, "aggregator"); err != nil {
		return nil, err
	}
	args := []string{
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--cert-dir=" + l.dir,
		"--tls-cert-file=" + l.path("serving.crt"), "--tls-private-key-file=" + l.path("serving.key"),
		"--client-ca-file=" + l.path("client-ca.crt"),
		"--proxy-client-cert-file=" + l.path("aggregator.crt"), "--proxy-client-key-file=" + l.path("aggregator.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.path("sa.crt"), "--service-account-signing-key-file=" + l.path("sa.key"),
		"--audit-policy-file=" + l.path("audit.yaml"), "--audit-log-path=" + l.audit,
		"--audit-log-mode=blocking",
	}
	placement, err := l.placementArgs(o)
	if err != nil {
		return nil, err
	}
	args = append(args, placement...)
	args = append(args, o.RequestHeader.args(l.path("front-proxy.ca"))...)
	if o.AuthenticationConfig != "" {
		args = append(args, "--authentication-config="+l.path("authn.yaml"))
	}
	if o.OIDC == nil {
		return args, nil
	}
	oidc, err := l.oidcArgs(o.OIDC)
	return append(args, oidc...), err
}

// placementArgs depend on whether there is a node.
func (l layout) placementArgs(o Options) ([]string, error) {
	if o.Node == nil {
		return []string{
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
			// A loopback address is no valid endpoint of the Service kubernetes.
			"--endpoint-reconciler-type=none",
			"--authorization-mode=RBAC",
			// No controller makes the default ServiceAccount that it demands.
			"--disable-admission-plugins=ServiceAccount",
		}, nil
	}
	client, err := o.PKI.ClientCA.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, err
	}
	cert, key, err := client.WriteFiles(l.dir, "kubelet-client")
	if err != nil {
		return nil, err
	}
	return []string{
		"--bind-address=0.0.0.0", "--advertise-address=" + o.Node.Address,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + cert, "--kubelet-client-key=" + key,
		"--kubelet-preferred-address-types=InternalIP",
	}, nil
}

func (h *RequestHeader) args(caFile string) []string {
	if len(h.CAs) == 0 {
		return nil
	}
	args := []string{
		"--requestheader-client-ca-file=" + caFile,
		"--requestheader-username-headers=X-Remote-User",
	}
	if len(h.AllowedNames) > 0 {
		args = append(args, "--requestheader-allowed-names="+strings.Join(h.AllowedNames, ","))
	}
	if !h.NoGroupHeaders {
		args = append(args, "--requestheader-group-headers=X-Remote-Group")
	}
	if !h.NoExtraHeaders {
		args = append(args, "--requestheader-extra-headers-prefix=X-Remote-Extra-")
	}
	if h.UIDHeaders {
		args = append(args, "--requestheader-uid-headers=X-Remote-Uid")
	}
	return args
}
