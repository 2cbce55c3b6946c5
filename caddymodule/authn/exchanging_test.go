package authn

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// AUTH-14: who gets to see a bearer, by what it is. A token that names an
// issuer never reaches the endpoint, whatever is wrong with it.
func TestWhoSeesABearer(t *testing.T) {
	const ours, google, other = "https://idp.example.test/realm", "https://accounts.google.com", "https://other.example.test"
	named := func(header, payload string) string {
		return issuertest.Encode([]byte(header)) + "." + issuertest.Encode([]byte(payload)) + ".c2ln"
	}
	jws := func(payload string) string { return named(`{"alg":"RS256"}`, payload) }
	iss := func(issuer string) string { return jws(`{"iss":"` + issuer + `"}`) }
	jwe := func(header string) string { return issuertest.Encode([]byte(header)) + ".a2V5.aXY.dGV4dA.dGFn" }
	for _, tt := range []struct {
		name, token string
		// known and unknown say who decides where the issuers are known and
		// where they are not: inner, exchange, or the reason of a 401.
		known, unknown string
	}{
		{"opaque", "a-machine-token", "exchange", "exchange"},
		{"opaque with dots", "a.machine.token", "exchange", "exchange"},
		{"JWS without iss", jws(`{"sub":"robot"}`), "exchange", "exchange"},
		{"JWE without iss", jwe(`{"alg":"dir","enc":"A128GCM"}`), "exchange", "exchange"},

		{"iss of ours", iss(ours), "inner", "inner"},
		{"iss of ours, the second", iss(google), "inner", "inner"},
		{"the other name of Google", iss("accounts.google.com"), "inner", "inner"},
		{"JWE for ours", jwe(`{"alg":"dir","enc":"A128GCM","iss":"` + ours + `"}`), "inner", "inner"},

		{"another iss", iss(other), errUnknownIssuer.Reason, "inner"},
		{"ours with a slash", iss(ours + "/"), errUnknownIssuer.Reason, "inner"},
		{"ours in capitals", iss(strings.ToUpper(ours)), errUnknownIssuer.Reason, "inner"},
		{"JWE for another", jwe(`{"alg":"dir","enc":"A128GCM","iss":"` + other + `"}`), errUnknownIssuer.Reason, "inner"},

		{"iss null", jws(`{"iss":null}`), errMalformed.Reason, "inner"},
		{"iss empty", iss(""), errMalformed.Reason, "inner"},
		{"iss a list", jws(`{"iss":["` + ours + `"]}`), errMalformed.Reason, "inner"},
		{"ISS", jws(`{"ISS":"` + other + `"}`), errMalformed.Reason, "inner"},
		{"iss escaped", jws(`{"\u0069ss":"` + other + `"}`), errUnknownIssuer.Reason, "inner"},
		{"iss twice", jws(`{"iss":"` + ours + `","iss":"` + other + `"}`), errMalformed.Reason, "inner"},
		{"no signature", issuertest.Encode([]byte(`{"alg":"none"}`)) + "." + issuertest.Encode([]byte(`{"iss":"`+other+`"}`)) + ".", errMalformed.Reason, "inner"},
		{"a part is missing", issuertest.Encode([]byte(`{"alg":"RS256"}`)) + "." + issuertest.Encode([]byte(`{"iss":"`+other+`"}`)), errMalformed.Reason, "inner"},
		{"a part too many", iss(other) + ".c2ln", errMalformed.Reason, "inner"},
		{"padded", iss(other) + "==", errMalformed.Reason, "inner"},
		{"payload broken off", jws(`{"iss":"` + other + `"`), errMalformed.Reason, "inner"},
		{"another kind of header", named(`{"typ":"JWT"}`, `{"iss":"`+other+`"}`), errMalformed.Reason, "inner"},
		{"no b64token", "a machine token", errMalformed.Reason, errMalformed.Reason},
		{"too long", strings.Repeat("x", maxToken+1), errMalformed.Reason, errMalformed.Reason},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, kind := range []struct {
				issuers []string
				want    string
			}{{[]string{ours, google}, tt.known}, {nil, tt.unknown}} {
				w, in := newFakeWorld(t, kind.issuers...)
				want := "user of exchanged by exchanged"
				switch kind.want {
				case "exchange":
				case "inner":
					want = "user of " + tt.token + " by "
				default:
					want = kind.want
				}
				w.check(t, tt.token, want)
				exchanged := map[bool][]string{true: {tt.token}}[kind.want == "exchange"]
				asked := map[string][]string{"inner": {tt.token}, "exchange": {"exchanged"}}[kind.want]
				w.exchanges(t, exchanged...)
				if got := in.judgements(); !slices.Equal(got, asked) {
					t.Errorf("the inner validator was asked about %q", got)
				}
				if n := w.cache.Len(); n != len(asked) {
					t.Errorf("%d tokens are remembered", n)
				}
			}
		})
	}
}

