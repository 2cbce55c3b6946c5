package authn

import (
	"fmt"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// AUTH-7: what becomes of a token that only its provider can read.
func TestOIDCOpaque(t *testing.T) {
	p := newIDP(t, k1().JWK())
	now := newClock().Now().Unix()
	warn := func(cfg *oidcConfig) { cfg.AudienceValidation = AudienceWarn }
	off := func(cfg *oidcConfig) { cfg.AudienceValidation = AudienceOff }
	party := func(cfg *oidcConfig) { cfg.AcceptAuthorizedParty = true }
	noSecret := func(cfg *oidcConfig) { cfg.ClientSecret = "" }
	unadvertised := map[string]any{"introspection_endpoint": absent}
	methods := func(m ...string) map[string]any {
		return map[string]any{"introspection_endpoint_auth_methods_supported": m}
	}
	jwe := joseOf(`{"alg":"dir","enc":"A256GCM"}`, "", "iv", "text", "tag")
	for _, tt := range []struct {
		name       string
		token      string // "opaque" when empty
		config     []func(*oidcConfig)
		discovery  map[string]any
		state      []any // changes to what introspection says
		inactive   bool
		user       []any // changes to what userinfo says
		reason     string
		fault      string
		warned     bool
		userinfo   int // calls
		introspect int
	}{
		{name: "introspected", userinfo: 1, introspect: 1},
		{name: "JWE", token: jwe, userinfo: 1, introspect: 1},
		{name: "JWE of this issuer", token: joseOf(`{"alg":"dir","enc":"A256GCM","iss":"`+p.URL+`"}`, "", "iv", "text", "tag"), userinfo: 1, introspect: 1},
		{name: "JWE of another", token: joseOf(`{"alg":"dir","enc":"A256GCM","iss":"https://other.example.test"}`, "", "iv", "text", "tag"), reason: errUnknownIssuer.Reason},
		{name: "JWS without iss", token: joseOf(`{"alg":"RS256"}`, `{"sub":"alice"}`, "s"), config: []func(*oidcConfig){off}, reason: errUnknownIssuer.Reason},
		{name: "JWS without iss", token: joseOf(`{"alg":"RS256"}`, `{"sub":"alice"}`), config: []func(*oidcConfig){off}, reason: errMalformed.Reason},
		{name: "claims of the token", config: []func(*oidcConfig){fromToken}, reason: errOpaque.Reason},
		{name: "claims of the token, off", config: []func(*oidcConfig){fromToken, off}, reason: errOpaque.Reason},
		{name: "no secret", config: []func(*oidcConfig){noSecret}, reason: errNotIntrospected.Reason},
		{name: "no introspection", discovery: unadvertised, reason: errNotIntrospected.Reason},
		{name: "introspection over http", discovery: map[string]any{"introspection_endpoint": "http://idp.example.test/"}, reason: errNotIntrospected.Reason},
		{name: "introspection with user info", discovery: map[string]any{"introspection_endpoint": "https://a:b@idp.example.test/"}, reason: errNotIntrospected.Reason},
		{name: "introspection a number", discovery: map[string]any{"introspection_endpoint": 1}, reason: errNotIntrospected.Reason},
		{name: "by form", discovery: methods("private_key_jwt", "client_secret_post"), userinfo: 1, introspect: 1},
		{name: "no secret wanted", discovery: methods("private_key_jwt"), reason: errNotIntrospected.Reason},
		{name: "methods of no kind", discovery: map[string]any{"introspection_endpoint_auth_methods_supported": 1}, reason: errNotIntrospected.Reason},

		{name: "warn", config: []func(*oidcConfig){warn}, userinfo: 1, introspect: 1},
		{name: "warn, another audience", config: []func(*oidcConfig){warn}, state: []any{"aud", "proxy-b"}, warned: true, userinfo: 1, introspect: 1},
		{name: "warn, inactive", config: []func(*oidcConfig){warn}, inactive: true, reason: errInactive.Reason, introspect: 1},
		{name: "warn, no secret", config: []func(*oidcConfig){warn, noSecret}, warned: true, userinfo: 1},
		{name: "warn, no introspection", config: []func(*oidcConfig){warn}, discovery: unadvertised, warned: true, userinfo: 1},
		{name: "warn, no introspection, no sub", config: []func(*oidcConfig){warn}, discovery: unadvertised, user: []any{"sub", absent}, fault: userinfoEndpoint + ": its answer names no subject", userinfo: 1},
		{name: "off", config: []func(*oidcConfig){off}, inactive: true, userinfo: 1},
		{name: "off, no sub", config: []func(*oidcConfig){off}, user: []any{"sub", ""}, fault: userinfoEndpoint + ": its answer names no subject", userinfo: 1},

		{name: "inactive", inactive: true, reason: errInactive.Reason, introspect: 1},
		{name: "active as text", state: []any{"active", "true"}, fault: introspectionEndpoint + ": its answer does not say whether the token is active", introspect: 1},
		{name: "active 1", state: []any{"active", 1}, fault: introspectionEndpoint + ": its answer does not say whether the token is active", introspect: 1},
		{name: "active null", state: []any{"active", nil}, fault: introspectionEndpoint + ": its answer does not say whether the token is active", introspect: 1},
		{name: "ACTIVE", state: []any{"active", false, "ACTIVE", true}, reason: errInactive.Reason, introspect: 1},
		{name: "audiences", state: []any{"aud", []string{"x", "proxy-a"}}, userinfo: 1, introspect: 1},
		{name: "another audience", state: []any{"aud", "proxy-b"}, reason: errAudience.Reason, introspect: 1},
		{name: "no audience", state: []any{"aud", absent}, reason: errAudience.Reason, introspect: 1},
		{name: "audience a number", state: []any{"aud", 1}, fault: introspectionEndpoint + ": its answer has a member of the wrong type", introspect: 1},
		{name: "client_id does not count", state: []any{"aud", absent, "client_id", "proxy-a"}, reason: errAudience.Reason, introspect: 1},
		{name: "client_id", config: []func(*oidcConfig){party}, state: []any{"aud", absent, "client_id", "proxy-a"}, userinfo: 1, introspect: 1},
		{name: "azp", config: []func(*oidcConfig){party}, state: []any{"aud", "x", "azp", "proxy-a"}, userinfo: 1, introspect: 1},
		{name: "azp before client_id", config: []func(*oidcConfig){party}, state: []any{"aud", "x", "azp", "y", "client_id", "proxy-a"}, reason: errAudience.Reason, introspect: 1},
		{name: "azp null", config: []func(*oidcConfig){party}, state: []any{"aud", "x", "azp", nil, "client_id", "proxy-a"}, reason: errAudience.Reason, introspect: 1},
		{name: "expired", state: []any{"exp", now}, reason: errExpired.Reason, introspect: 1},
		{name: "exp as text", state: []any{"exp", "4102444800"}, userinfo: 1, introspect: 1},
		{name: "expired, as text", state: []any{"exp", fmt.Sprint(now)}, reason: errExpired.Reason, introspect: 1},
		{name: "exp no number", state: []any{"exp", "2030-01-02"}, fault: introspectionEndpoint + ": its answer has a member of the wrong type", introspect: 1},
		{name: "exp true", state: []any{"exp", true}, fault: introspectionEndpoint + ": its answer has a member of the wrong type", introspect: 1},
		{name: "no exp", state: []any{"exp", absent}, userinfo: 1, introspect: 1},
		{name: "exp null", state: []any{"exp", nil}, userinfo: 1, introspect: 1},
		{name: "nbf now", state: []any{"nbf", now + 300}, userinfo: 1, introspect: 1},
		{name: "nbf later", state: []any{"nbf", now + 301}, reason: errNotYetValid.Reason, introspect: 1},
		{name: "nbf as text", state: []any{"nbf", "0"}, userinfo: 1, introspect: 1},
		{name: "nbf later, as text", state: []any{"nbf", fmt.Sprint(now + 301)}, reason: errNotYetValid.Reason, introspect: 1},
		{name: "issuer", state: []any{"iss", p.URL}, userinfo: 1, introspect: 1},
		{name: "another issuer", state: []any{"iss", "https://other.example.test"}, reason: errUnknownIssuer.Reason, introspect: 1},
		{name: "issuer a number", state: []any{"iss", 1}, fault: introspectionEndpoint + ": its answer has a member of the wrong type", introspect: 1},
		{name: "no sub", state: []any{"sub", absent}, userinfo: 1, introspect: 1},
		{name: "sub null", state: []any{"sub", nil}, userinfo: 1, introspect: 1},
		{name: "sub a number", state: []any{"sub", 1}, fault: introspectionEndpoint + ": its answer has a member of the wrong type", introspect: 1},
		{name: "another sub of userinfo", user: []any{"sub", "bob"}, reason: errSubject.Reason, userinfo: 1, introspect: 1},
		{name: "no sub of userinfo", user: []any{"sub", absent}, fault: userinfoEndpoint + ": its answer names no subject", userinfo: 1, introspect: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.discovers(tt.discovery)
			userinfo, introspections := p.userinfo.calls(), p.introspection.calls()
			w := newOIDCWorld(t, p, func(cfg *oidcConfig) {
				for _, change := range tt.config {
					change(cfg)
				}
			})
			token := tt.token
			if token == "" {
				token = issuertest.Encode([]byte("opaque-" + tt.name))
			}
			state := w.active(tt.state...)
			if tt.inactive {
				state = nil
			}
			p.issue(token, alice(tt.user...), state)
			name := "alice"
			if tt.reason != "" {
				name = ""
			}
			if tt.fault != "" {
				w.unavailable(t, token, p.URL+": "+tt.fault)
			} else if result := w.check(t, token, name, tt.reason); result != nil && result.WrongAudience != tt.warned {
				t.Errorf("WrongAudience is %t", result.WrongAudience)
			}
			w.sent(t, userinfo+tt.userinfo, introspections+tt.introspect)
			for e, calls := range map[*endpoint]int{&p.userinfo: tt.userinfo, &p.introspection: tt.introspect} {
				if n := len(e.tokens); calls > 0 && e.tokens[n-1] != token {
					t.Errorf("another token was sent: %q", e.tokens[n-1])
				}
			}
		})
	}
}

