package users

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
)

// The field cases about tokens, on every path by which one can come to be
// judged.
func TestTOKOnEveryRoute(t *testing.T) {
	s := newTracks(t)
	// The first one: an unknown kid is looked for once in five seconds.
	t.Run("TOK-01", func(t *testing.T) { s.jwts(t, s.rotation) })
	t.Run("TOK-03 accepted", func(t *testing.T) { s.jwts(t, s.signatures) })
	t.Run("TOK-03 refused", func(t *testing.T) { s.jwts(t, s.forgeries) })
	t.Run("TOK-05", func(t *testing.T) { s.jwts(t, s.times) })
	t.Run("TOK-06 groups", func(t *testing.T) { s.every(t, s.groups) })
	t.Run("TOK-06 username", func(t *testing.T) { s.every(t, s.username) })
	t.Run("TOK-08", func(t *testing.T) { s.every(t, s.email) })
	// The keys are waited for beside other tests.
	t.Parallel()
	t.Run("TOK-01 withdrawn", func(t *testing.T) { s.jwts(t, s.withdrawal) })
}

// TOK-03, AUTH-4: signatures that count.
func (s *tracks) signatures(t *testing.T, r *route) {
	for _, key := range append([]string{k2, oidc.E1}, furtherKeys...) {
		token := r.idp.Mint(r.idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: key})
		s.judged(t, r.name, r.bearer(token), http.StatusOK, "")
	}
}

// TOK-03: tokens that never get in. The proxy asks no server about them, and
// fetches no URL that they name.
func (s *tracks) forgeries(t *testing.T, r *route) {
	claims := r.idp.Claims(oidc.Alice, nil)
	before := r.idp.AllCalls()
	for name, token := range map[string]string{
		"alg none":              r.idp.Unsigned(claims, "none"),
		"alg nOnE":              r.idp.Unsigned(claims, "nOnE"),
		"HS256, the PEM of k2":  r.idp.SymmetricWithPublicKey(claims, k2),
		"RS256 over an EC key":  r.idp.WrongAlgorithm(claims, oidc.E1, "RS256"),
		"ES256 over an RSA key": r.idp.WrongAlgorithm(claims, k2, "ES256"),
		"an embedded jwk":       r.idp.EmbeddedKey(claims),
		"a jku elsewhere":       r.idp.KeyURL(claims, r.idp.ElsewhereURL()),
		"a flipped bit":         oidc.FlipSignatureBit(r.idp.Mint(claims, oidc.Sign{})),
		"another issuer":        s.w.idp.Token(oidc.Alice, nil),
	} {
		t.Run(name, func(t *testing.T) { s.judged(t, r.name, r.bearer(token), r.wrongTokenCode(), "") })
	}
	for name, token := range map[string]string{
		"another audience": r.idp.Token(oidc.Alice, map[string]any{"aud": otherID}),
		"no audience":      r.idp.Token(oidc.Alice, map[string]any{"aud": nil}),
	} {
		t.Run(name, func(t *testing.T) { s.judged(t, r.name, r.bearer(token), http.StatusUnauthorized, "") })
	}
	after := r.idp.AllCalls()
	for _, e := range []oidc.Endpoint{oidc.Userinfo, oidc.Introspection, oidc.Elsewhere} {
		if n := after[e] - before[e]; n != 0 {
			t.Errorf("%s was asked %d times", e, n)
		}
	}
	// TOK-01 was less than a minute ago, most likely.
	if n := after[oidc.Keys] - before[oidc.Keys]; n > 1 {
		t.Errorf("the keys were read %d times", n)
	}
}

// TOK-05, AUTH-4: exp without leeway, nbf five minutes, iat not looked at.
func (s *tracks) times(t *testing.T, r *route) {
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for name, tt := range map[string]struct {
		changes map[string]any
		code    int
	}{
		"nbf and iat 20 s ahead": {map[string]any{"nbf": at(20 * time.Second), "iat": at(20 * time.Second)}, 200},
		"nbf 10 min ahead":       {map[string]any{"nbf": at(10 * time.Minute), "exp": at(time.Hour)}, r.wrongTokenCode()},
		"exp 5 s ago":            {map[string]any{"exp": at(-5 * time.Second)}, r.wrongTokenCode()},
		"no exp":                 {map[string]any{"exp": nil}, 401},
		"exp a string":           {map[string]any{"exp": fmt.Sprint(at(time.Hour))}, 401},
		"exp 1e300":              {map[string]any{"exp": json.RawMessage("1e300")}, 401},
		"iat in the future":      {map[string]any{"iat": at(time.Hour)}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r.steady(t)
			s.judged(t, r.name, r.bearer(r.idp.Token(oidc.Alice, tt.changes)), tt.code, "")
		})
	}
}

// TOK-06, AUTH-10: the shapes of groups.
func (s *tracks) groups(t *testing.T, r *route) {
	for written, tt := range map[string]struct {
		want []string
		code int
	}{
		`"ops"`:               {[]string{"ops"}, 200},
		`["ops","dev"]`:       {[]string{"ops", "dev"}, 200},
		`["ops","dev","ops"]`: {[]string{"ops", "dev"}, 200},
		``:                    {nil, 200},
		`null`:                {nil, 200},
		`[]`:                  {nil, 200},
		`"[ops]"`:             {[]string{"[ops]"}, 200},
		`"ops,dev"`:           {[]string{"ops,dev"}, 200},
		`["ops",1]`:           {nil, 401},
		`{"a":1}`:             {nil, 401},
		`true`:                {nil, 401},
		"\"o\xffps\"":         {nil, 401},
	} {
		t.Run(written, func(t *testing.T) {
			who := s.judged(t, r.name, r.claims(t, "groups", written), r.spelled(written, tt.code), "")
			want := &rawserver.Identity{User: oidc.Alice, Groups: tt.want, Extra: map[string][]string{}}
			if tt.code != http.StatusOK {
				want = nil
			}
			if diff := cmp.Diff(want, who); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		})
	}
}

// TOK-06, AUTH-10, ID-2: the shapes of the username.
func (s *tracks) username(t *testing.T, r *route) {
	for written, code := range map[string]int{
		`42`: 401, `[]`: 401, `{}`: 401, `true`: 401, ``: 401, "\"al\xffice\"": 401, `["alice"]`: 401,
		`null`: 403, `""`: 403, `" "`: 403,
	} {
		t.Run(written, func(t *testing.T) {
			text := ""
			if code == http.StatusForbidden {
				text = "has no username for the configured claim"
			}
			s.judged(t, r.name, r.claims(t, "preferred_username", written), r.spelled(written, code), text)
		})
	}
}

// TOK-08, AUTH-11: an address is a name only once it is verified.
func (s *tracks) email(t *testing.T, r *route) {
	for written, code := range map[string]int{
		`true`: 200, `false`: 401, `"true"`: 401, ``: 401, `null`: 401, `1`: 401, `[true]`: 401,
	} {
		t.Run("email_verified "+written, func(t *testing.T) {
			text := ""
			if code == http.StatusUnauthorized {
				text = "not verified"
			}
			who := s.judged(t, "email-"+r.name, r.claims(t, "email_verified", written), code, text)
			if code == http.StatusOK && (who == nil || who.User != "alice@example.test") {
				t.Errorf("arrived as %v", who)
			}
		})
	}
}