// TEX-02, AUTH-15: a token for a token, validated as any of this cluster.
func TestExchangedTokenIsValidated(t *testing.T) {
	p := newIDP(t, k1().JWK())
	jwt := newWorld(t, p.authenticator())
	w := newExchangeWorld(t, jwt.clock, jwt.cache, uncached(jwt.Validator), p.URL)
	good := jwt.token(t, k1(), p, "sub", "robot", "exp", jwt.clock.Now().Unix()+900)
	w.endpoint.setAnswer(issue(good, 300))

	result, err := w.Authenticate(t.Context(), "machine-1")
	if err != nil {
		t.Fatal(err)
	}
	want := &Result{
		Identity: &identity.Identity{Name: "robot", Groups: []string{"dev", "ops"}},
		Expires:  w.clock.Now().Add(300 * time.Second),
		Bearer:   good,
	}
	if diff := cmp.Diff(want, result, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Error(diff)
	}
	w.exchanges(t, "machine-1")
	w.told(t, ExchangeOK)
	for range 3 {
		w.check(t, "machine-1", "robot by "+good)
	}
	w.exchanges(t)

	// People on the same URL: the token tells them apart, and their own is
	// what goes on.
	w.check(t, jwt.token(t, k1(), p), "alice by ")
	w.check(t, good, "robot by ") // without the verdict on machine-1
	w.check(t, jwt.token(t, k1(), p, "aud", "proxy-b"), errAudience.Reason)
	w.check(t, jwt.token(t, k1(), p, "exp", 1), errExpired.Reason)
	w.exchanges(t)
	w.told(t)

	// The audience of the token is the caller's matter, and a 401.
	for name, tt := range map[string]struct {
		answer string
		want   string
	}{
		"another audience": {jwt.token(t, k1(), p, "aud", "proxy-b"), errAudience.Reason},
		"no name":          {jwt.token(t, k1(), p, "sub", 42), errClaims.Reason},
	} {
		w.endpoint.setAnswer(issue(tt.answer, 300))
		bearer := "machine-" + strings.ReplaceAll(name, " ", "-")
		for range 2 { // one exchange, remembered for five seconds
			for range 3 {
				w.check(t, bearer, tt.want)
			}
			w.exchanges(t, bearer)
			w.told(t, ExchangeInvalid)
			w.clock.Step(refusedFor)
		}
	}
	if faults := w.Faults(); len(faults) != 0 {
		t.Errorf("faults %q", faults)
	}
}

// AUTH-16: what the provider refuses is a 401 in words of ours, remembered
// for five seconds.
func TestExchangeIsRefused(t *testing.T) {
	w, in := newFakeWorld(t)
	for _, status := range []int{400, 401, 403} {
		w.endpoint.setAnswer(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_ = json.NewEncoder(rw).Encode(map[string]any{"error": "invalid_target", "error_description": "robot-7 is locked"})
		})
		for range 3 {
			_, err := w.Authenticate(t.Context(), "machine-1")
			if reasonOf(err) != errExchange.Reason || err.Error() != "the token exchange was refused" {
				t.Errorf("status %d: %v", status, err)
			}
		}
		w.exchanges(t, "machine-1")
		w.told(t, ExchangeRefused)
		w.clock.Step(refusedFor)
	}
	if faults := w.Faults(); len(faults) != 0 || len(in.judgements()) != 0 {
		t.Errorf("faults %q", faults)
	}
	w.endpoint.setAnswer(issue("exchanged", 3600))
	w.check(t, "machine-1", "user of exchanged by exchanged")
}

// AUTH-13: the provider's trouble is a 503 with a notice, is not remembered,
// and ends without a restart.
func TestExchangeFaults(t *testing.T) {
	w, in := newFakeWorld(t)
	in.faults = []string{"https://idp.example.test: it is tired"}
	name := w.endpoint.URL + "/token: "
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"500", status(500, `{"error":"invalid_grant"}`), "it answered with status 500"},
		{"429", status(429, `{"error":"invalid_grant"}`), "it answered with status 429"},
		{"404 of a page", status(404, "no such page"), "it answered with status 404"},
		{"redirect", func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "it answered with status 307"},
		{"no JSON", status(200, "<html>"), "its answer to the token exchange cannot be read"},
		{"no token", status(200, `{"token_type":"Bearer"}`), "its answer to the token exchange holds no usable token"},
		{"a token with a line feed", issue("exchanged\r\nX-Remote-User: admin", 300), "it gave a token with bytes or a size that no bearer has"},
		{"over 1 MiB", issue("a"+strings.Repeat("x", 1<<20), 300), "its answer is over 1 MiB"},
		{"breaks off", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the connection failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.endpoint.setAnswer(tt.answer)
			w.check(t, "machine-1", "unavailable")
			w.told(t, ExchangeUnavailable)
			want := []string{"https://idp.example.test: it is tired", name + tt.want}
			if diff := cmp.Diff(want, w.Faults()); diff != "" {
				t.Error(diff)
			}
			// A refusal is an answer: the trouble is over.
			w.endpoint.setAnswer(status(400, `{"error":"invalid_grant"}`))
			w.check(t, "machine-1", errExchange.Reason)
			if diff := cmp.Diff(want[:1], w.Faults()); diff != "" {
				t.Error(diff)
			}
			w.told(t, ExchangeRefused)
			w.clock.Step(refusedFor)
		})
	}
}

