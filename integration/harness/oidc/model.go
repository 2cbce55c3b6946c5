package oidc

import (
	"maps"
	"net/url"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// User is a user of the provider.
type User struct {
	// Subject is the sub claim; it must not hold a colon.
	Subject string
	// Username is preferred_username and the name to log in with.
	Username      string
	Email         string
	EmailVerified bool
	Groups        []string
	// Claims are added to id_tokens and userinfo.
	Claims map[string]any
}

// Client is a registered client.
type Client struct {
	ID string
	// Secret is empty for a public client, which must use PKCE.
	Secret string
	// Auth is how the client is registered to authenticate, which only a
	// Demanding provider looks at; by default AuthNone without a Secret and
	// AuthBasic with one.
	Auth AuthMethod
	// OpaqueAccessTokens gives access tokens that are no JWT.
	OpaqueAccessTokens bool
	// Audience is added to the aud claim of access tokens.
	Audience []string
	// MachineUser is who a client_credentials token stands for.
	MachineUser string
	// TokenLifetime of what the client gets, exchanged tokens included;
	// defaults to ten minutes.
	TokenLifetime time.Duration
}

// The users and clients of a provider without others.
const (
	Alice  = "alice"
	Elodie = "élodie"
	Robot  = "robot" // the machine account

	// ClientID is a public client, and the audience of Claims.
	ClientID = "proxy-a"
	// OpaqueClientID is public too; its access tokens are opaque.
	OpaqueClientID = "opaque-a"
	// SecretClientID may introspect and exchange; its secret is ClientSecret.
	SecretClientID = "backend-a"
	ClientSecret   = "backend-a-secret"
)

func defaultUsers() []User {
	return []User{
		{Subject: "subject-alice", Username: Alice, Email: "alice@example.test", EmailVerified: true, Groups: []string{"team-a", "a,b"}},
		{Subject: "subject-elodie", Username: Elodie, Email: "elodie@example.test", EmailVerified: true, Groups: []string{"équipe"}},
		{Subject: "subject-robot", Username: Robot, Groups: []string{"machines"}},
	}
}

func defaultClients() []Client {
	return []Client{
		{ID: ClientID},
		{ID: OpaqueClientID, OpaqueAccessTokens: true, Audience: []string{SecretClientID, ClientID}},
		{ID: SecretClientID, Secret: ClientSecret, MachineUser: Robot},
	}
}

// claims are the claims of a user beside those of the protocol.
func (u User) claims() map[string]any {
	c := map[string]any{"preferred_username": u.Username}
	if u.Email != "" {
		c["email"], c["email_verified"] = u.Email, u.EmailVerified
	}
	if u.Groups != nil {
		c["groups"] = u.Groups
	}
	maps.Copy(c, u.Claims)
	return c
}

// registered is a Client in the form of the library.
type registered struct {
	Client
	issuer string
}

func (c registered) GetID() string { return c.ID }

// RedirectURIs allows a loopback address with any port (RFC 8252, 7.3).
func (c registered) RedirectURIs() []string {
	return []string{"http://127.0.0.1/callback", "http://localhost/callback", "http://127.0.0.1/", "http://localhost/", "http://127.0.0.1", "http://localhost"}
}
func (c registered) PostLogoutRedirectURIs() []string    { return nil }
func (c registered) ApplicationType() op.ApplicationType { return op.ApplicationTypeNative }
func (c registered) AuthMethod() AuthMethod {
	switch {
	case c.Auth != "":
		return c.Auth
	case c.Secret == "":
		return AuthNone
	}
	return AuthBasic
}
func (c registered) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}
func (c registered) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeTokenExchange, oidc.GrantTypeClientCredentials}
}
func (c registered) LoginURL(id string) string {
	return c.issuer + loginPath + "?id=" + url.QueryEscape(id)
}
func (c registered) AccessTokenType() op.AccessTokenType {
	if c.OpaqueAccessTokens {
		return op.AccessTokenTypeBearer
	}
	return op.AccessTokenTypeJWT
}
func (c registered) lifetime() time.Duration {
	if c.TokenLifetime == 0 {
		return 10 * time.Minute
	}
	return c.TokenLifetime
}
func (c registered) IDTokenLifetime() time.Duration { return c.lifetime() }
func (c registered) DevMode() bool                  { return false }
func (c registered) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
func (c registered) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
func (c registered) IsScopeAllowed(string) bool           { return true }
func (c registered) IDTokenUserinfoClaimsAssertion() bool { return true }
func (c registered) ClockSkew() time.Duration             { return 0 }

// authRequest is one authorization request under way.
type authRequest struct {
	id      string
	req     oidc.AuthRequest
	subject string
	at      time.Time
}

func (a *authRequest) GetID() string          { return a.id }
func (a *authRequest) GetACR() string         { return "" }
func (a *authRequest) GetAMR() []string       { return []string{"pwd"} }
func (a *authRequest) GetAudience() []string  { return []string{a.req.ClientID} }
func (a *authRequest) GetAuthTime() time.Time { return a.at }
func (a *authRequest) GetClientID() string    { return a.req.ClientID }
func (a *authRequest) GetCodeChallenge() *oidc.CodeChallenge {
	if a.req.CodeChallenge == "" {
		return nil
	}
	return &oidc.CodeChallenge{Challenge: a.req.CodeChallenge, Method: a.req.CodeChallengeMethod}
}
func (a *authRequest) GetNonce() string                   { return a.req.Nonce }
func (a *authRequest) GetRedirectURI() string             { return a.req.RedirectURI }
func (a *authRequest) GetResponseType() oidc.ResponseType { return a.req.ResponseType }
func (a *authRequest) GetResponseMode() oidc.ResponseMode { return a.req.ResponseMode }
func (a *authRequest) GetScopes() []string                { return a.req.Scopes }
func (a *authRequest) GetState() string                   { return a.req.State }
func (a *authRequest) GetSubject() string                 { return a.subject }
func (a *authRequest) Done() bool                         { return a.subject != "" }

// grant is an issued access or refresh token.
type grant struct {
	id       string
	client   string
	subject  string
	audience []string
	scopes   []string
	at       time.Time
	expires  time.Time
	access   string // of a refresh token: its access token
}

func (g *grant) GetAMR() []string            { return []string{"pwd"} }
func (g *grant) GetAudience() []string       { return g.audience }
func (g *grant) GetAuthTime() time.Time      { return g.at }
func (g *grant) GetClientID() string         { return g.client }
func (g *grant) GetScopes() []string         { return g.scopes }
func (g *grant) GetSubject() string          { return g.subject }
func (g *grant) SetCurrentScopes(s []string) { g.scopes = s }
