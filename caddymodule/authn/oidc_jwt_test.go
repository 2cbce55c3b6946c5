package authn

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// AUTH-6: the claims are those of /userinfo, and the end is that of the token.
func TestOIDCUserinfo(t *testing.T) {
	p := newIDP(t, k1().JWK())
	w := newOIDCWorld(t, p, nil)
	token := p.issue(w.token(t, k1(), p, "groups", []string{"of the token"}), alice(), nil)
	result := w.check(t, token, "alice", "")
	want := &Result{
		Identity: &identity.Identity{Name: "alice", Groups: []string{"dev", "ops"}},
		Expires:  w.clock.Now().Add(600 * time.Second),
	}
	if diff := cmp.Diff(want, result, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Error(diff)
	}
	w.sent(t, 1, 0)
	if got := p.userinfo.tokens[0]; got != token {
		t.Errorf("userinfo was sent %q", got)
	}
}

// AUTH-6, AUTH-7, TOK-03, TOK-05: what is refused by the token alone, whatever
// the claims come from. No such token is sent anywhere.
func TestOIDCSigned(t *testing.T) {
	p := newIDP(t, k1().JWK(), by("es256", jose.ES256, issuertest.EC256()).JWK())
	other := newIDP(t, k1().JWK())
	off := func(cfg *oidcConfig) { cfg.AudienceValidation = AudienceOff }
	warn := func(cfg *oidcConfig) { cfg.AudienceValidation = AudienceWarn }
	party := func(cfg *oidcConfig) { cfg.AcceptAuthorizedParty = true }
	now := newClock().Now().Unix()
	es256 := by("es256", jose.ES256, issuertest.EC256())
	for _, tt := range []struct {
		name    string
		by      signer
		of      *testIDP
		config  func(*oidcConfig)
		changes []any
		reason  string
		warned  bool
		// tokenReason is for claims_source Token alone.
		tokenReason string
	}{
		{name: "good"},
		{name: "ES256", by: es256},
		{name: "several audiences", changes: []any{"aud", []string{"x", "proxy-a"}}},
		{name: "another audience", changes: []any{"aud", "proxy-b"}, reason: errAudience.Reason},
		{name: "the audience in capitals", changes: []any{"aud", "PROXY-A"}, reason: errAudience.Reason},
		{name: "another audience, warn", config: warn, changes: []any{"aud", "proxy-b"}, warned: true},
		{name: "the audience, warn", config: warn},
		{name: "another audience, off", config: off, changes: []any{"aud", "proxy-b"}},
		{name: "no audience", changes: []any{"aud", absent}, reason: errAudience.Reason},
		{name: "no audience, warn", config: warn, changes: []any{"aud", absent}, warned: true},
		{name: "no audience, off", config: off, changes: []any{"aud", absent}},
		{name: "audience a number, off", config: off, changes: []any{"aud", 1}, reason: errClaims.Reason},
		{name: "azp does not count", changes: []any{"aud", "proxy-b", "azp", "proxy-a"}, reason: errAudience.Reason},
		{name: "azp", config: party, changes: []any{"aud", "proxy-b", "azp", "proxy-a"}},
		{name: "azp without aud", config: party, changes: []any{"aud", absent, "azp", "proxy-a"}},
		{name: "another azp", config: party, changes: []any{"aud", "proxy-b", "azp", "proxy-b"}, reason: errAudience.Reason},
		{name: "azp in a list", config: party, changes: []any{"aud", "proxy-b", "azp", []string{"proxy-a"}}, reason: errAudience.Reason},
		{name: "client_id is not azp", config: party, changes: []any{"aud", "proxy-b", "client_id", "proxy-a"}, reason: errAudience.Reason},
		{name: "AZP", config: party, changes: []any{"aud", "proxy-b", "AZP", "proxy-a"}, reason: errAudience.Reason},

		{name: "another issuer", of: other, config: off, reason: errUnknownIssuer.Reason},
		{name: "issuer with a slash", config: off, changes: []any{"iss", p.URL + "/"}, reason: errUnknownIssuer.Reason},
		{name: "no issuer", config: off, changes: []any{"iss", absent}, reason: errUnknownIssuer.Reason},
		{name: "issuer null", config: off, changes: []any{"iss", nil}, reason: errMalformed.Reason},
		{name: "a second issuer", config: off, changes: []any{"ISS", "https://other.example.test"}, reason: errMalformed.Reason},

		{name: "ahead by 20 s", changes: []any{"nbf", now + 20, "iat", now + 20}},
		{name: "nbf in ten minutes", changes: []any{"nbf", now + 600}, reason: errNotYetValid.Reason},
		{name: "expired", config: off, changes: []any{"exp", now - 5}, reason: errExpired.Reason},
		{name: "expires now", changes: []any{"exp", now}, reason: errExpired.Reason},
		{name: "exp missing", changes: []any{"exp", absent}, reason: errClaims.Reason},
		{name: "exp as text", changes: []any{"exp", "4102444800"}, reason: errClaims.Reason},
		{name: "exp 1e300", changes: []any{"exp", json.RawMessage("1e300")}, reason: errClaims.Reason},

		{name: "another key", by: by("k1", jose.RS256, issuertest.RSA2()), reason: errSignature.Reason},
		{name: "unknown key", by: k2(), reason: errUnknownKey.Reason},
		{name: "RS256 by the kid of an EC key", by: by("es256", jose.RS256, issuertest.RSA1()), reason: errSignature.Reason},
		{name: "no sub", changes: []any{"sub", absent}, tokenReason: errClaims.Reason},
		{name: "sub null", changes: []any{"sub", nil}},
		{name: "sub empty", changes: []any{"sub", ""}},
		{name: "sub a number", changes: []any{"sub", 42}, reason: errClaims.Reason},
	} {
		for source, from := range map[string]func(*oidcConfig){"UserInfo": nil, "Token": fromToken} {
			t.Run(tt.name+"/"+source, func(t *testing.T) {
				users, introspections := p.userinfo.calls(), p.introspection.calls()
				w := newOIDCWorld(t, p, func(cfg *oidcConfig) {
					for _, change := range []func(*oidcConfig){tt.config, from} {
						if change != nil {
							change(cfg)
						}
					}
				})
				key, of := tt.by, tt.of
				if key.Key == nil {
					key = k1()
				}
				if of == nil {
					of = p
				}
				token := p.issue(w.token(t, key, of, tt.changes...), alice(), w.active())
				reason, name := tt.reason, "alice"
				if from != nil && tt.tokenReason != "" {
					reason = tt.tokenReason
				}
				if tt.name == "sub null" && from != nil {
					name = "" // EmptyName comes later
				}
				if tt.name == "sub empty" { // EmptyName comes later; userinfo cannot be held against it
					name = ""
					if from == nil {
						reason = errClaims.Reason
					}
				}
				if reason != "" {
					name = ""
				}
				if result := w.check(t, token, name, reason); result != nil && result.WrongAudience != tt.warned {
					t.Errorf("WrongAudience is %t", result.WrongAudience)
				}
				if reason == "" && from == nil {
					users++
				}
				w.sent(t, users, introspections)
			})
		}
	}
	if n := other.userinfo.calls() + int(other.Discoveries.Load()); n != 0 {
		t.Errorf("the other issuer was asked %d times", n)
	}
}

