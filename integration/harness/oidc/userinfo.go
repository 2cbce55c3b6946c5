package oidc

import (
	"context"
	"slices"
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func (s *storage) setUserinfo(info *oidc.UserInfo, subject string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.users[subject]
	if !ok {
		return errNotFound
	}
	info.Subject = u.Subject
	for name, value := range u.claims() {
		info.AppendClaims(name, value)
	}
	return nil
}

// SetUserinfoFromScopes implements op.Storage, which has moved on to the next.
func (s *storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest: id_tokens.
func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, r op.IDTokenRequest, _ []string) error {
	return s.setUserinfo(info, r.GetSubject())
}

// live finds the grant of an access token. A JWT that Mint made has none: the
// library has verified its signature, and that is enough.
func (s *storage) live(id, subject string) (*grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked[id] {
		return nil, errExpired
	}
	if g, ok := s.access[id]; ok {
		if time.Now().After(g.expires) {
			return nil, errExpired
		}
		return g, nil
	}
	return &grant{id: id, subject: subject}, nil
}

// SetUserinfoFromToken implements op.Storage: the userinfo endpoint.
func (s *storage) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, id, subject, _ string) error {
	if _, err := s.live(id, subject); err != nil {
		return err
	}
	return s.setUserinfo(info, subject)
}

// SetIntrospectionFromToken implements op.Storage. Only a client among the
// audience learns about a token (RFC 7662, section 4).
func (s *storage) SetIntrospectionFromToken(_ context.Context, answer *oidc.IntrospectionResponse, id, subject, client string) error {
	g, err := s.live(id, subject)
	if err != nil {
		return err
	}
	if !slices.Contains(g.audience, client) && g.client != client {
		return errNotFound
	}
	info := new(oidc.UserInfo)
	if err := s.setUserinfo(info, subject); err != nil {
		return err
	}
	answer.SetUserInfo(info)
	answer.Subject = subject
	answer.Issuer = s.issuer
	answer.Audience = g.audience
	answer.Expiration = oidc.FromTime(g.expires)
	answer.Scope = g.scopes
	answer.ClientID = g.client
	answer.TokenType = oidc.BearerToken
	return nil
}

// GetPrivateClaimsFromScopes implements op.Storage: JWT access tokens name the
// subject and nothing more, the rest is for userinfo.
func (s *storage) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

// VerifyExchangeSubjectToken implements op.TokenExchangeTokensVerifierStorage:
// the API tokens of machines, which the library does not know.
func (s *storage) VerifyExchangeSubjectToken(_ context.Context, token string, _ oidc.TokenType) (string, string, map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	subject, ok := s.api[token]
	if !ok {
		return "", "", nil, errNotFound
	}
	return token, subject, nil, nil
}

// VerifyExchangeActorToken implements op.TokenExchangeTokensVerifierStorage.
func (s *storage) VerifyExchangeActorToken(context.Context, string, oidc.TokenType) (string, string, map[string]any, error) {
	return "", "", nil, errNotFound
}

// ValidateTokenExchangeRequest implements op.TokenExchangeStorage.
func (s *storage) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked[r.GetExchangeSubjectTokenIDOrToken()] {
		return oidc.ErrInvalidRequest().WithDescription("subject_token is revoked")
	}
	if _, ok := s.users[r.GetExchangeSubject()]; !ok {
		return oidc.ErrInvalidRequest().WithDescription("no such subject")
	}
	for _, aud := range r.GetAudience() {
		if _, ok := s.clients[aud]; !ok {
			return oidc.ErrInvalidTarget().WithDescription("no such audience")
		}
	}
	if r.GetRequestedTokenType() == "" {
		r.SetRequestedTokenType(oidc.AccessTokenType)
	}
	return nil
}

// CreateTokenExchangeRequest implements op.TokenExchangeStorage.
func (s *storage) CreateTokenExchangeRequest(context.Context, op.TokenExchangeRequest) error {
	return nil
}

// GetPrivateClaimsFromTokenExchangeRequest implements op.TokenExchangeStorage.
func (s *storage) GetPrivateClaimsFromTokenExchangeRequest(context.Context, op.TokenExchangeRequest) (map[string]any, error) {
	return nil, nil
}

// SetUserinfoFromTokenExchangeRequest implements op.TokenExchangeStorage.
func (s *storage) SetUserinfoFromTokenExchangeRequest(_ context.Context, info *oidc.UserInfo, r op.TokenExchangeRequest) error {
	return s.setUserinfo(info, r.GetSubject())
}

// The library finds optional abilities by type assertion: a method that does
// not match would be left out without a word.
var (
	_ op.Storage                            = (*storage)(nil)
	_ op.CanSetUserinfoFromRequest          = (*storage)(nil)
	_ op.ClientCredentialsStorage           = (*storage)(nil)
	_ op.TokenExchangeStorage               = (*storage)(nil)
	_ op.TokenExchangeTokensVerifierStorage = (*storage)(nil)
)
