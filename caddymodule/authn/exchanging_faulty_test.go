package authn

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// AUTH-16: a token that is none for this cluster, by what its maker made of it,
// is the provider's fault: 503 with a notice, and one exchange in five seconds
// however often the machine tries.
func TestFaultyTokenIsTheProvidersFault(t *testing.T) {
	p := newIDP(t, k1().JWK())
	jwt := newWorld(t, p.authenticator())
	w := newExchangeWorld(t, jwt.clock, jwt.cache, uncached(jwt.Validator), p.URL)
	changes := 0
	w.exchanging.lastToken.OnChange = func() { changes++ }
	prefix := w.endpoint.URL + "/token: it gave a token that is not valid here: "
	for _, tt := range []struct {
		name, token string
		want        *Unauthenticated
	}{
		{"another issuer", jwt.token(t, k1(), p, "iss", "https://other.example.test"), errUnknownIssuer},
		{"expired", jwt.token(t, k1(), p, "exp", w.clock.Now().Unix()), errExpired},
		{"not yet valid", jwt.token(t, k1(), p, "nbf", w.clock.Now().Unix()+3600), errNotYetValid},
		{"forged", jwt.token(t, by("k1", k2().Algorithm, k2().Key), p), errSignature},
		{"an unknown key", jwt.token(t, by("k9", k2().Algorithm, k2().Key), p), errUnknownKey},
		{"HMAC", by("k1", "HS256", issuertest.RSA1()).Sign(t, nil, mustJSON(jwt.claimsOf(p))), errAlgorithm},
		{"opaque", "opaque", errOpaque},
		{"itself", "machine-itself", errOpaque},
	} {
		w.endpoint.setAnswer(issue(tt.token, 300))
		bearer := "machine-" + strings.ReplaceAll(tt.name, " ", "-")
		for range 2 {
			for range 5 {
				_, err := w.Authenticate(t.Context(), bearer)
				if want := "the identity provider cannot be asked: " + prefix + tt.want.Error(); !isUnavailable(err) || err.Error() != want {
					t.Errorf("%s: got %v, want %s", tt.name, err, want)
				}
			}
			w.exchanges(t, bearer)
			w.told(t, ExchangeInvalid)
			w.clock.Step(refusedFor)
		}
		if diff := cmp.Diff([]string{prefix + tt.want.Error()}, w.Faults()); diff != "" {
			t.Error(diff)
		}
	}
	if changes != 7 { // the last one is as the one before
		t.Errorf("told of %d changes", changes)
	}

	// It ends with a good token, and not with one that nothing is known of.
	w.endpoint.setAnswer(issue(jwt.token(t, k1(), p, "aud", "proxy-b"), 300))
	w.check(t, "machine-1", errAudience.Reason)
	if len(w.Faults()) != 1 || changes != 7 {
		t.Errorf("faults %q, told of %d changes", w.Faults(), changes)
	}
	good := jwt.token(t, k1(), p)
	w.endpoint.setAnswer(issue(good, 300))
	w.check(t, "machine-itself", "alice by "+good)
	if faults := w.Faults(); len(faults) != 0 || changes != 8 {
		t.Errorf("faults %q, told of %d changes", faults, changes)
	}

	// Or after five minutes.
	w.endpoint.setAnswer(issue("opaque", 300))
	w.check(t, "machine-2", "unavailable")
	w.clock.Step(idp.FaultAge - time.Nanosecond)
	if faults := w.Faults(); len(faults) != 1 {
		t.Errorf("faults %q", faults)
	}
	w.clock.Step(time.Nanosecond)
	if faults := w.Faults(); len(faults) != 0 {
		t.Errorf("faults %q", faults)
	}
	// A fault of the endpoint itself is the last one.
	w.check(t, "machine-2", "unavailable")
	w.endpoint.setAnswer(status(500, ""))
	w.check(t, "machine-3", "unavailable")
	if diff := cmp.Diff([]string{w.endpoint.URL + "/token: it answered with status 500"}, w.Faults()); diff != "" {
		t.Error(diff)
	}
}