// TOK-03: forgeries of another shape.
func TestOIDCForged(t *testing.T) {
	p := newIDP(t, k1().JWK())
	for source, from := range map[string]func(*oidcConfig){"UserInfo": nil, "Token": fromToken} {
		t.Run(source, func(t *testing.T) {
			w := newOIDCWorld(t, p, from)
			payload := mustJSON(w.claimsOf(p))
			good := k1().Sign(t, nil, payload)
			head, rest, _ := strings.Cut(good, ".")
			body, signature, _ := strings.Cut(rest, ".")
			for reason, tokens := range map[string][]string{
				errMalformed.Reason: {
					issuertest.Encode([]byte(`{"alg":"none"}`)) + "." + body + ".",
					issuertest.Encode([]byte(`{"alg":"nOnE"}`)) + "." + body + "." + signature,
					head + "." + body, good + "=", "x" + good, head + "." + body + "." + signature + ".x",
					k1().Sign(t, map[string]any{"crit": []string{"exp"}}, payload),
				},
				errAlgorithm.Reason: {issuertest.Encode([]byte(`{"alg":"HS256"}`)) + "." + body + "." + signature},
				errSignature.Reason: {
					head + "." + body + "." + string(nextCharacter(signature[0])) + signature[1:],
					by("k1", jose.RS256, issuertest.RSA2()).Sign(t, map[string]any{"jwk": k2().JWK(), "jku": p.Server.URL + "/jku"}, payload),
				},
			} {
				for _, token := range tokens {
					p.issue(token, alice(), w.active())
					w.check(t, token, "", reason)
				}
			}
			w.sent(t, 0, 0)
			if n := p.Others.Load(); n != 0 {
				t.Errorf("%d fetches of an address in a token", n)
			}
		})
	}
}

