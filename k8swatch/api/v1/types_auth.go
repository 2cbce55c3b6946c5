package v1

// ValidateAgainst names the validator of a bearer.
//
// +kubebuilder:validation:Enum=OidcProvider;Kubernetes;JwtAuthenticators
type ValidateAgainst string

// The validators of a bearer.
const (
	// ValidateKubernetes asks the target with a SelfSubjectReview (AUTH-8).
	ValidateKubernetes ValidateAgainst = "Kubernetes"
	// ValidateOidcProvider asks an OpenID provider (AUTH-6).
	ValidateOidcProvider ValidateAgainst = "OidcProvider"
	// ValidateJwtAuthenticators verifies locally (AUTH-4).
	ValidateJwtAuthenticators ValidateAgainst = "JwtAuthenticators"
)

// The sources of an OidcProvider's claims (AUTH-6).
const (
	ClaimsSourceUserInfo = "UserInfo"
	ClaimsSourceToken    = "Token"
)

// The token that a TokenExchange asks for (AUTH-15).
const (
	ForwardIDToken     = "IdToken"
	ForwardAccessToken = "AccessToken"
)

// AuthConfig says who is asking.
//
// +kubebuilder:validation:XValidation:rule="self.validate_against != 'OidcProvider' || (has(self.oidc_provider) && self.oidc_provider.enabled)",message="validate_against: OidcProvider needs oidc_provider.enabled: true"
// +kubebuilder:validation:XValidation:rule="self.validate_against != 'JwtAuthenticators' || size(self.jwt) > 0",message="validate_against: JwtAuthenticators needs at least one entry in jwt"
// +kubebuilder:validation:XValidation:rule="self.jwt.all(a, self.jwt.exists_one(b, b.issuer.url == a.issuer.url))",message="issuer.url must be unique in jwt"
type AuthConfig struct {
	// disable_validation relays whatever bearer came without validating it,
	// in Passthrough only; a group requirement then refuses every request.
	// Default: false.
	// +kubebuilder:default=false
	DisableValidation bool `json:"disable_validation,omitempty"`
	// validate_against names the validator: Kubernetes (a SelfSubjectReview on
	// the target with the caller's token; Passthrough only), OidcProvider
	// (oidc_provider) or JwtAuthenticators (jwt). Default: Kubernetes.
	// +kubebuilder:default=Kubernetes
	ValidateAgainst ValidateAgainst `json:"validate_against,omitempty"`
	// oidc_provider is the OpenID provider of validate_against: OidcProvider.
	OidcProvider *OidcProvider `json:"oidc_provider,omitempty"`
	// jwt are the authenticators of validate_against: JwtAuthenticators, as in
	// the apiserver's AuthenticationConfiguration with snake_case keys. At most
	// 8, each with another issuer.url. Default: none.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:default={}
	JWT []JWTAuthenticator `json:"jwt,omitempty"`
	// token_exchange exchanges opaque bearers (RFC 8693) before they are
	// validated, for machines with one long-lived API token. Default: none.
	// +nullable
	TokenExchange *TokenExchange `json:"token_exchange,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="!self.enabled || has(self.config_from) || (self.issuer_url != '' && self.client_id != '')",message="an enabled oidc_provider needs issuer_url and client_id, or config_from"

// OidcProvider is an OpenID provider asked for the claims of a bearer.
type OidcProvider struct {
	// enabled must be true for validate_against: OidcProvider. Default: false.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// issuer_url is the https URL of the issuer, as in the tokens' iss claim.
	// Required unless config_from gives it. Default: "".
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:default=""
	IssuerURL string `json:"issuer_url,omitempty"`
	// client_id is the proxy's client at the provider. Required unless
	// config_from gives it. Default: "".
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=""
	ClientID string `json:"client_id,omitempty"`
	// client_secret is the secret of that client, needed only to introspect
	// opaque tokens. Prefer config_from: everyone who may read the
	// object can read this field. Default: none.
	// +kubebuilder:validation:MaxLength=4096
	// +nullable
	ClientSecret *string `json:"client_secret,omitempty"`
	// audience must be in the token's aud claim. Default: client_id.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:default=""
	Audience string `json:"audience,omitempty"`
	// accept_authorized_party also accepts a token whose azp claim, and not its
	// aud claim, is the audience. Default: false.
	// +kubebuilder:default=false
	AcceptAuthorizedParty bool `json:"accept_authorized_party,omitempty"`
	// extra_scope are further scopes, separated by spaces, that kubeconfigs
	// made by the proxy ask for. Default: "".
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default=""
	ExtraScope string `json:"extra_scope,omitempty"`
	// expose_oauth_authorization_server is accepted. Without effect in this
	// version, with the notice UnsupportedField. Default: false.
	// +kubebuilder:default=false
	ExposeOAuthAuthorizationServer bool `json:"expose_oauth_authorization_server,omitempty"`
	// certificate_authority is the PEM of the CA that verifies the provider's
	// certificate. Default: the system roots.
	// +kubebuilder:validation:MaxLength=131072
	// +nullable
	CertificateAuthority *string `json:"certificate_authority,omitempty"`
	// claims_source is UserInfo (the claims are the provider's /userinfo
	// answer) or Token (the claims are those of the verified JWT; /userinfo is
	// not asked and an opaque token is refused). Default: UserInfo.
	// +kubebuilder:validation:Enum=UserInfo;Token
	// +kubebuilder:default=UserInfo
	ClaimsSource string `json:"claims_source,omitempty"`
	// config_from names a Secret whose keys issuer_url, client_id,
	// client_secret, audience, extra_scope and certificate_authority win over
	// the fields of the same names. Default: none.
	// +nullable
	ConfigFrom *ConfigReference `json:"config_from,omitempty"`
	// claim_mappings maps the claims to an identity; FrontProxy requires it.
	// Default, in Passthrough only: preferred_username and groups.
	// +nullable
	ClaimMappings *ClaimMappings `json:"claim_mappings,omitempty"`
}

// ConfigReference names a Secret with the settings of an OidcProvider.
type ConfigReference struct {
	// Secret names the Secret.
	// +required
	Secret *SecretReference `json:"Secret,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name is the name of the Secret.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace is the namespace of the Secret; another than the object's must
	// be opened by the proxy admin (reference_namespaces). Default: the
	// object's.
	// +kubebuilder:validation:MaxLength=63
	// +nullable
	Namespace *string `json:"namespace,omitempty"`
}