// A refusal that lies in token_exchange is told, in the words of the standards
// alone; one that is about the bearer concerns the caller only.
func TestExchangeTellsOfItsConfiguration(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"error":"invalid_client"}`:         "invalid_client",
		`{"error":"unauthorized_client"}`:    "unauthorized_client",
		`{"error":"unsupported_grant_type"}`: "unsupported_grant_type",
		`{"error":"invalid_scope"}`:          "invalid_scope",
		`{"error":"invalid_target"}`:         "invalid_target",
		`{"error":"invalid_grant"}`:          "",
		`{"error":"invalid_request"}`:        "", // as some answer to a bad bearer
		`{"error":"access_denied"}`:          "",
		`{"error":"word.of.the.provider"}`:   "",
	} {
		w, _ := newFakeWorld(t)
		told := ""
		w.exchanging.onMisconfigured = func(code string) { told = code }
		w.endpoint.setAnswer(status(400, answer))
		w.check(t, "machine-1", errExchange.Reason)
		if told != want {
			t.Errorf("%s: told %q, want %q", answer, told, want)
		}
	}
}

// TEX-02: a provider that hangs is a 503 when the time of the validation is over
// (TestValidationTakesTenSecondsAtMost).
func TestExchangeHangs(t *testing.T) {
	w, _ := newFakeWorld(t)
	w.endpoint.setAnswer(hangs)
	if _, err := w.exchanging.Authenticate(shortly(t), "machine-1"); !isUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

// AUTH-12: the end of a configuration drops its tokens and verdicts, and no
// other's.
func TestCloseDropsExchangedTokens(t *testing.T) {
	c := newClock()
	cache := NewCache(CacheOptions{Now: c.Now})
	in := &fakeInner{verdict: func(token string) (*Result, error) { return accepted(c, token), nil }}
	one := newExchangeWorld(t, c, cache, in)
	two := newExchangeWorld(t, c, cache, &fakeInner{verdict: in.verdict})
	one.check(t, "machine-1", "user of exchanged by exchanged")
	one.exchanges(t, "machine-1")
	two.endpoint.setAnswer(issue("exchanged-too", 3600))
	two.check(t, "machine-1", "user of exchanged-too by exchanged-too") // no verdict is shared
	two.exchanges(t, "machine-1")
	if cache.Len() != 2 || cache.exchanged.len() != 2 {
		t.Fatalf("%d verdicts, %d tokens", cache.Len(), cache.exchanged.len())
	}
	one.Close()
	if !in.closed || cache.Len() != 1 || cache.exchanged.len() != 1 {
		t.Errorf("closed: %d verdicts, %d tokens", cache.Len(), cache.exchanged.len())
	}
	two.check(t, "machine-1", "user of exchanged-too by exchanged-too")
	two.exchanges(t)
}

// Each request is one look into the cache, whichever way its bearer goes.
func TestExchangingCountsLookups(t *testing.T) {
	p := newIDP(t, k1().JWK())
	jwt := newWorld(t, p.authenticator())
	w := newExchangeWorld(t, jwt.clock, jwt.cache, uncached(jwt.Validator), p.URL)
	w.endpoint.setAnswer(issue(jwt.token(t, k1(), p), 300))
	var seen []string
	jwt.cache.options.OnLookup = func(result string) { seen = append(seen, result) }
	for _, bearer := range []string{"machine-1", jwt.token(t, k1(), p, "n", 1)} {
		seen = nil
		for range 2 {
			if _, err := w.Authenticate(t.Context(), bearer); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(seen, []string{CacheMiss, CacheHit}) {
			t.Errorf("counted %q", seen)
		}
	}
	w.endpoint.setAnswer(status(400, `{"error":"invalid_grant"}`))
	seen = nil
	w.check(t, "machine-2", errExchange.Reason)
	w.check(t, "machine-2", errExchange.Reason)
	if !slices.Equal(seen, []string{CacheMiss, CacheRefused}) {
		t.Errorf("counted %q", seen)
	}
}
