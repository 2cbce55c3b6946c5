package users

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
)

// k2 is the key that all routes sign with after TOK-01, unheard a key that was
// never published.
const k2, unheard = "k2", "unheard"

// steady has /userinfo answer for every token, where it gives the claims: what
// the proxy makes of the token itself is what is asked.
func (r *route) steady(t *testing.T) {
	t.Helper()
	if !r.userinfo {
		return
	}
	answer, err := json.Marshal(r.idp.Claims(oidc.Alice, nil))
	if err != nil {
		t.Fatal(err)
	}
	r.idp.SetFault(oidc.Userinfo, oidc.JSON(http.StatusOK, string(answer)))
}

// signed is the bearer of a fresh JWT by that key.
func (r *route) signed(key string) string {
	return r.bearer(r.idp.Mint(r.idp.Claims(oidc.Alice, nil), oidc.Sign{KeyID: key}))
}

// TOK-01, AUTH-5: a key that the issuer publishes beside the one before is found
// on the first try, with one read of the key set, and both are good. Then the
// issuer withdraws the old one, which is seen later: see withdrawal.
func (s *tracks) rotation(t *testing.T, r *route) {
	r.steady(t)
	r.before = r.signed(oidc.K1)
	s.judged(t, r.name, r.before, http.StatusOK, "")
	if err := r.idp.AddKey(k2, jose.RS256); err != nil {
		t.Fatal(err)
	}
	reads := r.idp.Calls(oidc.Keys)
	s.judged(t, r.name, r.signed(k2), http.StatusOK, "")
	if n := r.idp.Calls(oidc.Keys) - reads; n != 1 {
		t.Errorf("the key set was read %d times", n)
	}
	s.judged(t, r.name, r.before, http.StatusOK, "")
	s.judged(t, r.name, r.signed(oidc.K1), http.StatusOK, "")
	if n := r.idp.Calls(oidc.Keys) - reads; n != 1 {
		t.Errorf("the key set was read %d times for keys that are known", n)
	}
	r.idp.UseKey(k2)
	r.idp.WithdrawKey(oidc.K1)
	r.reads = r.idp.Calls(oidc.Keys)
	// Its own cache still has it: nothing has made it look.
	s.judged(t, r.name, r.signed(oidc.K1), http.StatusOK, "")
	if err := r.idp.AddKey(unheard, jose.RS256); err != nil {
		t.Fatal(err)
	}
	r.idp.WithdrawKey(unheard)
}

// withdrawal is the end of TOK-01: a token by a key that the issuer withdrew is
// refused once the key set was read again, which an unknown kid brings about
// within seconds and nothing later than five minutes. What was remembered of an earlier
// token by that key ends with it.
func (s *tracks) withdrawal(t *testing.T, r *route) {
	r.steady(t)
	start := time.Now()
	for ; r.idp.Calls(oidc.Keys) == r.reads; time.Sleep(time.Second) {
		// Each of these is another token: a refused one is remembered.
		s.judged(t, r.name, r.signed(unheard), r.wrongTokenCode(), "")
		if time.Since(start) > 2*time.Minute {
			t.Fatal("an unknown kid does not have the keys read again")
		}
	}
	s.judged(t, r.name, r.signed(oidc.K1), r.wrongTokenCode(), "")
	s.judged(t, r.name, r.before, r.wrongTokenCode(), "")
	s.judged(t, r.name, r.signed(k2), http.StatusOK, "")
	t.Logf("asked for %v", time.Since(start).Round(time.Second))
}
