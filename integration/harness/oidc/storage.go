package oidc

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

var (
	errNotFound = errors.New("not found")
	errExpired  = errors.New("expired or revoked")
)

// storage is what the library keeps, in memory.
type storage struct {
	keys   *keyRing
	issuer string

	mu      sync.Mutex
	users   map[string]User   // by subject
	clients map[string]Client // by id
	auth    map[string]*authRequest
	codes   map[string]string // code -> auth request id
	access  map[string]*grant
	refresh map[string]*grant
	revoked map[string]bool
	api     map[string]string // API token -> subject
}

func newStorage(issuer string, keys *keyRing, users []User, clients []Client) *storage {
	s := &storage{
		keys: keys, issuer: issuer,
		users: map[string]User{}, clients: map[string]Client{},
		auth: map[string]*authRequest{}, codes: map[string]string{},
		access: map[string]*grant{}, refresh: map[string]*grant{},
		revoked: map[string]bool{}, api: map[string]string{},
	}
	for _, u := range users {
		s.users[u.Subject] = u
	}
	for _, c := range clients {
		s.clients[c.ID] = c
	}
	return s
}

func (s *storage) userNamed(name string) (User, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.users {
		if u.Username == name {
			return u, nil
		}
	}
	return User{}, errNotFound
}

// CreateAuthRequest implements op.Storage.
func (s *storage) CreateAuthRequest(_ context.Context, r *oidc.AuthRequest, subject string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &authRequest{id: rand.Text(), req: *r, subject: subject, at: time.Now()}
	s.auth[a.id] = a
	return a, nil
}

// AuthRequestByID implements op.Storage.
func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.auth[id]
	if !ok {
		return nil, errNotFound
	}
	snapshot := *a
	return &snapshot, nil
}

// finish says who the user of an authorization request is.
func (s *storage) finish(id, subject string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.auth[id]
	if !ok {
		return errNotFound
	}
	a.subject, a.at = subject, time.Now()
	return nil
}

// AuthRequestByCode implements op.Storage. A code works once.
func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id, ok := s.codes[code]
	delete(s.codes, code)
	s.mu.Unlock()
	if !ok {
		return nil, errNotFound
	}
	return s.AuthRequestByID(ctx, id)
}

// SaveAuthCode implements op.Storage.
func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = id
	return nil
}

// DeleteAuthRequest implements op.Storage.
func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.auth, id)
	return nil
}

// newGrant remembers an access token for a request of any kind.
func (s *storage) newGrant(request op.TokenRequest) *grant {
	g := &grant{
		id: rand.Text(), subject: request.GetSubject(), scopes: request.GetScopes(),
		audience: slices.Clone(request.GetAudience()), at: time.Now(),
	}
	if r, ok := request.(interface{ GetClientID() string }); ok {
		g.client = r.GetClientID()
	}
	if r, ok := request.(interface{ GetAuthTime() time.Time }); ok {
		g.at = r.GetAuthTime()
	}
	client := registered{Client: s.clients[g.client]}
	for _, aud := range client.Audience {
		if !slices.Contains(g.audience, aud) {
			g.audience = append(g.audience, aud)
		}
	}
	g.expires = time.Now().Add(client.lifetime())
	s.access[g.id] = g
	return g
}

// CreateAccessToken implements op.Storage.
func (s *storage) CreateAccessToken(_ context.Context, request op.TokenRequest) (string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.newGrant(request)
	return g.id, g.expires, nil
}

// CreateAccessAndRefreshTokens implements op.Storage; refresh tokens rotate.
func (s *storage) CreateAccessAndRefreshTokens(_ context.Context, request op.TokenRequest, current string) (string, string, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current != "" {
		old, ok := s.refresh[current]
		if !ok {
			return "", "", time.Time{}, op.ErrInvalidRefreshToken
		}
		delete(s.refresh, current)
		delete(s.access, old.access)
	}
	g := s.newGrant(request)
	r := *g
	r.id, r.access, r.expires = "refresh-"+rand.Text(), g.id, time.Now().Add(time.Hour)
	s.refresh[r.id] = &r
	return g.id, r.id, g.expires, nil
}

// TokenRequestByRefreshToken implements op.Storage.
func (s *storage) TokenRequestByRefreshToken(_ context.Context, token string) (op.RefreshTokenRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.refresh[token]
	if !ok || time.Now().After(g.expires) {
		return nil, op.ErrInvalidRefreshToken
	}
	snapshot := *g
	return &snapshot, nil
}

// TerminateSession implements op.Storage.
func (s *storage) TerminateSession(_ context.Context, subject, client string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, grants := range []map[string]*grant{s.access, s.refresh} {
		for id, g := range grants {
			if g.subject == subject && g.client == client {
				delete(grants, id)
			}
		}
	}
	return nil
}

// RevokeToken implements op.Storage.
func (s *storage) RevokeToken(_ context.Context, token, _, _ string) *oidc.Error {
	s.revoke(token)
	return nil
}

// revoke ends the access token of that id, or a refresh token and the access
// token that came with it.
func (s *storage) revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.refresh[id]; ok {
		delete(s.access, g.access)
		s.revoked[g.access] = true
	}
	delete(s.refresh, id)
	delete(s.access, id)
	s.revoked[id] = true
}

// GetRefreshTokenInfo implements op.Storage.
func (s *storage) GetRefreshTokenInfo(_ context.Context, _, token string) (string, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.refresh[token]
	if !ok {
		return "", "", op.ErrInvalidRefreshToken
	}
	return g.subject, g.id, nil
}

// GetClientByClientID implements op.Storage.
func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clients[id]
	if !ok {
		return nil, errNotFound
	}
	return registered{Client: c, issuer: s.issuer}, nil
}

// AuthorizeClientIDSecret implements op.Storage.
func (s *storage) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.clients[id]; !ok || c.Secret != secret {
		return errNotFound
	}
	return nil
}

// ClientCredentials implements op.ClientCredentialsStorage.
func (s *storage) ClientCredentials(ctx context.Context, id, secret string) (op.Client, error) {
	if err := s.AuthorizeClientIDSecret(ctx, id, secret); err != nil {
		return nil, err
	}
	return s.GetClientByClientID(ctx, id)
}

// ClientCredentialsTokenRequest implements op.ClientCredentialsStorage.
func (s *storage) ClientCredentialsTokenRequest(_ context.Context, id string, scopes []string) (op.TokenRequest, error) {
	s.mu.Lock()
	name := s.clients[id].MachineUser
	s.mu.Unlock()
	u, err := s.userNamed(name)
	if err != nil {
		return nil, oidc.ErrUnauthorizedClient().WithParent(err)
	}
	return &grant{client: id, subject: u.Subject, audience: []string{id}, scopes: scopes, at: time.Now()}, nil
}

// GetKeyByIDAndClientID implements op.Storage; no client signs assertions.
func (s *storage) GetKeyByIDAndClientID(context.Context, string, string) (*jose.JSONWebKey, error) {
	return nil, errNotFound
}

// ValidateJWTProfileScopes implements op.Storage.
func (s *storage) ValidateJWTProfileScopes(_ context.Context, _ string, scopes []string) ([]string, error) {
	return scopes, nil
}

// Health implements op.Storage.
func (s *storage) Health(context.Context) error { return nil }
