package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProxyKubeApi is one Kubernetes apiserver behind the proxy: where it is, who
// may use it, and how it learns who is asking.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=proxykubeapis,singular=proxykubeapi,shortName=pka,scope=Namespaced
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.status.path`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Upstream",type=string,JSONPath=`.status.upstreamAuth.mode`,priority=1
// +kubebuilder:printcolumn:name="Trust",type=string,JSONPath=`.status.upstreamAuth.trust`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,priority=1
type ProxyKubeApi struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the cluster author asks for.
	Spec ProxyKubeApiSpec `json:"spec"`
	// status is what the proxy says of the object. Only the leader writes it.
	// +nullable
	Status *ProxyKubeApiStatus `json:"status,omitempty"`
}

// ProxyKubeApiList is a list of ProxyKubeApi.
//
// +kubebuilder:object:root=true
type ProxyKubeApiList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the objects of the list.
	Items []ProxyKubeApi `json:"items"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.dashboard_group) || self.dashboard_group != ''",message="dashboard_group must not be empty"
// +kubebuilder:validation:XValidation:rule="!has(self.proxy_group) || self.proxy_group != ''",message="proxy_group must not be empty"
// +kubebuilder:validation:XValidation:rule="!has(self.upstream_auth) || self.upstream_auth.mode != 'FrontProxy' || (has(self.auth_config) && self.auth_config.validate_against != 'Kubernetes')",message="FrontProxy cannot be used with validate_against: Kubernetes (the SelfSubjectReview needs an apiserver that already knows the identity provider); set auth_config.validate_against to OidcProvider or JwtAuthenticators",fieldPath=".auth_config.validate_against"
// +kubebuilder:validation:XValidation:rule="!has(self.upstream_auth) || self.upstream_auth.mode != 'FrontProxy' || !has(self.auth_config) || !self.auth_config.disable_validation",message="FrontProxy cannot be used with auth_config.disable_validation: true",fieldPath=".auth_config.disable_validation"
// +kubebuilder:validation:XValidation:rule="!has(self.upstream_auth) || self.upstream_auth.mode != 'FrontProxy' || !has(self.auth_config) || self.auth_config.validate_against != 'OidcProvider' || (has(self.auth_config.oidc_provider) && has(self.auth_config.oidc_provider.claim_mappings))",message="FrontProxy with validate_against: OidcProvider requires auth_config.oidc_provider.claim_mappings",fieldPath=".auth_config.oidc_provider.claim_mappings",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.upstream_auth) || self.upstream_auth.mode != 'FrontProxy' || !has(self.client_cert)",message="client_cert cannot be used with FrontProxy: the certificate is a Secret in the namespace of the proxy",fieldPath=".client_cert",reason=FieldValueForbidden

// ProxyKubeApiSpec is what the cluster author asks for.
type ProxyKubeApiSpec struct {
	// enabled serves the cluster. false keeps the object while its URL is
	// answered with 404 and its open streams are ended. Default: true.
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// service says where the apiserver is. Exactly one of its fields is set.
	Service Service `json:"service"`
	// cert says which CA verifies the apiserver's certificate; TLS is always
	// verified. Exactly one of its fields is set. Default: the system roots.
	// +kubebuilder:validation:XValidation:rule="[has(self.Secret), has(self.ConfigMap), has(self.Cert), has(self.SystemRoots), has(self.Insecure)].filter(x, x).size() == 1",message="cert: exactly one of Secret, ConfigMap, Cert, SystemRoots, Insecure must be set"
	Cert *CertSource `json:"cert,omitempty"`
	// tls_server_name is the SNI and the name that the apiserver's certificate
	// must have. Default: the host of the URL for an ExternalService,
	// <name>.<namespace>.svc for a KubernetesService,
	// kubernetes.default.svc for an Agent.
	// +kubebuilder:validation:MaxLength=253
	TLSServerName string `json:"tls_server_name,omitempty"`
	// client_cert is a client certificate that passes an mTLS gate in front of
	// the apiserver, in Passthrough only. It must not be an identity for the
	// apiserver: a certificate that --client-ca-file verifies outranks the
	// caller's token, and the cluster is then closed (ClientCertIsIdentity).
	// Default: none.
	// +nullable
	ClientCert *ClientCert `json:"client_cert,omitempty"`
	// auth_config says how the bearer of a request is validated. Default: as
	// with validate_against: Kubernetes.
	// +nullable
	AuthConfig *AuthConfig `json:"auth_config,omitempty"`
	// upstream_auth says how the apiserver learns who is asking. Default:
	// Passthrough, the caller's own bearer.
	UpstreamAuth *UpstreamAuth `json:"upstream_auth,omitempty"`
	// security_config restricts what may be asked for. Default: nothing is
	// restricted beyond the apiserver's own authorization.
	// +nullable
	SecurityConfig *SecurityConfig `json:"security_config,omitempty"`
	// proxy_group is the group a caller must have to use the cluster, compared
	// with the groups before any upstream_auth prefix. Default: with
	// expose_via_dashboard the dashboard_group, else none.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	ProxyGroup *string `json:"proxy_group,omitempty"`
	// expose_via_dashboard lists the cluster in the dashboard and its API for
	// the members of dashboard_group. Default: false.
	// +kubebuilder:default=false
	ExposeViaDashboard bool `json:"expose_via_dashboard,omitempty"`
	// dashboard_group is the group that sees the cluster in the dashboard.
	// Default: dashboard-<namespace>-<name>.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	DashboardGroup *string `json:"dashboard_group,omitempty"`
	// virtual_apis are APIs that the proxy answers itself. At most 8. Without effect
	// in this version, with the notice UnsupportedField.
	// Default: none.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:default={}
	VirtualAPIs []VirtualAPI `json:"virtual_apis,omitempty"`
}

