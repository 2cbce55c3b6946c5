package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProxyKubeApi is one Kubernetes apiserver behind the proxy.
type ProxyKubeApi struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ProxyKubeApiSpec    `json:"spec"`
	Status *ProxyKubeApiStatus `json:"status,omitempty"`
}

// ProxyKubeApiList is a list of ProxyKubeApi.
type ProxyKubeApiList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ProxyKubeApi `json:"items"`
}

// ProxyKubeApiSpec is what the cluster author asks for.
type ProxyKubeApiSpec struct {
	Enabled            *bool           `json:"enabled,omitempty"`
	Service            Service         `json:"service"`
	Cert               *CertSource     `json:"cert,omitempty"`
	TLSServerName      string          `json:"tls_server_name,omitempty"`
	ClientCert         *ClientCert     `json:"client_cert,omitempty"`
	AuthConfig         *AuthConfig     `json:"auth_config,omitempty"`
	UpstreamAuth       *UpstreamAuth   `json:"upstream_auth,omitempty"`
	SecurityConfig     *SecurityConfig `json:"security_config,omitempty"`
	ProxyGroup         *string         `json:"proxy_group,omitempty"`
	ExposeViaDashboard bool            `json:"expose_via_dashboard,omitempty"`
	DashboardGroup     *string         `json:"dashboard_group,omitempty"`
	VirtualAPIs        []VirtualAPI    `json:"virtual_apis,omitempty"`
}

// Service says where the apiserver is: exactly one of its fields.
type Service struct {
	ExternalService   *ExternalService   `json:"ExternalService,omitempty"`
	KubernetesService *KubernetesService `json:"KubernetesService,omitempty"`
	Agent             *Agent             `json:"Agent,omitempty"`
}

// ExternalService is an apiserver named by URL.
type ExternalService struct {
	URL string `json:"url"`
}

// KubernetesService is an apiserver behind a Service of the hub.
type KubernetesService struct {
	Name      string  `json:"name"`
	Namespace *string `json:"namespace,omitempty"`
	Port      *int32  `json:"port,omitempty"`
	PortName  *string `json:"port_name,omitempty"`
}

// Agent is an apiserver reached through a tunnel agent.
type Agent struct {
	Name string `json:"name,omitempty"`
}

// CertSource says where a PEM value comes from: exactly one of its fields.
type CertSource struct {
	Secret      *KeyReference `json:"Secret,omitempty"`
	ConfigMap   *KeyReference `json:"ConfigMap,omitempty"`
	Cert        *string       `json:"Cert,omitempty"`
	SystemRoots *bool         `json:"SystemRoots,omitempty"`
	Insecure    *bool         `json:"Insecure,omitempty"`
}

// KeyReference names one key of a Secret or ConfigMap.
type KeyReference struct {
	Name      string  `json:"name"`
	Key       string  `json:"key"`
	Namespace *string `json:"namespace,omitempty"`
}

// ClientCert is a client certificate for Passthrough.
type ClientCert struct {
	Cert CertSource `json:"cert"`
	Key  CertSource `json:"key"`
}

// ValidateAgainst names the validator of a bearer.
type ValidateAgainst string

// The validators of a bearer (SPEC section 4).
const (
	ValidateKubernetes        ValidateAgainst = "Kubernetes"
	ValidateOidcProvider      ValidateAgainst = "OidcProvider"
	ValidateJwtAuthenticators ValidateAgainst = "JwtAuthenticators"
)

// AuthConfig says who is asking.
type AuthConfig struct {
	DisableValidation bool               `json:"disable_validation,omitempty"`
	ValidateAgainst   ValidateAgainst    `json:"validate_against,omitempty"`
	OidcProvider      *OidcProvider      `json:"oidc_provider,omitempty"`
	JWT               []JWTAuthenticator `json:"jwt,omitempty"`
	TokenExchange     *TokenExchange     `json:"token_exchange,omitempty"`
}

// OidcProvider is an OpenID provider asked for the claims of a bearer.
type OidcProvider struct {
	Enabled                        bool             `json:"enabled,omitempty"`
	IssuerURL                      string           `json:"issuer_url,omitempty"`
	ClientID                       string           `json:"client_id,omitempty"`
	ClientSecret                   *string          `json:"client_secret,omitempty"`
	Audience                       string           `json:"audience,omitempty"`
	AcceptAuthorizedParty          bool             `json:"accept_authorized_party,omitempty"`
	ExtraScope                     string           `json:"extra_scope,omitempty"`
	ExposeOAuthAuthorizationServer bool             `json:"expose_oauth_authorization_server,omitempty"`
	CertificateAuthority           *string          `json:"certificate_authority,omitempty"`
	ClaimsSource                   string           `json:"claims_source,omitempty"`
	ConfigFrom                     *ConfigReference `json:"config_from,omitempty"`
	ClaimMappings                  *ClaimMappings   `json:"claim_mappings,omitempty"`
}