// AUTH-16, TEX-02: which reasons are the provider's fault.
func TestReasonsOfFaultyTokens(t *testing.T) {
	t.Parallel()
	fault := map[string]bool{
		errMalformed.Reason: true, errUnknownIssuer.Reason: true, errExpired.Reason: true, errNotYetValid.Reason: true, errAlgorithm.Reason: true,
		errUnknownKey.Reason: true, errSignature.Reason: true, errOpaque.Reason: true, errNotIntrospected.Reason: true,
	}
	for _, reason := range append(slices.Collect(maps.Keys(fault)), errNoCredential.Reason, errScheme.Reason, errConflict.Reason, errAudience.Reason, errClaims.Reason,
		errEmailNotVerified.Reason, errRule.Reason, errTooLarge.Reason, errApiserver.Reason, errExchange.Reason, errInternal.Reason, errInactive.Reason, errNotAccepted.Reason, errSubject.Reason) {
		w, in := newFakeWorld(t)
		in.setVerdict(func(string) (*Result, error) { return nil, &Unauthenticated{Reason: reason} })
		want := reason
		if fault[reason] {
			want = "unavailable"
		}
		for range 3 {
			w.check(t, "machine-1", want)
		}
		w.exchanges(t, "machine-1")
		w.told(t, ExchangeInvalid)
		if shown := len(w.Faults()) == 1; shown != fault[reason] {
			t.Errorf("%s: faults %q", reason, w.Faults())
		}
	}
}

// AUTH-15: a faulty token is no new one: the known token goes on to its end,
// with one attempt in five seconds, also while it cannot be judged.
func TestFaultyTokenIsNoRenewal(t *testing.T) {
	w, in := newFakeWorld(t)
	verdict := func(token string) (*Result, error) {
		if token == "useless" {
			return nil, errSignature
		}
		return accepted(w.clock, token), nil
	}
	in.setVerdict(verdict)
	w.endpoint.setAnswer(issue("token-1", 300))
	w.check(t, "machine-1", "user of token-1 by token-1")
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)
	w.endpoint.setAnswer(issue("useless", 300))
	w.clock.Step(270 * time.Second)
	for range 5 {
		for range 3 {
			w.check(t, "machine-1", "user of token-1 by token-1")
		}
		w.exchanges(t, "machine-1")
		w.told(t, ExchangeInvalid)
		w.clock.Step(renewPause)
	}
	in.setVerdict(func(token string) (*Result, error) {
		if token == "useless" {
			return nil, errSignature
		}
		return nil, &Unavailable{Fault: "tired"}
	})
	for range 3 {
		w.check(t, "machine-1", "unavailable")
	}
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeInvalid)
	in.setVerdict(verdict)
	w.clock.Step(renewPause) // 300 s: its end
	for range 3 {
		w.check(t, "machine-1", "unavailable")
	}
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeInvalid)

	w.endpoint.setAnswer(issue("token-2", 300))
	w.clock.Step(refusedFor)
	w.check(t, "machine-1", "user of token-2 by token-2")
}

// AUTH-13: a token that ends while it is renewed in vain leaves the provider's
// fault, which is not remembered, and no 401 for the machine.
func TestTokenEndsDuringItsRenewal(t *testing.T) {
	w, _ := newFakeWorld(t)
	w.endpoint.setAnswer(issue("token-1", 300))
	w.check(t, "machine-1", "user of token-1 by token-1")
	w.endpoint.setAnswer(func(rw http.ResponseWriter, r *http.Request) {
		w.clock.Step(4 * time.Second)
		status(503, "")(rw, r)
	})
	w.clock.Step(298 * time.Second)
	w.check(t, "machine-1", "unavailable")
	w.endpoint.setAnswer(issue("token-2", 300))
	w.check(t, "machine-1", "user of token-2 by token-2")
}

// The same when it ends, or is found to be revoked, while it is judged: the
// bearer could not be judged.
func TestTokenIsRefusedAfterARenewalInVain(t *testing.T) {
	for _, reason := range []*Unauthenticated{errExpired, errInactive, errNotAccepted} {
		w, in := newFakeWorld(t)
		w.endpoint.setAnswer(issue("token-1", 300))
		w.check(t, "machine-1", "user of token-1 by token-1")
		w.clock.Step(290 * time.Second)
		w.endpoint.setAnswer(status(503, ""))
		in.setVerdict(func(string) (*Result, error) { return nil, reason })
		w.check(t, "machine-1", "unavailable")
		in.setVerdict(func(token string) (*Result, error) { return accepted(w.clock, token), nil })
		w.endpoint.setAnswer(issue("token-2", 300))
		w.check(t, "machine-1", "user of token-2 by token-2")
	}
}