// Service says where the apiserver is: exactly one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.ExternalService), has(self.KubernetesService), has(self.Agent)].filter(x, x).size() == 1",message="service: exactly one of ExternalService, KubernetesService, Agent must be set"
type Service struct {
	// ExternalService is an apiserver named by URL.
	ExternalService *ExternalService `json:"ExternalService,omitempty"`
	// KubernetesService is an apiserver behind a Service of the cluster that
	// the proxy reads its objects from.
	KubernetesService *KubernetesService `json:"KubernetesService,omitempty"`
	// Agent is an apiserver reached through a reverse tunnel, dialled by an
	// agent that runs near it. Refused by this version: a cluster with it is closed
	// (InvalidSpec).
	Agent *Agent `json:"Agent,omitempty"`
}

// ExternalService is an apiserver named by URL.
type ExternalService struct {
	// url is the https URL of the apiserver, with an optional port
	// (default: 443) and an optional path base. No user, query or fragment.
	// At most 2048 characters.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://([A-Za-z0-9._~-]+|[[][0-9A-Fa-f:.]+[]])(:[0-9]{1,5})?(/[^?#]*)?$')",message="url must be an https:// URL with a host, an optional port and path, and no user, query or fragment"
	URL string `json:"url"`
}

// KubernetesService is an apiserver behind a Service of the hub.
//
// +kubebuilder:validation:XValidation:rule="!has(self.port) || !has(self.port_name)",message="at most one of port and port_name may be set"
type KubernetesService struct {
	// name is the name of the Service. A Service of type ExternalName is
	// refused.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// namespace is the namespace of the Service. Default: the object's.
	// +kubebuilder:validation:MaxLength=63
	// +nullable
	Namespace *string `json:"namespace,omitempty"`
	// port is the number of a port of the Service, 1 to 65535. Default: 443
	// when port_name is not set either.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:Format=""
	// +nullable
	Port *int32 `json:"port,omitempty"`
	// port_name is the name of a port of the Service. Default: none, port is
	// used.
	// +kubebuilder:validation:MaxLength=63
	// +nullable
	PortName *string `json:"port_name,omitempty"`
}