// ConfigReference names a Secret with the settings of an OidcProvider.
type ConfigReference struct {
	Secret *SecretReference `json:"Secret,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	Name      string  `json:"name"`
	Namespace *string `json:"namespace,omitempty"`
}

// ClaimMappings maps claims to an identity.
type ClaimMappings struct {
	Username *PrefixedClaimOrExpression `json:"username,omitempty"`
	Groups   *PrefixedClaimOrExpression `json:"groups,omitempty"`
	UID      *ClaimOrExpression         `json:"uid,omitempty"`
	Extra    []ExtraMapping             `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim with its prefix, or a CEL expression.
type PrefixedClaimOrExpression struct {
	Claim      *string `json:"claim,omitempty"`
	Expression *string `json:"expression,omitempty"`
	Prefix     *string `json:"prefix,omitempty"`
}

// ClaimOrExpression is a claim or a CEL expression.
type ClaimOrExpression struct {
	Claim      *string `json:"claim,omitempty"`
	Expression *string `json:"expression,omitempty"`
}

// ExtraMapping is one key of the extra attributes.
type ExtraMapping struct {
	Key             string `json:"key"`
	ValueExpression string `json:"value_expression,omitempty"`
}

// JWTAuthenticator is the JWTAuthenticator of the apiserver's
// AuthenticationConfiguration with snake_case keys.
type JWTAuthenticator struct {
	Issuer               Issuer                `json:"issuer"`
	ClaimValidationRules []ClaimValidationRule `json:"claim_validation_rules,omitempty"`
	ClaimMappings        *ClaimMappings        `json:"claim_mappings"`
	UserValidationRules  []UserValidationRule  `json:"user_validation_rules,omitempty"`
}

// Issuer is the issuer of a JWT.
type Issuer struct {
	URL                  string   `json:"url"`
	DiscoveryURL         *string  `json:"discovery_url,omitempty"`
	CertificateAuthority *string  `json:"certificate_authority,omitempty"`
	Audiences            []string `json:"audiences,omitempty"`
	AudienceMatchPolicy  string   `json:"audience_match_policy,omitempty"`
	EgressSelector       string   `json:"egress_selector,omitempty"`
}

// ClaimValidationRule is a condition on the claims.
type ClaimValidationRule struct {
	Claim         *string `json:"claim,omitempty"`
	RequiredValue string  `json:"required_value,omitempty"`
	Expression    *string `json:"expression,omitempty"`
	Message       string  `json:"message,omitempty"`
}

// UserValidationRule is a condition on the mapped user.
type UserValidationRule struct {
	Expression string `json:"expression,omitempty"`
	Message    string `json:"message,omitempty"`
}

// TokenExchange is an RFC 8693 token exchange for machines.
type TokenExchange struct {
	Enabled              bool     `json:"enabled,omitempty"`
	CertificateAuthority string   `json:"certificate_authority,omitempty"`
	TokenURL             string   `json:"token_url,omitempty"`
	ClientID             string   `json:"client_id,omitempty"`
	ClientSecret         string   `json:"client_secret,omitempty"`
	Audience             string   `json:"audience,omitempty"`
	Scopes               []string `json:"scopes,omitempty"`
	SubjectTokenType     string   `json:"subject_token_type,omitempty"`
	RequestedTokenType   string   `json:"requested_token_type,omitempty"`
	Resource             string   `json:"resource,omitempty"`
	Forward              string   `json:"forward,omitempty"`
}

// UpstreamMode says how the apiserver learns who is asking.
type UpstreamMode string

// The upstream modes this version knows.
const (
	ModePassthrough UpstreamMode = "Passthrough"
	ModeFrontProxy  UpstreamMode = "FrontProxy"
)

// UpstreamAuth says how the identity reaches the apiserver.
type UpstreamAuth struct {
	Mode        UpstreamMode `json:"mode,omitempty"`
	UserPrefix  *string      `json:"user_prefix,omitempty"`
	GroupPrefix *string      `json:"group_prefix,omitempty"`
	ForwardUID  bool         `json:"forward_uid,omitempty"`
}

// SecurityConfig restricts what may be asked for.
type SecurityConfig struct {
	Enabled                  *bool               `json:"enabled,omitempty"`
	AllowedResources         []AllowedResource   `json:"allowed_resources,omitempty"`
	AllowedRessources        []AllowedResource   `json:"allowed_ressources,omitempty"`
	Fail2LoginEqualBan       *Fail2LoginEqualBan `json:"fail2login_equal_ban,omitempty"`
	RateLimiting             *RateLimiting       `json:"rate_limiting,omitempty"`
	PerUserGroupRateLimiting []GroupRateLimiting `json:"per_user_group_rate_limiting,omitempty"`
}

// AllowedResource is one rule of the allow list: exactly one of its fields.
type AllowedResource struct {
	Path *PathRule `json:"Path,omitempty"`
	Crd  *CrdRule  `json:"Crd,omitempty"`
}

// PathRule allows a path.
type PathRule struct {
	Path         string   `json:"path"`
	Parametised  bool     `json:"parametised,omitempty"`
	AllowedPorts []string `json:"allowed_ports,omitempty"`
}

// CrdRule allows a resource.
type CrdRule struct {
	Group      string        `json:"group"`
	Version    string        `json:"version"`
	Kind       string        `json:"kind"`
	Plural     *string       `json:"plural,omitempty"`
	Namespaced *bool         `json:"namespaced,omitempty"`
	Namespace  NamespaceRule `json:"namespace"`
}

// NamespaceRule restricts a CrdRule to namespaces.
type NamespaceRule struct {
	Enabled  bool     `json:"enabled,omitempty"`
	RuleKind RuleKind `json:"rule_kind"`
}

// RuleKind is how namespaces are chosen: exactly one of its fields.
type RuleKind struct {
	AllowedNamespaces *[]string `json:"AllowedNamespaces,omitempty"`
	DeniedNamespaces  *[]string `json:"DeniedNamespaces,omitempty"`
	ParametisedRule   *string   `json:"ParametisedRule,omitempty"`
}

// Fail2LoginEqualBan bans an address after failed logins.
type Fail2LoginEqualBan struct {
	Enabled            bool   `json:"enabled,omitempty"`
	MaxFailedLogins    *int64 `json:"max_failed_logins,omitempty"`
	BanDuration        *int64 `json:"ban_duration,omitempty"`
	ExponentialBackoff bool   `json:"exponential_backoff,omitempty"`
}

// RateLimiting limits the requests of a user.
type RateLimiting struct {
	Enabled              bool   `json:"enabled,omitempty"`
	MaxRequestsPerMinute *int64 `json:"max_requests_per_minute,omitempty"`
}

// GroupRateLimiting limits the requests of the members of a group.
type GroupRateLimiting struct {
	Group                string `json:"group"`
	MaxRequestsPerMinute int64  `json:"max_requests_per_minute"`
}

// VirtualAPI is an API that the proxy answers itself.
type VirtualAPI struct {
	Kind              string      `json:"kind"`
	Enabled           *bool       `json:"enabled,omitempty"`
	ListFallbackToken *CertSource `json:"list_fallback_token,omitempty"`
}

// ProxyKubeApiStatus is what the proxy says of the object (SPEC REC-3).
type ProxyKubeApiStatus struct {
	Exposed            bool                `json:"exposed,omitempty"`
	Path               *string             `json:"path,omitempty"`
	Error              *string             `json:"error,omitempty"`
	ObservedGeneration int64               `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition  `json:"conditions,omitempty"`
	UpstreamAuth       *UpstreamAuthStatus `json:"upstreamAuth,omitempty"`
}

// Trust is the verdict of a probe.
type Trust string

// The verdicts of a probe (SPEC section 7).
const (
	TrustTrusted     Trust = "Trusted"
	TrustRejected    Trust = "Rejected"
	TrustNotHonoured Trust = "NotHonoured"
	TrustUnknown     Trust = "Unknown"
)

// UpstreamAuthStatus says whether the apiserver honours the proxy.
type UpstreamAuthStatus struct {
	Mode               string       `json:"mode,omitempty"`
	Trust              Trust        `json:"trust,omitempty"`
	TrustSince         *metav1.Time `json:"trustSince,omitempty"`
	LastProbe          *metav1.Time `json:"lastProbe,omitempty"`
	ClientCertSecret   string       `json:"clientCertSecret,omitempty"`
	ClientCertTarget   string       `json:"clientCertTarget,omitempty"`
	ClientCertNotAfter *metav1.Time `json:"clientCertNotAfter,omitempty"`
	Message            string       `json:"message,omitempty"`
}
