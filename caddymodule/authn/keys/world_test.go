package keys

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the tests use of package issuertest.
type (
	testIDP = issuertest.Issuer
	signer  = issuertest.Signer
)

func by(keyID string, algorithm jose.SignatureAlgorithm, key crypto.Signer) signer {
	return issuertest.By(keyID, algorithm, key)
}

func k1() signer { return issuertest.K1() }
func k2() signer { return issuertest.K2() }

// world is a handle with what it hangs on. It remembers what it verified, as a
// validator does.
type world struct {
	*Handle
	clock    *clocktesting.FakeClock
	registry *Registry

	mu       sync.Mutex
	verified map[string]*Key
}

func newWorld(t testing.TB, p *testIDP) *world {
	t.Helper()
	return newWorldAt(t, p.URL, p.CA())
}

func newWorldAt(t testing.TB, issuer, ca string) *world {
	t.Helper()
	w := &world{clock: issuertest.NewClock(), verified: make(map[string]*Key)}
	w.registry = NewRegistry(w.clock.Now, boundedjson.NewReader(1), nil)
	w.Handle = w.acquire(t, issuer, "", ca)
	t.Cleanup(w.registry.Close)
	t.Cleanup(w.Close)
	return w
}

func (w *world) acquire(t testing.TB, issuer, discoveryURL, ca string) *Handle {
	t.Helper()
	h, err := w.registry.Acquire(boundedjson.Owner{}, issuer, discoveryURL, ca)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES512, jose.EdDSA}

// verify verifies a token that is not remembered.
func verify(ctx context.Context, h *Handle, token string) (*Key, error) {
	signature, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	return h.Verify(ctx, signature, len(token))
}

func (w *world) authenticate(ctx context.Context, token string) error {
	w.mu.Lock()
	key := w.verified[token]
	w.mu.Unlock()
	if key != nil && w.IsFresh(key, w.clock.Now()) {
		return nil
	}
	key, err := verify(ctx, w.Handle, token)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verified[token] = key
	return err
}

func (w *world) check(t testing.TB, token string, want error) {
	t.Helper()
	if err := w.authenticate(t.Context(), token); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// unavailable fails unless a token meets this fault.
func (w *world) unavailable(t testing.TB, token, want string) {
	t.Helper()
	err := w.authenticate(t.Context(), token)
	var fault idp.Fault
	if !errors.As(err, &fault) || !strings.HasSuffix(fault.Error(), want) {
		t.Errorf("got %v; want a fault ending in %q", err, want)
	}
}

// token signs the claims of an issuer, changed by pairs of name and value.
func (w *world) token(t testing.TB, s signer, p *testIDP, changes ...any) string {
	t.Helper()
	c := map[string]any{"iss": p.URL, "exp": w.clock.Now().Add(time.Hour).Unix()}
	for i := 0; i < len(changes); i += 2 {
		c[changes[i].(string)] = changes[i+1]
	}
	payload, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Sign(t, nil, payload)
}

// isReading reports whether any key set is being read.
func (w *world) isReading() bool {
	for _, set := range w.registry.sets {
		set.mu.Lock()
		reading := set.reading != nil
		set.mu.Unlock()
		if reading {
			return true
		}
	}
	return false
}