// Agent is an apiserver reached through a tunnel agent.
type Agent struct {
	// name is the name of the agent. Objects of one namespace may share an
	// agent. Default: the object's name.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// CertSource says where a PEM value comes from: exactly one of its fields.
type CertSource struct {
	// Secret names a key of a Secret that holds PEM.
	Secret *KeyReference `json:"Secret,omitempty"`
	// ConfigMap names a key of a ConfigMap that holds PEM.
	ConfigMap *KeyReference `json:"ConfigMap,omitempty"`
	// Cert is the value itself: base64 of PEM, at most 131072 characters.
	// +kubebuilder:validation:MaxLength=131072
	Cert *string `json:"Cert,omitempty"`
	// SystemRoots: true uses the roots of the proxy's system.
	SystemRoots *bool `json:"SystemRoots,omitempty"`
	// Insecure is the legacy spelling of SystemRoots. TLS is verified all the
	// same.
	Insecure *bool `json:"Insecure,omitempty"`
}

// KeyReference names one key of a Secret or ConfigMap.
type KeyReference struct {
	// name is the name of the Secret or ConfigMap.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key is the key whose value is read.
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// namespace is the namespace of the Secret or ConfigMap; another than the
	// object's must be opened by the proxy admin (reference_namespaces).
	// Default: the object's.
	// +kubebuilder:validation:MaxLength=63
	// +nullable
	Namespace *string `json:"namespace,omitempty"`
}

// ClientCert is a client certificate for Passthrough.
type ClientCert struct {
	// cert is the certificate chain, leaf first.
	// +kubebuilder:validation:XValidation:rule="[has(self.Secret), has(self.ConfigMap), has(self.Cert), has(self.SystemRoots), has(self.Insecure)].filter(x, x).size() == 1",message="client_cert.cert: exactly one of Secret, ConfigMap, Cert, SystemRoots, Insecure must be set"
	Cert CertSource `json:"cert"`
	// key is the private key of the leaf.
	// +kubebuilder:validation:XValidation:rule="[has(self.Secret), has(self.ConfigMap), has(self.Cert), has(self.SystemRoots), has(self.Insecure)].filter(x, x).size() == 1",message="client_cert.key: exactly one of Secret, ConfigMap, Cert, SystemRoots, Insecure must be set"
	Key CertSource `json:"key"`
}

// UpstreamMode says how the apiserver learns who is asking.
//
// +kubebuilder:validation:Enum=Passthrough;FrontProxy
type UpstreamMode string

// The upstream modes this version knows.
const (
	ModePassthrough UpstreamMode = "Passthrough"
	ModeFrontProxy  UpstreamMode = "FrontProxy"
)

// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || (has(self.user_prefix) && self.user_prefix != '')",message="user_prefix is required and must not be empty when mode is FrontProxy",fieldPath=".user_prefix",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || !has(self.user_prefix) || self.user_prefix.size() <= 64",message="user_prefix must be at most 64 characters",fieldPath=".user_prefix"
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || !has(self.user_prefix) || !self.user_prefix.startsWith('system:')",message="user_prefix must not start with system:",fieldPath=".user_prefix"
// +kubebuilder:validation:XValidation:rule=`self.mode != 'FrontProxy' || !has(self.user_prefix) || !self.user_prefix.matches(r'\p{Cc}')`,message="user_prefix must not contain a control character",fieldPath=".user_prefix"
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || !has(self.user_prefix) || self.user_prefix == self.user_prefix.trim()",message="user_prefix must not begin or end with a space",fieldPath=".user_prefix"
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || (has(self.group_prefix) && self.group_prefix != '')",message="group_prefix is required and must not be empty when mode is FrontProxy",fieldPath=".group_prefix",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || !has(self.group_prefix) || self.group_prefix.size() <= 64",message="group_prefix must be at most 64 characters",fieldPath=".group_prefix"
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || !has(self.group_prefix) || !self.group_prefix.startsWith('system:')",message="group_prefix must not start with system:",fieldPath=".group_prefix"
// +kubebuilder:validation:XValidation:rule=`self.mode != 'FrontProxy' || !has(self.group_prefix) || !self.group_prefix.matches(r'\p{Cc}')`,message="group_prefix must not contain a control character",fieldPath=".group_prefix"
// +kubebuilder:validation:XValidation:rule="self.mode != 'FrontProxy' || !has(self.group_prefix) || self.group_prefix == self.group_prefix.trim()",message="group_prefix must not begin or end with a space",fieldPath=".group_prefix"

// UpstreamAuth says how the identity reaches the apiserver.
type UpstreamAuth struct {
	// mode is Passthrough (the caller's bearer goes to the apiserver) or
	// FrontProxy (the proxy presents its own certificate and asserts the
	// identity in X-Remote-* headers; no part of the bearer is sent).
	// Default: Passthrough.
	// +kubebuilder:default=Passthrough
	Mode UpstreamMode `json:"mode,omitempty"`
	// user_prefix goes before the user name that the apiserver sees, on top of
	// any prefix of claim_mappings. FrontProxy requires it: 1 to 64
	// characters, not starting with "system:", no control character, no space
	// at either end. A non-empty prefix in Passthrough prepares FrontProxy:
	// the proxy probes and says in the status what is missing.
	// +kubebuilder:validation:MaxLength=1024
	UserPrefix *string `json:"user_prefix,omitempty"`
	// group_prefix goes before each group that the apiserver sees. Same
	// rules as user_prefix.
	// +kubebuilder:validation:MaxLength=1024
	GroupPrefix *string `json:"group_prefix,omitempty"`
	// forward_uid sends the mapped uid as X-Remote-Uid, in FrontProxy; the
	// apiserver needs --requestheader-uid-headers. Default: false.
	// +kubebuilder:default=false
	ForwardUID bool `json:"forward_uid,omitempty"`
}

// VirtualAPI is an API that the proxy answers itself.
type VirtualAPI struct {
	// kind names the API. OpenShiftProject: project.openshift.io/v1 projects
	// over the namespaces that the caller can use.
	// +kubebuilder:validation:Enum=OpenShiftProject
	Kind string `json:"kind"`
	// enabled serves the API. Default: true.
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
	// list_fallback_token is a bearer of low privilege that lists the
	// candidates, never with an identity header. Default: none.
	// +nullable
	ListFallbackToken *CertSource `json:"list_fallback_token,omitempty"`
}