// AUTH-12: how long the provider's word counts, and that a revoked token ends.
func TestOIDCTimes(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, nil)
	now := w.clock.Now()
	short := p.issue("short", alice(), w.active("exp", now.Unix()+10))
	long := p.issue("long", alice(), w.active())
	endless := p.issue("endless", alice(), w.active("exp", absent))
	jwt := w.signed(t)
	for token, end := range map[string]time.Duration{short: 10 * time.Second, long: 600 * time.Second, endless: testTTL, jwt: 600 * time.Second} {
		if result := w.check(t, token, "alice", ""); result != nil && !result.Expires.Equal(now.Add(end)) {
			t.Errorf("%s ends after %v, want %v", token, result.Expires.Sub(now), end)
		}
	}
	w.sent(t, 4, 3)
	for _, token := range []string{short, long, endless, jwt} {
		p.revoke(token)
	}
	w.clock.Step(10*time.Second - time.Nanosecond)
	for _, token := range []string{short, long, endless, jwt} {
		w.check(t, token, "alice", "")
	}
	w.sent(t, 4, 3)
	w.clock.Step(time.Nanosecond)
	w.check(t, short, "", errInactive.Reason)
	w.check(t, short, "", errInactive.Reason) // remembered
	w.sent(t, 4, 4)
	w.clock.Step(testTTL - 10*time.Second)
	w.check(t, long, "", errInactive.Reason)
	w.check(t, endless, "", errInactive.Reason)
	w.check(t, jwt, "", errNotAccepted.Reason)
	w.sent(t, 5, 6)

	// A refusal is remembered for a moment only.
	p.issue(long, alice(), w.active())
	w.check(t, long, "", errInactive.Reason)
	w.clock.Step(refusedFor)
	w.check(t, long, "alice", "")
}

