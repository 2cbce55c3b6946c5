package oidc

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-cmp/cmp"
)

const urn = "urn:ietf:params:oauth:token-type:"

// exchange is the form of a good token exchange by the public client ClientID,
// with changes; a nil value leaves a parameter out.
func exchange(subjectToken string, changes map[string][]string) url.Values {
	form := url.Values{
		"grant_type":    {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token": {subjectToken}, "subject_token_type": {urn + "access_token"},
		"client_id": {ClientID}, "audience": {ClientID}, "scope": {"openid groups_name"},
		"requested_token_type": {urn + "access_token"},
	}
	for name, values := range changes {
		if form[name] = values; values == nil {
			form.Del(name)
		}
	}
	return form
}

func introspect(t *testing.T, p *Provider, token string) (int, map[string]any) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Issuer+"/oauth/introspect", strings.NewReader(url.Values{"token": {token}}.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(SecretClientID, ClientSecret)
	return do(t, p, req)
}

func TestExchange(t *testing.T) {
	for _, kanidm := range []bool{false, true} {
		name := "as the RFC says"
		if kanidm {
			name = "as Kanidm does"
		}
		t.Run(name, func(t *testing.T) {
			p := Start(t, Options{LikeKanidm: kanidm})
			got, err := p.PostToken(t.Context(), exchange(p.APIToken(Robot), nil))
			if err != nil {
				t.Fatal(err)
			}
			if kanidm != (got.IssuedTokenType == "AccessToken") || kanidm != (got.IDToken != "") || got.Scope != "openid groups_name" || got.ExpiresIn == 0 {
				t.Errorf("%+v", got)
			}
			for _, token := range []string{got.AccessToken, got.IDToken} {
				if err := accepts(t, p, token); token != "" && err != nil {
					t.Errorf("the exchanged token: %v", err)
				}
			}
			got, err = p.PostToken(t.Context(), exchange(p.APITokenJWS(Robot), map[string][]string{"requested_token_type": {urn + "id_token"}}))
			if err != nil {
				t.Fatal(err)
			}
			if err := accepts(t, p, got.AccessToken); err != nil {
				t.Errorf("the exchanged token: %v", err)
			}
			if kanidm == (got.IssuedTokenType == urn+"id_token") {
				t.Errorf("asked for an id_token: %+v", got)
			}
			_, err = p.PostToken(t.Context(), exchange(p.APIToken(Robot), map[string][]string{"audience": {"stranger"}}))
			if err == nil || !strings.Contains(err.Error(), "invalid_target") {
				t.Errorf("unknown audience: %v", err)
			}
			if _, err = p.PostToken(t.Context(), exchange("nonsense", nil)); err == nil {
				t.Error("nonsense was exchanged")
			}
		})
	}
}

// TestExchangedTokens: what a test can make of them.
func TestExchangedTokens(t *testing.T) {
	for _, kanidm := range []bool{false, true} {
		p := Start(t, Options{LikeKanidm: kanidm})
		api := p.APIToken(Robot)
		must := func(form url.Values) *Tokens {
			t.Helper()
			got, err := p.PostToken(t.Context(), form)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}

		p.SetClient(Client{ID: "other"})
		p.SetExchangeAudience("other")
		for _, token := range []string{must(exchange(api, nil)).AccessToken, must(exchange(api, nil)).IDToken} {
			if err := accepts(t, p, token); token != "" && (err == nil || !strings.Contains(err.Error(), "audience")) {
				t.Errorf("a token for another audience: %v", err)
			}
		}
		p.SetExchangeAudience("")

		p.SetFault(Token, NoExpiresIn)
		if got := must(exchange(api, nil)); got.ExpiresIn != 0 || accepts(t, p, got.AccessToken) != nil {
			t.Errorf("without expires_in: %+v", got)
		}
		p.Repair(Token)

		p.SetClient(Client{ID: ClientID, TokenLifetime: 20 * time.Second})
		got := must(exchange(api, nil))
		if got.ExpiresIn < 15 || got.ExpiresIn > 20 {
			t.Errorf("expires_in of a short-lived token: %d", got.ExpiresIn)
		}
		ctx, rp := relyingParty(t, p)
		for _, token := range []string{got.AccessToken, got.IDToken} {
			if token == "" {
				continue
			}
			id, err := rp.Verifier(&gooidc.Config{ClientID: ClientID}).Verify(ctx, token)
			if err != nil || time.Until(id.Expiry) > 20*time.Second {
				t.Errorf("a short-lived token: %v, %v", id, err)
			}
		}

		opaque := must(exchange(api, map[string][]string{"client_id": {OpaqueClientID}})).AccessToken
		if strings.Count(opaque, ".") == 2 {
			t.Errorf("%s is a JWT", opaque)
		}
		code, claims := userinfoClaims(t, p, opaque)
		if code != http.StatusOK || claims["sub"] != "subject-robot" || !cmp.Equal(claims["groups"], any([]any{"machines"})) {
			t.Errorf("userinfo of an opaque token: %d %v", code, claims)
		}
		code, claims = introspect(t, p, opaque)
		if code != http.StatusOK || claims["active"] != true || claims["sub"] != "subject-robot" {
			t.Errorf("introspection of an opaque token: %d %v", code, claims)
		}
	}
}

func TestDemandingExchange(t *testing.T) {
	const secretBasic, secretPost = "b:%20 +s", "p:%20 +s"
	p := Start(t, Options{Demanding: true, Clients: []Client{
		{ID: ClientID},
		{ID: "basic", Secret: secretBasic},
		{ID: "post", Secret: secretPost, Auth: AuthPost},
	}})
	api := p.APIToken(Robot)
	drop := func(name string) map[string][]string { return map[string][]string{name: nil} }
	by := func(id, secret string) map[string][]string {
		changes := map[string][]string{"client_id": {id}}
		if secret != "" {
			changes["client_secret"] = []string{secret}
		}
		return changes
	}
	tests := []struct {
		name    string
		changes map[string][]string
		// id and secret are sent by Basic.
		id, secret string
		want       string // "" is an exchange
		auth       AuthMethod
	}{
		{name: "public", auth: AuthNone},
		{name: "basic", changes: by("basic", ""), id: "basic", secret: secretBasic, auth: AuthBasic},
		{name: "post", changes: by("post", secretPost), auth: AuthPost},
		{name: "two audiences", changes: map[string][]string{"audience": {ClientID, "basic"}}, auth: AuthNone},
		{name: "no grant_type", changes: drop("grant_type"), want: "grant_type", auth: AuthNone},
		{name: "no subject_token", changes: drop("subject_token"), want: "subject_token missing", auth: AuthNone},
		{name: "no subject_token_type", changes: drop("subject_token_type"), want: "subject_token_type missing", auth: AuthNone},
		{name: "no client_id", changes: drop("client_id"), want: "client_id missing", auth: AuthNone},
		{name: "client_id by Basic alone", changes: drop("client_id"), id: "basic", secret: secretBasic, want: "client_id missing", auth: AuthBasic},
		{name: "no audience", changes: drop("audience"), want: "audience missing", auth: AuthNone},
		{name: "no scope", changes: drop("scope"), want: "scope missing", auth: AuthNone},
		{name: "empty scope", changes: map[string][]string{"scope": {""}}, want: "scope missing", auth: AuthNone},
		{name: "two scopes", changes: map[string][]string{"scope": {"openid", "email"}}, want: "scope twice", auth: AuthNone},
		{name: "public with a secret", changes: by(ClientID, "x"), want: "invalid_client", auth: AuthPost},
		{name: "public by Basic", id: ClientID, want: "invalid_client", auth: AuthBasic},
		{name: "basic by post", changes: by("basic", secretBasic), want: "invalid_client", auth: AuthPost},
		{name: "basic without a secret", changes: by("basic", ""), want: "invalid_client", auth: AuthNone},
		{name: "basic with another secret", changes: by("basic", ""), id: "basic", secret: "x", want: "invalid_client", auth: AuthBasic},
		{name: "post by Basic", changes: by("post", ""), id: "post", secret: secretPost, want: "invalid_client", auth: AuthBasic},
		{name: "post with another secret", changes: by("post", "x"), want: "invalid_client", auth: AuthPost},
		{name: "in two ways", changes: by("basic", secretBasic), id: "basic", secret: secretBasic, want: "invalid_client"},
		{name: "two clients", changes: by(ClientID, ""), id: "basic", secret: secretBasic, want: "invalid_client", auth: AuthBasic},
		{name: "a stranger", changes: by("stranger", ""), want: "invalid_client", auth: AuthNone},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			form := exchange(api, tc.changes)
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Issuer+"/oauth/token", strings.NewReader(form.Encode()))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			id := form.Get("client_id")
			if tc.id != "" {
				req.SetBasicAuth(url.QueryEscape(tc.id), url.QueryEscape(tc.secret))
				id = tc.id
			}
			code, answer := do(t, p, req)
			switch text := answerText(answer); {
			case tc.want == "" && (code != http.StatusOK || answer["access_token"] == nil):
				t.Errorf("refused: %d %v", code, answer)
			case tc.want != "" && (code < 400 || code > 401 || !strings.Contains(text, tc.want)):
				t.Errorf("%d %v, want %q", code, answer, tc.want)
			}
			calls := p.TokenCalls()
			want := TokenCall{Form: form, ClientID: id, Auth: tc.auth}
			if diff := cmp.Diff(want, calls[len(calls)-1]); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
	if len(p.TokenCalls()) != len(tests) {
		t.Errorf("%d calls recorded", len(p.TokenCalls()))
	}
}

func answerText(answer map[string]any) string {
	code, _ := answer["error"].(string)
	description, _ := answer["error_description"].(string)
	return code + " " + description
}

func TestRevocation(t *testing.T) {
	p := Start(t, Options{})
	for _, token := range []string{p.APIToken(Robot), p.APITokenJWS(Robot)} {
		got, err := p.PostToken(t.Context(), exchange(token, nil))
		if err != nil {
			t.Fatal(err)
		}
		p.RevokeAPIToken(token)
		if _, err := p.PostToken(t.Context(), exchange(token, nil)); err == nil || !strings.Contains(err.Error(), "400 Bad Request") {
			t.Errorf("a revoked API token: %v", err)
		}
		if code := userinfo(t, p, got.AccessToken); code != http.StatusOK {
			t.Errorf("userinfo of what it was exchanged for: %d", code)
		}
	}
	forBackend := map[string][]string{"audience": {SecretClientID}}
	exchanged, err := p.PostToken(t.Context(), exchange(p.APIToken(Robot), forBackend))
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"opaque":    p.MustLogin(t, Alice, OpaqueClientID).AccessToken,
		"JWT":       p.MustLogin(t, Alice, SecretClientID).AccessToken,
		"exchanged": exchanged.AccessToken,
	} {
		if code, answer := introspect(t, p, token); code != http.StatusOK || answer["active"] != true || userinfo(t, p, token) != http.StatusOK {
			t.Errorf("%s, before: %d %v", name, code, answer)
		}
		if _, err := p.PostToken(t.Context(), exchange(token, nil)); err != nil {
			t.Errorf("%s, before: %v", name, err)
		}
		p.RevokeAccessToken(token)
		if code, answer := introspect(t, p, token); code != http.StatusOK || answer["active"] != false {
			t.Errorf("%s: introspection: %d %v", name, code, answer)
		}
		if code := userinfo(t, p, token); code == http.StatusOK {
			t.Errorf("%s: userinfo: %d", name, code)
		}
		if _, err := p.PostToken(t.Context(), exchange(token, nil)); err == nil {
			t.Errorf("%s: exchanged", name)
		}
	}
	minted := p.Token(Alice, nil)
	if p.RevokeAccessToken(minted); userinfo(t, p, minted) == http.StatusOK {
		t.Error("userinfo for a minted token that is revoked")
	}
}

