package oidc

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
)

// relyingParty is an independent client of the provider.
func relyingParty(t *testing.T, p *Provider) (context.Context, *gooidc.Provider) {
	t.Helper()
	client := p.Client()
	t.Cleanup(client.CloseIdleConnections)
	ctx := gooidc.ClientContext(t.Context(), client)
	provider, err := gooidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, provider
}

func accepts(t *testing.T, p *Provider, token string) error {
	t.Helper()
	ctx, rp := relyingParty(t, p) // anew, so that no key is remembered
	_, err := rp.Verifier(&gooidc.Config{ClientID: ClientID, SupportedSigningAlgs: []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
	}}).Verify(ctx, token)
	return err
}

func TestLogin(t *testing.T) {
	p := Start(t, Options{})
	ctx, rp := relyingParty(t, p)
	tests := []struct {
		user, client string
		groups       []any
		jwt          bool
	}{
		{Alice, ClientID, []any{"team-a", "a,b"}, true},
		{Elodie, ClientID, []any{"équipe"}, true},
		{Alice, OpaqueClientID, []any{"team-a", "a,b"}, false},
		{Alice, SecretClientID, []any{"team-a", "a,b"}, true},
	}
	for _, tc := range tests {
		t.Run(tc.user+" at "+tc.client, func(t *testing.T) {
			tokens := p.MustLogin(t, tc.user, tc.client, "openid", "offline_access")
			id, err := rp.Verifier(&gooidc.Config{ClientID: tc.client}).Verify(ctx, tokens.IDToken)
			if err != nil {
				t.Fatal(err)
			}
			var claims map[string]any
			if err := id.Claims(&claims); err != nil {
				t.Fatal(err)
			}
			if claims["preferred_username"] != tc.user || !cmp.Equal(claims["groups"], any(tc.groups)) {
				t.Errorf("id_token claims: %v", claims)
			}
			if got := strings.Count(tokens.AccessToken, ".") == 2; got != tc.jwt {
				t.Errorf("the access token is a JWT: %v", got)
			}
			if got := userinfo(t, p, tokens.AccessToken); got != http.StatusOK {
				t.Errorf("userinfo: %d", got)
			}
			again, err := p.PostToken(t.Context(), url.Values{
				"grant_type": {"refresh_token"}, "refresh_token": {tokens.RefreshToken}, "client_id": {tc.client},
				"client_secret": {map[string]string{SecretClientID: ClientSecret}[tc.client]},
			})
			if err != nil {
				t.Fatal(err)
			}
			if again.RefreshToken == tokens.RefreshToken || again.RefreshToken == "" {
				t.Error("the refresh token did not rotate")
			}
		})
	}
	t.Run("without PKCE a public client gets nothing", func(t *testing.T) {
		q := url.Values{"response_type": {"code"}, "client_id": {ClientID}, "redirect_uri": {"http://127.0.0.1:1/callback"}, "scope": {"openid"}}
		back, err := p.Browse(t.Context(), p.Issuer+"/authorize?"+q.Encode(), Alice)
		if err == nil && back.Query().Get("code") != "" {
			_, err = p.PostToken(t.Context(), url.Values{"grant_type": {"authorization_code"}, "client_id": {ClientID},
				"code": {back.Query().Get("code")}, "redirect_uri": {"http://127.0.0.1:1/callback"}})
		}
		if err == nil {
			t.Error("a code was exchanged without a verifier")
		}
	})
}

// do sends a request and reads a JSON answer.
func do(t *testing.T, p *Provider, req *http.Request) (int, map[string]any) {
	t.Helper()
	client := p.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	_ = json.Unmarshal(body, &answer) // some refusals are plain text
	return resp.StatusCode, answer
}

func userinfo(t *testing.T, p *Provider, token string) int {
	t.Helper()
	code, _ := userinfoClaims(t, p, token)
	return code
}

func userinfoClaims(t *testing.T, p *Provider, token string) (int, map[string]any) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Issuer+"/userinfo", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	return do(t, p, req)
}