// With claims_source Token the provider is not asked: ten minutes (AUTH-12).
func TestOIDCTokenTimes(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, fromToken)
	token := w.token(t, k1(), p, "exp", w.clock.Now().Add(time.Hour).Unix())
	w.check(t, token, "alice", "")
	w.clock.Step(testTTL)
	key := digest(token)
	if _, err, ok := w.Validator.(*caching).lookup(&key); err != nil || !ok {
		t.Errorf("not remembered after %v", testTTL)
	}
	w.sent(t, 0, 0)
}

// AUTH-12: with a token_cache_ttl of 0 the provider is asked each time.
func TestOIDCWithoutCache(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, func(cfg *oidcConfig) { cfg.TTL = 0 })
	token := p.issue("opaque", alice(), w.active())
	for range 3 {
		w.check(t, token, "alice", "")
	}
	w.sent(t, 3, 3)
}

// The answers of one configuration do not count for another, and end with it.
func TestOIDCScopes(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, nil)
	token := p.issue("opaque", alice(), w.active())
	w.check(t, token, "alice", "")
	if n := w.cache.Len(); n != 1 {
		t.Errorf("%d tokens are remembered", n)
	}
	w.Validator.Close()
	if n := w.cache.Len(); n != 0 {
		t.Errorf("%d tokens are remembered after the end", n)
	}
}

func TestNewOIDCRefuses(t *testing.T) {
	good := oidcConfig{OIDCProvider: k8swatch.OIDCProvider{IssuerURL: "https://idp.example.test", Audience: "a"}, AudienceValidation: AudienceEnforce}
	refuses := func(cfg oidcConfig) (*Factory, error) {
		f := NewFactory(Options{AudienceValidation: cfg.AudienceValidation})
		_, err := f.newOIDC(&cfg.OIDCProvider)
		return f, err
	}
	for want, change := range map[error]func(*oidcConfig){
		errNoAudience: func(cfg *oidcConfig) { cfg.Audience = "" },
		errValidation: func(cfg *oidcConfig) { cfg.AudienceValidation = "Enforce" },
	} {
		cfg := good
		change(&cfg)
		if _, err := refuses(cfg); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	cfg := good
	cfg.CertificateAuthority = "x"
	f, err := refuses(cfg)
	if err == nil {
		t.Error("accepted a certificate authority without certificates")
	}
	if f.keys.Len() != 0 {
		t.Error("a key set is left over")
	}
}