// TOK-01 on this validator.
func TestOIDCRotation(t *testing.T) {
	for source, from := range map[string]func(*oidcConfig){"UserInfo": nil, "Token": fromToken} {
		t.Run(source, func(t *testing.T) {
			p := newIDP(t, k1().JWK())
			w := newOIDCWorld(t, p, from)
			old := w.signed(t)
			w.check(t, old, "alice", "")
			p.Publish(k1().JWK(), k2().JWK())
			w.check(t, p.issue(w.token(t, k2(), p), alice(), nil), "alice", "")
			p.Reads(t, 2)

			p.Publish(k2().JWK())
			w.clock.Step(keysAge - testTTL)
			w.check(t, old, "alice", "") // with the keys at hand, which are read again behind it
			eventually(t, "the key is gone", func() bool { _, err := w.Authenticate(t.Context(), old); return err != nil })
			w.check(t, old, "", errUnknownKey.Reason)
			w.check(t, p.issue(w.token(t, k2(), p, "n", 1), alice(), nil), "alice", "")
		})
	}
}

// TOK-06, TOK-08, AUTH-10, AUTH-11: the claims of /userinfo are read as those
// of a token are.
func TestOIDCClaims(t *testing.T) {
	p := newIDP(t, k1().JWK())
	byMail := withMappings(t, p, apiserver.ClaimMappings{Username: claim("email", "")})
	for _, tt := range []struct {
		name    string
		config  func(*oidcConfig)
		changes []any
		groups  []string
		user    string
		reason  string
	}{
		{name: "one group", changes: []any{"groups", "ops"}, groups: []string{"ops"}},
		{name: "groups", changes: []any{"groups", []string{"ops", "dev", "ops"}}, groups: []string{"ops", "dev"}},
		{name: "no groups", changes: []any{"groups", absent}},
		{name: "null groups", changes: []any{"groups", nil}},
		{name: "a list in a string", changes: []any{"groups", "[ops]"}, groups: []string{"[ops]"}},
		{name: "a number among groups", changes: []any{"groups", []any{"ops", 1}}, reason: errClaims.Reason},
		{name: "groups an object", changes: []any{"groups", map[string]int{"a": 1}}, reason: errClaims.Reason},
		{name: "groups true", changes: []any{"groups", true}, reason: errClaims.Reason},
		{name: "verified address", config: byMail, changes: []any{"email", "a@example.test", "email_verified", true}, user: "a@example.test"},
		{name: "false", config: byMail, changes: []any{"email", "a@example.test", "email_verified", false}, reason: errEmailNotVerified.Reason},
		{name: "as a string", config: byMail, changes: []any{"email", "a@example.test", "email_verified", "true"}, reason: errEmailNotVerified.Reason},
		{name: "absent", config: byMail, changes: []any{"email", "a@example.test"}, reason: errEmailNotVerified.Reason},
		{name: "a number as name", config: byMail, changes: []any{"email", 42}, reason: errClaims.Reason},
		{
			name: "expression", config: withMappings(t, p, apiserver.ClaimMappings{Username: expression("'u-' + claims.sub")}),
			user: "u-alice",
		},
		{
			name: "expression over a large answer", config: withMappings(t, p, apiserver.ClaimMappings{Username: expression("'u-' + claims.sub")}),
			changes: []any{"s", strings.Repeat("s", maxEvaluated)}, reason: errTooLarge.Reason,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newOIDCWorld(t, p, tt.config)
			user := "alice"
			if tt.user != "" {
				user = tt.user
			}
			if tt.reason != "" {
				user = ""
			}
			result := w.check(t, p.issue(w.token(t, k1(), p), alice(tt.changes...), nil), user, tt.reason)
			if tt.groups == nil && tt.user == "" && result != nil && len(result.Identity.Groups) != 0 ||
				tt.groups != nil && !cmp.Equal(tt.groups, result.Identity.Groups) {
				t.Errorf("groups %q", result.Identity.Groups)
			}
		})
	}
}
