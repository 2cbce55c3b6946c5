package oidc

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	zoidc "github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// AuthMethod is how a client proves who it is at the token endpoint.
type AuthMethod = zoidc.AuthMethod

// The methods. A public client (AuthNone) names itself in the form.
const (
	AuthNone  = zoidc.AuthMethodNone
	AuthBasic = zoidc.AuthMethodBasic
	AuthPost  = zoidc.AuthMethodPost
)

// TokenCall is a request that the token endpoint received.
type TokenCall struct {
	// Form is the body.
	Form url.Values
	// ClientID is who the client says it is.
	ClientID string
	// Auth is how it proved that; empty when in two ways at once, which
	// RFC 6749, section 2.3, forbids.
	Auth AuthMethod
}

func newTokenCall(r *http.Request) TokenCall {
	c := TokenCall{Form: maps.Clone(r.PostForm), ClientID: r.PostForm.Get("client_id"), Auth: AuthNone}
	if c.Form.Has("client_secret") {
		c.Auth = AuthPost
	}
	if user, _, ok := r.BasicAuth(); ok {
		// Form encoded before it is base64: RFC 6749, section 2.3.1.
		if id, err := url.QueryUnescape(user); err == nil {
			c.ClientID = id
		}
		if c.Auth == AuthPost {
			c.Auth = ""
		} else {
			c.Auth = AuthBasic
		}
	}
	return c
}

// TokenCalls are the requests that the token endpoint received, oldest first,
// but for those that a fault answered.
func (p *Provider) TokenCalls() []TokenCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tokenCalls)
}

// SetExchangeAudience makes exchanged tokens be for that client, whatever the
// exchange asks for; empty ends it. The client must be registered.
func (p *Provider) SetExchangeAudience(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchangeAudience = client
}

// token stands before the library's token endpoint: the library reads the
// client of a token exchange from the Authorization header alone, real
// providers (Kanidm) from the form.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "bad form", http.StatusBadRequest)
		return
	}
	call := newTokenCall(r)
	p.mu.Lock()
	p.tokenCalls = append(p.tokenCalls, call)
	audience := p.exchangeAudience
	p.mu.Unlock()
	if call.Form.Get("grant_type") != string(zoidc.GrantTypeTokenExchange) {
		p.library.ServeHTTP(w, r)
		return
	}
	if p.options.Demanding {
		if err := p.demand(call); err != nil {
			op.RequestError(w, r, err, nil)
			return
		}
	}
	if call.Auth != AuthBasic {
		r.SetBasicAuth(url.QueryEscape(call.ClientID), url.QueryEscape(call.Form.Get("client_secret")))
	}
	// The library reads Form.
	if audience != "" {
		r.Form.Set("audience", audience)
	}
	if !p.options.LikeKanidm {
		p.library.ServeHTTP(w, r)
		return
	}
	r.Form.Set("requested_token_type", string(zoidc.AccessTokenType))
	edited(p.library, func(answer map[string]any) { p.likeKanidm(r.Form, call.ClientID, answer) }).ServeHTTP(w, r)
}

// demand is what a strict server finds wrong with a token exchange.
func (p *Provider) demand(c TokenCall) error {
	for _, name := range []string{"grant_type", "subject_token", "subject_token_type", "client_id", "audience", "scope"} {
		switch values := c.Form[name]; {
		case len(values) == 0 || values[0] == "":
			return zoidc.ErrInvalidRequest().WithDescription("%s missing", name)
		case len(values) > 1 && name != "audience": // RFC 6749, section 3.2; RFC 8693, section 2.1
			return zoidc.ErrInvalidRequest().WithDescription("%s twice", name)
		}
	}
	p.storage.mu.Lock()
	client, ok := p.storage.clients[c.ClientID]
	p.storage.mu.Unlock()
	if want := (registered{Client: client}).AuthMethod(); !ok || c.Auth != want || c.Form.Get("client_id") != c.ClientID {
		return zoidc.ErrInvalidClient().WithDescription("the client has to authenticate as registered")
	}
	return nil
}

// likeKanidm rewrites the answer to a token exchange.
func (p *Provider) likeKanidm(form url.Values, clientID string, answer map[string]any) {
	answer["issued_token_type"] = "AccessToken"
	answer["token_type"] = "Bearer"
	answer["scope"] = form.Get("scope")
	p.storage.mu.Lock()
	subject, ok := p.storage.api[form.Get("subject_token")]
	name, client := p.storage.users[subject].Username, registered{Client: p.storage.clients[clientID]}
	p.storage.mu.Unlock()
	if ok {
		answer["id_token"] = p.Mint(p.Claims(name, map[string]any{
			"aud": form.Get("audience"), "exp": time.Now().Add(client.lifetime()).Unix(),
		}), Sign{})
	}
}
