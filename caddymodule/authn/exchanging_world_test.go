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

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/internal/tlstest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
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
	asksApiserver bool
	mu            sync.Mutex
	verdict       validatorVerdict
	judged        []string
	faults        []string
	closed        bool
}

type validatorVerdict func(token string) (*Result, error)

func (f *fakeInner) Authenticate(_ context.Context, token string) (*Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judged = append(f.judged, token)
	return f.verdict(token)
}

func (f *fakeInner) Refresh()            {}
func (f *fakeInner) Faults() []string    { return slices.Clone(f.faults) }
func (f *fakeInner) AsksApiserver() bool { return f.asksApiserver }
func (f *fakeInner) Close()              { f.closed = true }

func (f *fakeInner) setVerdict(verdict validatorVerdict) {
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

// exchangeWorld is an exchanging validator with what it hangs on.
type exchangeWorld struct {
	*caching
	exchanging *exchanging
	clock      *clock
	endpoint   *tokenEndpoint
	mu         sync.Mutex
	results    []string
}

// newExchangeWorld builds on a validator that remembers nothing. issuers are those
// that it accepts.
func newExchangeWorld(t testing.TB, c *clock, cache *Cache, inner Validator, issuers ...string) *exchangeWorld {
	t.Helper()
	w := &exchangeWorld{clock: c, endpoint: newTokenEndpoint(t, issue("exchanged", 3600))}
	f := &Factory{cache: cache, options: Options{Answers: boundedjson.NewReader(1), TokenCacheTTL: 30 * time.Second, OnExchange: func(result string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.results = append(w.results, result)
	}}}
	cluster := &k8swatch.Cluster{Auth: k8swatch.Auth{Exchange: &k8swatch.TokenExchange{
		TokenURL: w.endpoint.URL + "/token?key=hidden", CertificateAuthority: tlstest.CA(w.endpoint.Server), ClientID: "proxy-a", ClientSecret: exchangeSecret,
	}}}
	for _, issuer := range issuers {
		cluster.Auth.JWT = append(cluster.Auth.JWT, k8swatch.JWT{Authenticator: apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: issuer}}})
	}
	var err error
	if w.exchanging, err = f.newExchanging(cluster, inner); err != nil {
		t.Fatal(err)
	}
	w.caching = newCaching(w.exchanging, cache)
	t.Cleanup(w.Close)
	return w
}

const exchangeSecret = "secret-of-the-client-0123456789"

// newFakeWorld is an exchangeWorld over a fakeInner that accepts all, an apiserver
// if there are no issuers.
func newFakeWorld(t testing.TB, issuers ...string) (*exchangeWorld, *fakeInner) {
	t.Helper()
	c := newClock()
	in := &fakeInner{asksApiserver: len(issuers) == 0}
	in.verdict = func(token string) (*Result, error) { return accepted(c, token), nil }
	return newExchangeWorld(t, c, NewCache(CacheOptions{Now: c.Now}), in, issuers...), in
}

// accepted is the result of a validator that asks over the network: it counts for
// thirty seconds, the token ends in an hour.
func accepted(c *clock, token string) *Result {
	return &Result{
		Identity: &identity.Identity{Name: "user of " + token}, Expires: c.Now().Add(time.Hour),
		until: c.Now().Add(30 * time.Second),
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
