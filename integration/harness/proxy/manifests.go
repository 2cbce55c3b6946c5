package proxy

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
)

// Names that the certificate rules are about (CERT-1, CERT-3).
const (
	ManagedByLabel   = "app.kubernetes.io/managed-by"
	ManagedBy        = "proxyauthk8s"
	TargetAnnotation = "proxyauth.weebo.si.rs/front-proxy-target"
	PrefixAnnotation = "proxyauth.weebo.si.rs/front-proxy-prefix"
)

// Manifests writes objects as one YAML file.
func Manifests(objects ...any) string {
	var b bytes.Buffer
	for _, o := range objects {
		y, err := yaml.Marshal(o)
		if err != nil {
			panic(fmt.Sprintf("proxy: writing a manifest: %v", err))
		}
		b.WriteString("---\n")
		b.Write(y)
	}
	return b.String()
}

// Cluster is a ProxyKubeApi for an apiserver at url, in Passthrough.
func Cluster(namespace, name, url string, ca *pki.CA) *v1.ProxyKubeApi {
	bundle := base64.StdEncoding.EncodeToString(ca.PEM)
	c := &v1.ProxyKubeApi{Spec: v1.ProxyKubeApiSpec{
		Service: v1.Service{ExternalService: &v1.ExternalService{URL: url}},
		Cert:    &v1.CertSource{Cert: &bundle},
	}}
	c.APIVersion, c.Kind = "weebo.si.rs/v1", "ProxyKubeApi"
	c.Namespace, c.Name = namespace, name
	return c
}

// FrontProxyCluster is a Cluster in FrontProxy with that prefix for users and
// groups and these authenticators: PX of the field cases with prefix "t:".
func FrontProxyCluster(namespace, name, url string, ca *pki.CA, prefix string, jwt ...v1.JWTAuthenticator) *v1.ProxyKubeApi {
	c := Cluster(namespace, name, url, ca)
	c.Spec.UpstreamAuth = &v1.UpstreamAuth{Mode: v1.ModeFrontProxy, UserPrefix: &prefix, GroupPrefix: &prefix}
	c.Spec.AuthConfig = &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: jwt}
	return c
}

// Authenticator validates tokens of that provider for its default audience:
// username from preferred_username, groups from groups, prefix "" for both.
func Authenticator(idp *oidc.Provider) v1.JWTAuthenticator {
	ca := string(idp.CA.PEM)
	username, groups, none := "preferred_username", "groups", ""
	return v1.JWTAuthenticator{
		Issuer: v1.Issuer{URL: idp.Issuer, CertificateAuthority: &ca, Audiences: []string{oidc.ClientID}},
		ClaimMappings: &v1.ClaimMappings{
			Username: &v1.PrefixedClaimOrExpression{Claim: &username, Prefix: &none},
			Groups:   &v1.PrefixedClaimOrExpression{Claim: &groups, Prefix: &none},
		},
	}
}

// FrontProxySecret is the Secret of CERT-1 in the proxy's namespace for a
// cluster whose target is that URL.
func FrontProxySecret(namespace, name, url string, pair *pki.KeyPair) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: "proxyauth-frontproxy-" + namespace + "." + name,
			Labels:      map[string]string{ManagedByLabel: ManagedBy},
			Annotations: map[string]string{TargetAnnotation: CanonicalTarget(url)},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM},
	}
	s.APIVersion, s.Kind = "v1", "Secret"
	return s
}

// CanonicalTarget is the target of CERT-2 for an ExternalService.
func CanonicalTarget(url string) string {
	return "external:" + string(bytes.TrimSuffix([]byte(url), []byte("/")))
}

// Secret is an Opaque Secret.
func Secret(namespace, name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeOpaque, StringData: maps.Clone(data)}
	s.APIVersion, s.Kind = "v1", "Secret"
	return s
}

// ConfigMap is a ConfigMap.
func ConfigMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: maps.Clone(data)}
	c.APIVersion, c.Kind = "v1", "ConfigMap"
	return c
}

// WriteKubeconfig writes a kubeconfig for a cluster behind the proxy with a
// token as its credential.
func (p *Proxy) WriteKubeconfig(file, namespace, name, token string) error {
	return kube.WriteKubeconfig(file, kube.Access{Server: p.ClusterURL(namespace, name), CA: p.CA.PEM, Token: token})
}
