package k8swatch

import (
	"encoding/json"
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Auth is the resolved auth_config.
type Auth struct {
	DisableValidation bool
	ValidateAgainst   v1.ValidateAgainst
	// JWT are the authenticators of validate_against: JwtAuthenticators, none
	// otherwise.
	JWT []JWT
	// OIDC is the resolved oidc_provider of validate_against: OidcProvider, nil
	// otherwise.
	OIDC *OIDCProvider
	// Exchange is the enabled token_exchange with its defaults filled in, nil
	// otherwise.
	Exchange *TokenExchange
	// Hash is a digest of the resolved auth_config, values read from Secrets
	// included (AUTH-12).
	Hash string
}

// Issuers lists the issuers of accepted tokens. It is empty where an apiserver
// decides which tokens are accepted.
func (a *Auth) Issuers() []string {
	if a.OIDC != nil {
		return []string{a.OIDC.IssuerURL}
	}
	issuers := make([]string, 0, len(a.JWT))
	for _, j := range a.JWT {
		issuers = append(issuers, j.Authenticator.Issuer.URL)
	}
	return issuers
}

// JWT is one validated JWTAuthenticator with its compiled CEL.
type JWT struct {
	Authenticator apiserver.JWTAuthenticator
	Mapper        authenticationcel.CELMapper
}

// OIDCProvider is an OpenID provider that is asked for the claims of a bearer
// (AUTH-6).
type OIDCProvider struct {
	// IssuerURL is an https URL without user, query and fragment.
	IssuerURL string
	ClientID  string
	// ClientSecret is empty for none.
	ClientSecret string
	// Audience is never empty: by default it is ClientID (AUTH-7).
	Audience string
	// ExtraScope are the further scopes, separated by spaces, that kubeconfigs
	// ask for; empty for none.
	ExtraScope string
	// CertificateAuthority is the PEM that verifies the provider's
	// certificate, empty for the system roots.
	CertificateAuthority string
	// AcceptAuthorizedParty also takes azp for an audience.
	AcceptAuthorizedParty bool
	// ClaimsFromToken is claims_source: Token.
	ClaimsFromToken bool
	// Claims maps the claims. Its issuer is this provider's; without
	// claim_mappings it takes preferred_username and groups (AUTH-9).
	Claims JWT
}

// Format prints the issuer alone whatever the verb, since the client secret must
// not reach a log (SIG-3).
func (p OIDCProvider) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "provider %s", p.IssuerURL) }

// MarshalJSON writes the issuer alone, for loggers that encode values.
func (p OIDCProvider) MarshalJSON() ([]byte, error) { return json.Marshal(p.IssuerURL) }

// TokenExchange is an enabled token_exchange that was judged, with its defaults
// filled in: how opaque bearers are exchanged for tokens of the issuer (RFC 8693;
// AUTH-14, AUTH-15). Both token types are set, and at least one scope.
type TokenExchange v1.TokenExchange

// Format prints the endpoint alone whatever the verb, since the client secret must
// not reach a log (SIG-3).
func (e TokenExchange) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "exchange at %s", e.TokenURL) }

// MarshalJSON writes the endpoint alone, for loggers that encode values.
func (e TokenExchange) MarshalJSON() ([]byte, error) { return json.Marshal(e.TokenURL) }