// ClaimMappings maps claims to an identity, as the apiserver's structured
// authentication does.
//
// +kubebuilder:validation:XValidation:rule="has(self.username)",message="username is required"
type ClaimMappings struct {
	// username gives the user name. A claim that can be changed by the user
	// (preferred_username at many providers) is a poor choice: prefer sub. A
	// name from the claim email needs email_verified: true in the token.
	// +nullable
	Username *PrefixedClaimOrExpression `json:"username,omitempty"`
	// groups gives the groups: a string is one group, an array of strings are
	// groups. Default: no groups.
	// +nullable
	Groups *PrefixedClaimOrExpression `json:"groups,omitempty"`
	// uid gives the uid. Default: none.
	// +nullable
	UID *ClaimOrExpression `json:"uid,omitempty"`
	// extra gives extra attributes. At most 32. Default: none.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:default={}
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim with its prefix, or a CEL expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="set exactly one of claim and expression"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || has(self.claim)",message="prefix goes with claim, not with expression"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || has(self.prefix)",message=`claim needs a prefix; write "" for none`
type PrefixedClaimOrExpression struct {
	// claim is the name of the claim. Exactly one of claim and expression is
	// set.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	Claim *string `json:"claim,omitempty"`
	// expression is a CEL expression over claims, at most 4096 characters.
	// +kubebuilder:validation:MaxLength=4096
	// +nullable
	Expression *string `json:"expression,omitempty"`
	// prefix goes before each value of the claim; required with claim, "" for
	// none.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	Prefix *string `json:"prefix,omitempty"`
}

// ClaimOrExpression is a claim or a CEL expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="set exactly one of claim and expression"
type ClaimOrExpression struct {
	// claim is the name of the claim. Exactly one of claim and expression is
	// set.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	Claim *string `json:"claim,omitempty"`
	// expression is a CEL expression over claims, at most 4096 characters.
	// +kubebuilder:validation:MaxLength=4096
	// +nullable
	Expression *string `json:"expression,omitempty"`
}

// ExtraMapping is one key of the extra attributes.
type ExtraMapping struct {
	// key is the key of the attribute: lower-case, prefixed by a domain
	// (example.com/team), outside kubernetes.io and k8s.io. Another key is
	// accepted here and gives Ready=False, InvalidSpec.
	// +kubebuilder:validation:MaxLength=510
	Key string `json:"key"`
	// value_expression is a CEL expression over claims that gives a string or
	// a list of strings.
	// +kubebuilder:validation:MaxLength=4096
	ValueExpression string `json:"value_expression,omitempty"`
}

// JWTAuthenticator is the JWTAuthenticator of the apiserver's
// AuthenticationConfiguration with snake_case keys.
type JWTAuthenticator struct {
	// issuer is who issues the tokens.
	Issuer Issuer `json:"issuer"`
	// claim_validation_rules are conditions on the claims; all must hold. At
	// most 64. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:default={}
	ClaimValidationRules []ClaimValidationRule `json:"claim_validation_rules,omitempty"`
	// claim_mappings maps the claims to an identity.
	// +nullable
	ClaimMappings *ClaimMappings `json:"claim_mappings"`
	// user_validation_rules are conditions on the mapped user; all must hold.
	// At most 64. Default: none.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:default={}
	UserValidationRules []UserValidationRule `json:"user_validation_rules,omitempty"`
}

// Issuer is the issuer of a JWT.
//
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('https://')",message="url must start with https://"
// +kubebuilder:validation:XValidation:rule="size(self.audiences) > 0",message="audiences must not be empty"
// +kubebuilder:validation:XValidation:rule="!has(self.discovery_url) || self.discovery_url.startsWith('https://')",message="discovery_url must start with https://"
type Issuer struct {
	// url is the https URL of the issuer, as in the tokens' iss claim.
	// +kubebuilder:validation:MaxLength=253
	URL string `json:"url"`
	// discovery_url is where the provider's metadata is read. Default:
	// <url>/.well-known/openid-configuration.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	DiscoveryURL *string `json:"discovery_url,omitempty"`
	// certificate_authority is the PEM of the CA that verifies the provider's
	// certificate. Default: the system roots.
	// +kubebuilder:validation:MaxLength=131072
	// +nullable
	CertificateAuthority *string `json:"certificate_authority,omitempty"`
	// audiences are the accepted audiences, 1 to 64: one of them must be in the
	// token's aud claim.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:default={}
	Audiences []string `json:"audiences,omitempty"`
	// audience_match_policy is MatchAny, the only one. Default: MatchAny.
	// +kubebuilder:validation:Enum=MatchAny
	// +kubebuilder:default=MatchAny
	AudienceMatchPolicy string `json:"audience_match_policy,omitempty"`
	// egress_selector is controlplane, or cluster. Without effect in this version:
	// cluster has the notice UnsupportedField. Default: controlplane.
	// +kubebuilder:validation:Enum=controlplane;cluster
	// +kubebuilder:default=controlplane
	EgressSelector string `json:"egress_selector,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="set exactly one of claim and expression"
// +kubebuilder:validation:XValidation:rule="self.required_value == '' || has(self.claim)",message="required_value goes with claim"
// +kubebuilder:validation:XValidation:rule="!has(self.expression) || self.message != ''",message="expression needs a message"

// ClaimValidationRule is a condition on the claims.
type ClaimValidationRule struct {
	// claim is the name of a claim that must be present with required_value.
	// Exactly one of claim and expression is set.
	// +kubebuilder:validation:MaxLength=253
	// +nullable
	Claim *string `json:"claim,omitempty"`
	// required_value is the value of the claim. Default: "".
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default=""
	RequiredValue string `json:"required_value,omitempty"`
	// expression is a CEL expression over claims that must be true.
	// +kubebuilder:validation:MaxLength=4096
	// +nullable
	Expression *string `json:"expression,omitempty"`
	// message says why a token is refused; required with expression.
	// Default: "".
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default=""
	Message string `json:"message,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="self.expression != '' && self.message != ''",message="expression and message must not be empty"

// UserValidationRule is a condition on the mapped user.
type UserValidationRule struct {
	// expression is a CEL expression over user that must be true. Required.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:default=""
	Expression string `json:"expression,omitempty"`
	// message says why a user is refused. Required.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default=""
	Message string `json:"message,omitempty"`
}

// TokenExchange is an RFC 8693 token exchange for machines.
type TokenExchange struct {
	// enabled exchanges tokens. Default: false.
	// +kubebuilder:default=false
	Enabled bool `json:"enabled,omitempty"`
	// certificate_authority is the PEM of the CA that verifies the
	// certificate behind token_url. Default: the system roots.
	// +kubebuilder:validation:MaxLength=131072
	CertificateAuthority string `json:"certificate_authority,omitempty"`
	// token_url is the https URL of the token endpoint. Required when enabled.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https://`
	TokenURL string `json:"token_url,omitempty"`
	// client_id is the proxy's client. Required when enabled.
	// +kubebuilder:validation:MaxLength=253
	ClientID string `json:"client_id,omitempty"`
	// client_secret is the secret of that client. Default: none, a public
	// client.
	// +kubebuilder:validation:MaxLength=4096
	ClientSecret string `json:"client_secret,omitempty"`
	// audience is the audience asked for. Default: none.
	// +kubebuilder:validation:MaxLength=253
	Audience string `json:"audience,omitempty"`
	// scopes are the scopes asked for. At most 32. Default: [openid].
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Scopes []string `json:"scopes,omitempty"`
	// subject_token_type is the type of the token that is sent. Default:
	// urn:ietf:params:oauth:token-type:access_token.
	// +kubebuilder:validation:MaxLength=253
	SubjectTokenType string `json:"subject_token_type,omitempty"`
	// requested_token_type is the type of the token asked for. Default:
	// urn:ietf:params:oauth:token-type:id_token with forward: IdToken, else
	// urn:ietf:params:oauth:token-type:access_token.
	// +kubebuilder:validation:MaxLength=253
	RequestedTokenType string `json:"requested_token_type,omitempty"`
	// resource is the resource asked for (RFC 8707). Default: none.
	// +kubebuilder:validation:MaxLength=2048
	Resource string `json:"resource,omitempty"`
	// forward says which token of the answer is used: IdToken or AccessToken.
	// Default: IdToken.
	// +kubebuilder:validation:Enum=IdToken;AccessToken
	// +kubebuilder:default=IdToken
	Forward string `json:"forward,omitempty"`
}
