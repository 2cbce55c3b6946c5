package k8swatch

import (
	"strings"
)

// Names that the proxy admin writes on Secrets in the proxy's namespace.
const (
	// FrontProxySecretPrefix and "<namespace>.<name>" of the ProxyKubeApi
	// name the Secret of its front-proxy certificate (CERT-1).
	FrontProxySecretPrefix = "proxyauth-frontproxy-"
	// AgentSecretPrefix and "<namespace>.<agent>" name the Secret of an
	// agent's credential (TUN-3).
	AgentSecretPrefix = "proxyauth-agent-"

	// ManagedByLabel and ManagedByValue mark the Secrets of the product:
	// without it a Secret is no front-proxy certificate (CERT-1), with it
	// no object can refer to it (API-5).
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "proxyauthk8s"

	// FrontProxyTargetAnnotation holds the canonical target a front-proxy
	// certificate may be presented to (CERT-2).
	FrontProxyTargetAnnotation = "proxyauth.weebo.si.rs/front-proxy-target"
	// FrontProxyPrefixAnnotation, where present, must equal both prefixes
	// (CERT-3).
	FrontProxyPrefixAnnotation = "proxyauth.weebo.si.rs/front-proxy-prefix"
)

// MaxSecretName is the longest name Kubernetes gives a Secret.
const MaxSecretName = 253

// ReservedPrefix starts the names that belong to Kubernetes.
const ReservedPrefix = "system:"

// FrontProxySecret names the Secret of an object's front-proxy certificate.
// A namespace holds no dot, so that two objects never share a name.
func FrontProxySecret(key Key) string {
	return FrontProxySecretPrefix + key.Namespace + "." + key.Name
}

// ProtectedSecretName says whether a name belongs to the product (API-5).
func ProtectedSecretName(name string) bool {
	return strings.HasPrefix(name, FrontProxySecretPrefix) || strings.HasPrefix(name, AgentSecretPrefix)
}