func TestIntrospection(t *testing.T) {
	for _, off := range []bool{false, true} {
		p := Start(t, Options{NoIntrospection: off})
		_, rp := relyingParty(t, p)
		var document struct {
			Introspection string `json:"introspection_endpoint"`
			Userinfo      string `json:"userinfo_endpoint"`
		}
		if err := rp.Claims(&document); err != nil {
			t.Fatal(err)
		}
		if (document.Introspection == "") != off || document.Userinfo == "" {
			t.Errorf("%+v", document)
		}
		code, answer := introspect(t, p, p.MustLogin(t, Alice, OpaqueClientID).AccessToken)
		if off {
			if code != http.StatusNotFound {
				t.Errorf("introspection that is off: %d %v", code, answer)
			}
		} else if answer["active"] != true || answer["sub"] != "subject-alice" || !cmp.Equal(answer["aud"], any([]any{OpaqueClientID, SecretClientID, ClientID})) {
			t.Errorf("%d %v", code, answer)
		}
	}
}

func TestClientCredentials(t *testing.T) {
	p := Start(t, Options{})
	got, err := p.PostToken(t.Context(), url.Values{"grant_type": {"client_credentials"}, "client_id": {SecretClientID}, "client_secret": {ClientSecret}})
	if err != nil || userinfo(t, p, got.AccessToken) != http.StatusOK {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWrongSubject(t *testing.T) {
	p := Start(t, Options{})
	p.SetFault(Userinfo, WrongSubject)
	code, claims := userinfoClaims(t, p, p.Token(Alice, nil))
	if code != http.StatusOK || claims["sub"] != "subject-mallory" || claims["preferred_username"] != Alice {
		t.Errorf("%d %v", code, claims)
	}
	if code := userinfo(t, p, "nonsense"); code != http.StatusUnauthorized {
		t.Errorf("nonsense: %d", code)
	}
}
