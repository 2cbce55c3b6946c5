package authn

import (
	"crypto"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/safecel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// Times and bounds of the packages keys and claims.
const (
	keysAge      = 5 * time.Minute
	retryNoKeys  = time.Second
	maxEvaluated = 32 << 10
	maxAudience  = 16 << 10
)

// What the tests of this package use of package issuertest.
type (
	clock  = clocktesting.FakeClock
	signer = issuertest.Signer
)

func by(keyID string, algorithm jose.SignatureAlgorithm, key crypto.Signer) signer {
	return issuertest.By(keyID, algorithm, key)
}

func newClock() *clock { return issuertest.NewClock() }
func k1() signer       { return issuertest.K1() }
func k2() signer       { return issuertest.K2() }

func writeJSON(w http.ResponseWriter, v any)        { issuertest.WriteJSON(w, v) }
func status(code int, body string) http.HandlerFunc { return issuertest.Status(code, body) }
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	issuertest.Eventually(t, what, cond)
}

// testIDP is a small OpenID provider.
type testIDP struct {
	*issuertest.Issuer
	tokenEndpoints
}

func newIDP(t testing.TB, keys ...map[string]any) *testIDP {
	t.Helper()
	p := &testIDP{Issuer: issuertest.New(t, keys...)}
	p.userinfo.usual, p.introspection.usual = p.serveUserinfo, p.serveIntrospection
	p.Handlers = map[string]http.HandlerFunc{
		"/userinfo":   func(w http.ResponseWriter, r *http.Request) { p.userinfo.serve(w, r) },
		"/introspect": func(w http.ResponseWriter, r *http.Request) { p.introspection.serve(w, r) },
	}
	p.Endpoints = p.describe
	return p
}

// authenticator is the configuration most tests use: claims sub and groups
// without prefixes, audience proxy-a.
func (p *testIDP) authenticator() apiserver.JWTAuthenticator {
	none := ""
	return apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: p.URL, CertificateAuthority: p.CA(), Audiences: []string{"proxy-a"}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &none},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &none},
		},
	}
}

var compiler = sync.OnceValue(safecel.New)

func compile(t testing.TB, a apiserver.JWTAuthenticator) k8swatch.JWT {
	t.Helper()
	mapper, errs := validation.CompileAndValidateJWTAuthenticator(compiler(), a, nil)
	if err := errs.ToAggregate(); err != nil {
		t.Fatalf("the test's authenticator is not valid: %v", err)
	}
	return k8swatch.JWT{Authenticator: a, Mapper: mapper}
}

func claim(name, prefix string) apiserver.PrefixedClaimOrExpression {
	return apiserver.PrefixedClaimOrExpression{Claim: name, Prefix: &prefix}
}

func expression(e string) apiserver.PrefixedClaimOrExpression {
	return apiserver.PrefixedClaimOrExpression{Expression: e}
}

// world is the validator of one cluster with what it hangs on.
type world struct {
	Validator
	clock   *clock
	factory *Factory
	cache   *Cache
}

func newWorld(t testing.TB, authenticators ...apiserver.JWTAuthenticator) *world {
	t.Helper()
	return newWorldWith(t, Options{TokenCacheTTL: testTTL, AudienceValidation: AudienceEnforce}, authenticators...)
}

func newWorldWith(t testing.TB, o Options, authenticators ...apiserver.JWTAuthenticator) *world {
	t.Helper()
	w := &world{clock: newClock()}
	o.Cache.Now = w.clock.Now
	w.factory = NewFactory(o)
	w.cache = w.factory.cache
	w.Validator = w.make(t, authenticators...)
	t.Cleanup(w.factory.Close)
	t.Cleanup(w.Close)
	return w
}

func (w *world) make(t testing.TB, authenticators ...apiserver.JWTAuthenticator) Validator {
	t.Helper()
	c := &k8swatch.Cluster{Auth: k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators}}
	for _, a := range authenticators {
		c.Auth.JWT = append(c.Auth.JWT, compile(t, a))
	}
	v, err := w.factory.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// check authenticates a token and compares the name or the reason.
func (w *world) check(t testing.TB, token, name, reason string) {
	t.Helper()
	checkValidator(t, w.Validator, token, name, reason)
}

func checkValidator(t testing.TB, v Validator, token, name, reason string) {
	t.Helper()
	result, err := v.Authenticate(t.Context(), token)
	got := ""
	if err == nil {
		got = result.Identity.Name
	}
	if got != name || reasonOf(err) != reason {
		t.Errorf("got %q, %v; want %q, %q", got, err, name, reason)
	}
}

// unavailable fails unless a token is answered with a 503 of this fault.
func (w *world) unavailable(t *testing.T, token, want string) {
	t.Helper()
	result, err := w.Authenticate(t.Context(), token)
	var fault *Unavailable
	if result != nil || !errors.As(err, &fault) || !strings.HasSuffix(fault.Fault, want) {
		t.Errorf("got %v, %v; want a fault ending in %q", result, err, want)
	}
}

// claimsOf is T(x): the claims of a good token, changed by pairs of name and
// value. The value absent removes a claim.
func (w *world) claimsOf(p *testIDP, changes ...any) map[string]any {
	now := w.clock.Now().Unix()
	c := map[string]any{
		"iss": p.URL, "aud": "proxy-a", "iat": now, "exp": now + 600,
		"sub": "alice", "groups": []string{"dev", "ops"},
	}
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		if changes[i+1] == absent {
			delete(c, name)
			continue
		}
		c[name] = changes[i+1]
	}
	return c
}

var absent any = new(int)

func (w *world) token(t testing.TB, s signer, p *testIDP, changes ...any) string {
	t.Helper()
	payload, err := json.Marshal(w.claimsOf(p, changes...))
	if err != nil {
		t.Fatal(err)
	}
	return s.Sign(t, nil, payload)
}
