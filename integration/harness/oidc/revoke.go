package oidc

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// RevokeAPIToken withdraws a token of APIToken or APITokenJWS: it cannot be
// exchanged any more. What it was exchanged for lives on until it expires.
func (p *Provider) RevokeAPIToken(token string) {
	p.storage.mu.Lock()
	defer p.storage.mu.Unlock()
	if _, ok := p.storage.api[token]; !ok {
		panic("oidc: no such API token")
	}
	delete(p.storage.api, token)
}

// RevokeAccessToken withdraws an access token, opaque or a JWT, minted ones
// included: userinfo refuses it, introspection says that it is not active, and
// it cannot be exchanged. Who verifies a JWT alone notices nothing.
func (p *Provider) RevokeAccessToken(token string) {
	id := p.tokenID(token)
	if id == "" {
		panic("oidc: no access token of this provider")
	}
	p.storage.revoke(id)
}

// tokenID is the id of an access token, "" when it has none. The library
// encrypts it with the subject in an opaque token.
func (p *Provider) tokenID(token string) string {
	if text, err := p.provider.Crypto().Decrypt(token); err == nil {
		id, _, _ := strings.Cut(text, ":")
		return id
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		ID string `json:"jti"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.ID
}
