package authn

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// tokenEndpoints is the part of the test's provider that is asked about tokens.
type tokenEndpoints struct {
	userinfo, introspection endpoint

	mutex sync.Mutex
	// changes are made to the discovery document; absent removes a member.
	changes map[string]any
	// users are the claims by token, states what introspection says of it.
	users, states map[string]map[string]any
}

// endpoint keeps what it was sent.
type endpoint struct {
	usual http.HandlerFunc

	mu     sync.Mutex
	answer http.HandlerFunc // in place of the usual
	tokens []string
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.Method == http.MethodPost {
		_ = r.ParseForm()
		token = r.PostForm.Get("token")
	}
	e.mu.Lock()
	e.tokens = append(e.tokens, token)
	answer := e.answer
	e.mu.Unlock()
	if answer == nil {
		answer = e.usual
	}
	answer(w, r)
}

func (e *endpoint) answers(h http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = h
}

func (e *endpoint) calls() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.tokens)
}

// describe adds the endpoints to the discovery document.
func (p *testIDP) describe(d map[string]any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	d["userinfo_endpoint"], d["introspection_endpoint"] = p.Server.URL+"/userinfo", p.Server.URL+"/introspect"
	for name, value := range p.changes {
		d[name] = value
		if value == absent {
			delete(d, name)
		}
	}
}

func (p *testIDP) discovers(changes map[string]any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.changes = changes
}

// issue makes the provider know a token: what /userinfo says of its user and,
// if not nil, what introspection says of the token.
func (p *testIDP) issue(token string, user, state map[string]any) string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.users == nil {
		p.users, p.states = make(map[string]map[string]any), make(map[string]map[string]any)
	}
	p.users[token], p.states[token] = user, state
	return token
}

func (p *testIDP) revoke(token string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.users, token)
	delete(p.states, token)
}

func (p *testIDP) serveUserinfo(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	user := maps.Clone(p.users[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")])
	p.mutex.Unlock()
	if user == nil || r.Method != http.MethodGet {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	writeJSON(w, user)
}

const (
	clientID     = "proxy a"
	clientSecret = "s%cret&"
)

func (p *testIDP) serveIntrospection(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	state := maps.Clone(p.states[r.PostForm.Get("token")])
	inForm := p.changes["introspection_endpoint_auth_methods_supported"] != nil
	p.mutex.Unlock()
	id, secret, _ := r.BasicAuth()
	want := [4]string{"proxy+a", "s%25cret%26", "", ""}
	if inForm {
		want = [4]string{"", "", clientID, clientSecret}
	}
	if (want != [4]string{id, secret, r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")}) || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if state == nil {
		state = map[string]any{"active": false}
	}
	writeJSON(w, state)
}

// alice is what /userinfo says by default, changed by pairs of name and value.
func alice(changes ...any) map[string]any {
	return changed(map[string]any{"sub": "alice", "groups": []string{"dev", "ops"}}, changes)
}

func changed(m map[string]any, changes []any) map[string]any {
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		m[name] = changes[i+1]
		if changes[i+1] == absent {
			delete(m, name)
		}
	}
	return m
}

// active is what introspection says of a good token.
func (w *oidcWorld) active(changes ...any) map[string]any {
	return changed(map[string]any{"active": true, "aud": "proxy-a", "sub": "alice", "exp": w.clock.Now().Unix() + 600}, changes)
}

// oidcConfig is what tests change.
type oidcConfig struct {
	k8swatch.OIDCProvider
	AudienceValidation string
	TTL                time.Duration
	OnIssuerFault      func(issuer string)
	Denied             *egress.Policy
	Exchange           *k8swatch.TokenExchange
}

// oidcWorld is an OidcProvider with what it hangs on.
type oidcWorld struct {
	*world
	idp *testIDP
}

const testTTL = 30 * time.Second

func newOIDCWorld(t testing.TB, p *testIDP, change func(*oidcConfig)) *oidcWorld {
	t.Helper()
	cfg := &oidcConfig{
		OIDCProvider: k8swatch.OIDCProvider{
			IssuerURL: p.URL, ClientID: clientID, ClientSecret: clientSecret,
			Audience: "proxy-a", CertificateAuthority: p.CA(), Claims: compile(t, p.authenticator()),
		},
		AudienceValidation: AudienceEnforce, TTL: testTTL,
	}
	if change != nil {
		change(cfg)
	}
	w := &oidcWorld{world: newWorldWith(t, Options{TokenCacheTTL: cfg.TTL, AudienceValidation: cfg.AudienceValidation, OnIssuerFault: cfg.OnIssuerFault, DeniedTargets: cfg.Denied}), idp: p}
	v, err := w.factory.New(&k8swatch.Cluster{Auth: k8swatch.Auth{ValidateAgainst: v1.ValidateOidcProvider, OIDC: &cfg.OIDCProvider, Exchange: cfg.Exchange}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Validator = v
	t.Cleanup(v.Close)
	return w
}

func fromToken(cfg *oidcConfig) { cfg.ClaimsFromToken = true }

func withMappings(t testing.TB, p *testIDP, m apiserver.ClaimMappings) func(*oidcConfig) {
	a := p.authenticator()
	a.ClaimMappings = m
	compiled := compile(t, a)
	return func(cfg *oidcConfig) { cfg.Claims = compiled }
}

// signed is a JWT that the provider knows, for a user it knows.
func (w *oidcWorld) signed(t testing.TB, changes ...any) string {
	t.Helper()
	return w.idp.issue(w.token(t, k1(), w.idp, changes...), alice(), nil)
}

// check compares the name or the reason.
func (w *oidcWorld) check(t *testing.T, token, name, reason string) *Result {
	t.Helper()
	result, err := w.Authenticate(t.Context(), token)
	got := ""
	if err == nil {
		got = result.Identity.Name
	}
	if got != name || reasonOf(err) != reason {
		t.Errorf("got %q, %v; want %q, %q", got, err, name, reason)
	}
	return result
}

// sent fails unless the endpoints were sent so many tokens.
func (w *oidcWorld) sent(t *testing.T, userinfo, introspection int) {
	t.Helper()
	if u, i := w.idp.userinfo.calls(), w.idp.introspection.calls(); u != userinfo || i != introspection {
		t.Errorf("%d tokens were sent to userinfo, %d to introspection; want %d and %d", u, i, userinfo, introspection)
	}
}

// hangs answers nothing until the caller leaves.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// shortly is a context for what does not answer.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func asJSON(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) }
}