func TestMintedTokens(t *testing.T) {
	p := Start(t, Options{})
	for id, alg := range map[string]jose.SignatureAlgorithm{"e3": jose.ES384, "e5": jose.ES512, "ed": jose.EdDSA} {
		if err := p.AddKey(id, alg); err != nil {
			t.Fatal(err)
		}
	}
	claims := p.Claims(Alice, nil)
	good := map[string]Sign{
		"RS256": {}, "RS384": {Alg: jose.RS384}, "RS512": {Alg: jose.RS512},
		"PS256": {Alg: jose.PS256}, "PS384": {Alg: jose.PS384}, "PS512": {Alg: jose.PS512},
		"ES256": {KeyID: E1}, "ES384": {KeyID: "e3"}, "ES512": {KeyID: "e5"}, "EdDSA": {KeyID: "ed"},
	}
	for name, sign := range good {
		t.Run(name, func(t *testing.T) {
			token := p.Mint(claims, sign)
			// RFC 7517 binds a published key to one algorithm, so only the
			// independent verification of the signature is asked here.
			jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(name)})
			if err != nil {
				t.Fatal(err)
			}
			id := sign.KeyID
			if id == "" {
				id = K1
			}
			if _, err := jws.Verify(p.PublicKey(id)); err != nil {
				t.Error(err)
			}
			if got := userinfo(t, p, token); got != http.StatusOK {
				t.Errorf("userinfo for a minted token: %d", got)
			}
		})
	}
	if err := accepts(t, p, p.Token(Alice, nil)); err != nil {
		t.Errorf("T() is refused: %v", err)
	}
	bad := map[string]string{
		"none":           p.Unsigned(claims, "none"),
		"nOnE":           p.Unsigned(claims, "nOnE"),
		"HS256":          p.SymmetricWithPublicKey(claims, K1),
		"RS256 over EC":  p.WrongAlgorithm(claims, E1, "RS256"),
		"jwk":            p.EmbeddedKey(claims),
		"jku":            p.KeyURL(claims, p.ElsewhereURL()),
		"flipped bit":    FlipSignatureBit(p.Token(Alice, nil)),
		"other audience": p.Token(Alice, map[string]any{"aud": "other"}),
		"no expiry":      p.Token(Alice, map[string]any{"exp": nil}),
		"expired":        p.Token(Alice, map[string]any{"exp": time.Now().Add(-5 * time.Second).Unix()}),
	}
	for name, token := range bad {
		if err := accepts(t, p, token); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if got := p.Calls(Elsewhere); got != 0 {
		t.Errorf("%d calls to a URL of a token", got)
	}
}

func TestRotation(t *testing.T) {
	p := Start(t, Options{})
	if err := p.AddKey("k2", jose.RS256); err != nil {
		t.Fatal(err)
	}
	p.UseKey("k2")
	if err := accepts(t, p, p.Token(Alice, nil)); err != nil {
		t.Errorf("k2: %v", err)
	}
	p.WithdrawKey(K1)
	if err := accepts(t, p, p.Mint(p.Claims(Alice, nil), Sign{KeyID: K1})); err == nil {
		t.Error("a withdrawn key is believed")
	}
	if got := p.Calls(Keys); got != 2 {
		t.Errorf("%d calls to the key set", got)
	}
}

func TestFaults(t *testing.T) {
	p := Start(t, Options{})
	get := func() (int, error) {
		client := p.Client()
		defer client.CloseIdleConnections()
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client.Timeout = 5 * time.Second
		resp, err := client.Get(p.Issuer + "/.well-known/openid-configuration")
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	tests := []struct {
		name  string
		fault Fault
		want  int
	}{
		{"down", Down, 0},
		{"500", InternalError, 500},
		{"malformed", Malformed, 200},
		{"oversized", Oversized(2 << 20), 200},
		{"redirect", Redirect("https://elsewhere.example.test/"), 302},
		{"slow", Slow(50 * time.Millisecond), 200},
		{"stalls", Fault{Status: 200, Body: []byte("{"), Stall: true}, 200},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p.SetFault(Discovery, tc.fault)
			defer p.Repair(Discovery)
			start := time.Now()
			code, err := get()
			if code != tc.want || (err != nil) != (tc.want == 0 || tc.fault.Stall) {
				t.Errorf("%d, %v", code, err)
			}
			if time.Since(start) < tc.fault.Delay {
				t.Error("too fast")
			}
		})
	}
	t.Run("gone and back", func(t *testing.T) {
		p.Suspend()
		if _, err := get(); err == nil {
			t.Error("a stopped provider answers")
		}
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
		if code, err := get(); code != 200 {
			t.Error(code, err)
		}
	})
	if got := p.Calls(Discovery); got != len(tests)+1 {
		t.Errorf("%d calls counted", got)
	}
}

// TestOpaqueToken: it is as good as one of a login, for the user's client and
// for those in its audience.
func TestOpaqueToken(t *testing.T) {
	p := Start(t, Options{})
	token := p.OpaqueToken(Alice, OpaqueClientID)
	if strings.Count(token, ".") == 2 || token == p.OpaqueToken(Alice, OpaqueClientID) {
		t.Errorf("%s is a JWT, or not new", token)
	}
	if code, claims := userinfoClaims(t, p, token); code != http.StatusOK || claims["preferred_username"] != Alice {
		t.Errorf("userinfo: %d %v", code, claims)
	}
	code, claims := introspect(t, p, token)
	want := []any{OpaqueClientID, SecretClientID, ClientID}
	if code != http.StatusOK || claims["active"] != true || !cmp.Equal(claims["aud"], any(want)) {
		t.Errorf("introspection: %d %v", code, claims)
	}
	p.RevokeAccessToken(token)
	if code, _ := userinfoClaims(t, p, token); code == http.StatusOK {
		t.Error("a revoked token is good")
	}
}

// TestPublic: a provider behind something announces the address of that.
func TestPublic(t *testing.T) {
	p := Start(t, Options{Public: "idp.example.test"})
	const issuer = "https://idp.example.test" + issuerPath
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Addr()+issuerPath+discoveryPath, nil)
	code, document := do(t, p, req)
	if code != http.StatusOK || p.Issuer != issuer || document["issuer"] != issuer || document["jwks_uri"] != issuer+"/keys" {
		t.Errorf("%d %v", code, document)
	}
}
