package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/exchange"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
)

// tokenEndpoint exchanges subject tokens.
type tokenEndpoint struct {
	*httptest.Server
	mu       sync.Mutex
	subjects []string
	answer   http.HandlerFunc
}

func newTokenEndpoint(t testing.TB, answer http.HandlerFunc) *tokenEndpoint {
	t.Helper()
	e := &tokenEndpoint{answer: answer}
	e.Server = tlstest.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		e.mu.Lock()
		e.subjects = append(e.subjects, r.PostForm.Get("subject_token"))
		answer := e.answer
		e.mu.Unlock()
		answer(w, r)
	}))
	return e
}

func (e *tokenEndpoint) setAnswer(answer http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

// calls returns the tokens that were exchanged since it was last asked.
func (e *tokenEndpoint) calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.subjects
	e.subjects = nil
	return calls
}

// issue answers with an ID token, as Kanidm does. expiresIn 0 is left out.
func issue(idToken string, expiresIn int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		answer := map[string]any{"access_token": "an-access-token", "id_token": idToken, "issued_token_type": "AccessToken", "token_type": "Bearer"}
		if expiresIn != 0 {
			answer["expires_in"] = expiresIn
		}
		writeJSON(w, answer)
	}
}

// fakeInner is a validator whose verdicts are set by hand.
type fakeInner struct {
	names   []string
	mu      sync.Mutex
	verdict func(token string) (answer, error)
	judged  []string // by judge
	asked   []string // by Authenticate
	faults  []string
	closed  bool
}

func (f *fakeInner) Authenticate(_ context.Context, token string) (*Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, token)
	a, err := f.verdict(token)
	return a.result, err
}

func (f *fakeInner) judge(_ context.Context, token string) (answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judged = append(f.judged, token)
	return f.verdict(token)
}

func (f *fakeInner) issuers() []string      { return f.names }
func (f *fakeInner) remembers() scope       { return newScope("inner", "") }
func (f *fakeInner) Refresh()               {}
func (f *fakeInner) IssuerFaults() []string { return slices.Clone(f.faults) }
func (f *fakeInner) Close()                 { f.closed = true }

func (f *fakeInner) setVerdict(verdict func(string) (answer, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.verdict = verdict
}

// judgements returns what was judged since it was last asked.
func (f *fakeInner) judgements() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	judged := f.judged
	f.judged = nil
	return judged
}

// exchangeWorld is an Exchanging with what it hangs on.
type exchangeWorld struct {
	*Exchanging
	clock    *clock
	endpoint *tokenEndpoint
	mu       sync.Mutex
	results  []string
}

// newExchangeWorld builds on inner, or on a fake one whose verdicts count for
// thirty seconds on tokens that end in an hour.
func newExchangeWorld(t testing.TB, c *clock, cache *Cache, in Authenticator) *exchangeWorld {
	t.Helper()
	w := &exchangeWorld{clock: c, endpoint: newTokenEndpoint(t, issue("exchanged", 3600))}
	client, err := exchange.New(exchange.Config{
		TokenURL: w.endpoint.URL + "/token?key=hidden", CertificateAuthority: tlstest.CA(w.endpoint.Server), ClientID: "proxy-a", ClientSecret: exchangeSecret, Now: c.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Exchanging, err = NewExchanging(ExchangingConfig{
		UID: "uid-1", Hash: "hash-1", TTL: 30 * time.Second,
		OnExchange: func(result string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.results = append(w.results, result)
		},
	}, in, client, cache)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Exchanging.Close)
	return w
}

const exchangeSecret = "secret-of-the-client-0123456789"

// newFakeWorld is an exchangeWorld over a fakeInner that accepts all.
func newFakeWorld(t testing.TB, issuers ...string) (*exchangeWorld, *fakeInner) {
	t.Helper()
	c := newClock()
	in := &fakeInner{names: issuers}
	in.verdict = func(token string) (answer, error) { return accepted(c, token), nil }
	return newExchangeWorld(t, c, NewCache(0, c.Now), in), in
}

// accepted is the answer of a validator that asks over the network.
func accepted(c *clock, token string) answer {
	return answer{
		result: &Result{Identity: &identity.Identity{Name: "user of " + token}, Expires: c.Now().Add(time.Hour)},
		until:  c.Now().Add(30 * time.Second),
	}
}

// check authenticates and compares: want is "name by bearer", the reason of a
// 401, or "unavailable". No error may hold a piece of a credential (OBS-01).
func (w *exchangeWorld) check(t testing.TB, token, want string) {
	t.Helper()
	result, err := w.Authenticate(t.Context(), token)
	got := reasonOf(err)
	switch {
	case err == nil:
		got = result.Identity.Name + " by " + result.Bearer
	case isUnavailable(err):
		got = "unavailable"
	}
	if got != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
	for _, credential := range []string{token, exchangeSecret, "hidden", "exchanged"} {
		if err != nil && len(credential) > 5 && strings.Contains(fmt.Sprintf("%v %+v", err, err), credential) {
			t.Errorf("the error holds a credential: %v", err)
		}
	}
}

// exchanges fails unless exactly these tokens were exchanged.
func (w *exchangeWorld) exchanges(t testing.TB, want ...string) {
	t.Helper()
	if got := w.endpoint.calls(); !slices.Equal(got, want) {
		t.Errorf("exchanged %q, want %q", got, want)
	}
}

// told fails unless exactly these results were counted.
func (w *exchangeWorld) told(t testing.TB, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.results, want) {
		t.Errorf("counted %q, want %q", w.results, want)
	}
	w.results = nil
}

// isLimited reports whether the proxy did not ask because of the tokens that were
// refused before.
func isLimited(err error) bool {
	var unavailable *Unavailable
	return errors.As(err, &unavailable) && unavailable.Limit == "too many tokens were refused lately"
}

func isUnavailable(err error) bool {
	var unavailable *Unavailable
	return errors.As(err, &unavailable)
}
