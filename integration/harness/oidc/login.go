package oidc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	zoidc "github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

var (
	errNoRedirect = errors.New("no redirect to the client")
	errRefused    = errors.New("the provider refused")
)

// Tokens is the answer of the token endpoint.
type Tokens struct {
	AccessToken     string `json:"access_token"`
	IDToken         string `json:"id_token"`
	RefreshToken    string `json:"refresh_token"`
	TokenType       string `json:"token_type"`
	IssuedTokenType string `json:"issued_token_type"`
	ExpiresIn       int    `json:"expires_in"`
	Scope           string `json:"scope"`
}

// login is the page that a browser would show: it logs in the user that the
// query names, without a question.
func (p *Provider) login(w http.ResponseWriter, r *http.Request) {
	u, err := p.storage.userNamed(r.URL.Query().Get("user"))
	if err != nil {
		http.Error(w, "who are you?", http.StatusForbidden)
		return
	}
	id := r.URL.Query().Get("id")
	if err := p.storage.finish(id, u.Subject); err != nil {
		http.Error(w, "no such request", http.StatusNotFound)
		return
	}
	ctx := op.ContextWithIssuer(r.Context(), p.Issuer)
	http.Redirect(w, r, op.AuthCallbackURL(p.provider)(ctx, id), http.StatusFound)
}

// Browse does what a browser and a user named username do with the URL of an
// authorization request: it follows the redirects, logs in, and returns the
// redirect back to the client, which it does not follow.
func (p *Provider) Browse(ctx context.Context, authorizeURL, username string) (*url.URL, error) {
	client := p.Client()
	defer client.CloseIdleConnections()
	return Browse(ctx, client, p.Issuer, authorizeURL, username)
}

// Browse is Provider.Browse in another process than that of the provider. It changes
// the client.
func Browse(ctx context.Context, client *http.Client, issuer, authorizeURL, username string) (*url.URL, error) {
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	next := authorizeURL
	for range 10 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, next, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("logging in: %w", err)
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		resp.Body.Close()
		location, err := resp.Location()
		if err != nil {
			return nil, fmt.Errorf("logging in: %w: %s: %s", errNoRedirect, resp.Status, body)
		}
		if !strings.HasPrefix(location.String(), issuer+"/") {
			return location, nil
		}
		if location.Path == issuerPath+loginPath {
			q := location.Query()
			q.Set("user", username)
			location.RawQuery = q.Encode()
		}
		next = location.String()
	}
	return nil, fmt.Errorf("logging in: %w", errNoRedirect)
}

// Login runs the authorization code flow with PKCE for a user and returns what
// the client gets. Scopes default to openid, profile, email and groups.
func (p *Provider) Login(ctx context.Context, username, clientID string, scopes ...string) (*Tokens, error) {
	if len(scopes) == 0 {
		scopes = []string{"openid", "profile", "email", "groups"}
	}
	const redirect = "http://127.0.0.1:1/callback"
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	authorize := p.Issuer + "/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {redirect},
		"scope": {strings.Join(scopes, " ")}, "state": {state}, "nonce": {rand.Text()},
		"code_challenge": {zoidc.NewSHACodeChallenge(verifier)}, "code_challenge_method": {"S256"},
	}.Encode()
	back, err := p.Browse(ctx, authorize, username)
	if err != nil {
		return nil, err
	}
	if got := back.Query(); got.Get("state") != state || got.Get("code") == "" {
		return nil, fmt.Errorf("logging in: %w: %s", errRefused, back)
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")},
		"redirect_uri": {redirect}, "code_verifier": {verifier}, "client_id": {clientID},
	}
	p.storage.mu.Lock()
	secret := p.storage.clients[clientID].Secret
	p.storage.mu.Unlock()
	if secret != "" {
		form.Set("client_secret", secret)
	}
	return p.PostToken(ctx, form)
}

// PostToken posts a form to the token endpoint.
func (p *Provider) PostToken(ctx context.Context, form url.Values) (*Tokens, error) {
	client := p.Client()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Issuer+tokenPath, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for a token: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("asking for a token: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for a token: %w: %s: %s", errRefused, resp.Status, body)
	}
	var t Tokens
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("asking for a token: %w", err)
	}
	return &t, nil
}
