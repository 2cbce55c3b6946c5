package keys

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/internal/issuertest"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
)

// AUTH-13: every way in which a provider can fail is a 503 with a text of
// ours, named in IssuerFaults, and ends when the provider is well again.
func TestFaults(t *testing.T) {
	const secret = "provider-text-that-must-not-appear"
	p := issuertest.New(t, k1().JWK())
	document := func(issuer, keys string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			issuertest.WriteJSON(w, map[string]any{"issuer": issuer, "jwks_uri": keys, "x": secret})
		}
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat(" ", boundedjson.MaxAnswer) + `]}`))
	}
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = `{"kty":"x"}`
	}
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, p.Server.URL+"/elsewhere", http.StatusFound)
	}
	breakOff := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	tests := []struct {
		name              string
		discovery, keySet http.HandlerFunc
		fault             string
	}{
		{"discovery 500", issuertest.Status(500, secret), nil, "it answered with status 500"},
		{"discovery 404", issuertest.Status(404, secret), nil, "it answered with status 404"},
		{"discovery redirected", redirect, nil, "it answered with status 302"},
		{"discovery no JSON", issuertest.Status(200, "<html>"+secret), nil, "its discovery document cannot be read"},
		{"discovery of another issuer", document("https://"+secret, p.Server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"discovery of the issuer with a slash", document(p.URL+"/", p.Server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"discovery without issuer", document("", p.Server.URL+"/keys"), nil, "its discovery document names another issuer"},
		{"keys over http", document(p.URL, "http://127.0.0.1/"+secret), nil, "its jwks_uri is not an https URL"},
		{"keys in a file", document(p.URL, "file:///etc/"+secret), nil, "its jwks_uri is not an https URL"},
		{"keys nowhere", document(p.URL, ""), nil, "its jwks_uri is not an https URL"},
		{"keys with a password", document(p.URL, "https://a:"+secret+"@127.0.0.1/"), nil, "its jwks_uri is not an https URL"},
		{"discovery huge", huge, nil, "its answer is over 1 MiB"},
		{"discovery broken off", breakOff, nil, "the connection failed"},
		{"keys 503", nil, issuertest.Status(503, secret), "it answered with status 503"},
		{"keys 204", nil, issuertest.Status(204, ""), "it answered with status 204"},
		{"keys redirected", nil, redirect, "it answered with status 302"},
		{"keys no JSON", nil, issuertest.Status(200, secret), "its key set cannot be read"},
		{"keys an error in JSON", nil, issuertest.Status(200, `{"error":"`+secret+`"}`), "its key set cannot be read"},
		{"keys null", nil, issuertest.Status(200, `{"keys":null}`), "its key set cannot be read"},
		{"keys an object", nil, issuertest.Status(200, `{"keys":{}}`), "its key set cannot be read"},
		{"keys empty", nil, issuertest.Status(200, `{"keys":[]}`), "it publishes no key that can verify a signature"},
		{"keys unusable", nil, issuertest.Status(200, `{"keys":[{"kty":"oct","kid":"k1","k":"AAAA"},null,1]}`), "it publishes no key that can verify a signature"},
		{"keys too many", nil, issuertest.Status(200, `{"keys":[`+strings.Join(many, ",")+`]}`), "its key set has over 100 keys"},
		{"keys huge", nil, huge, "its answer is over 1 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, p)
			token := w.token(t, k1(), p)
			p.Answer(tt.discovery, tt.keySet)
			w.unavailable(t, token, tt.fault)
			if fault := w.Fault(); fault.Error() != tt.fault {
				t.Errorf("fault %q", fault)
			}
			// Not asked again at once, and the same answer.
			before := p.Discoveries.Load()
			w.unavailable(t, token, tt.fault)
			if p.Discoveries.Load() != before {
				t.Error("asked again within a second")
			}
			p.Answer(nil, nil)
			w.clock.Step(retryNoKeys)
			w.check(t, token, nil)
			if fault := w.Fault(); fault != "" {
				t.Errorf("still %q", fault)
			}
		})
	}
	if p.Others.Load() != 0 {
		t.Error("another path was asked for")
	}
}

func TestConnectionFaults(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		p := issuertest.New(t, k1().JWK())
		w := newWorld(t, p)
		p.Server.Close()
		w.unavailable(t, w.token(t, k1(), p), "it refused the connection")
	})
	t.Run("certificate of another CA", func(t *testing.T) {
		p := issuertest.New(t, k1().JWK())
		w := newWorldAt(t, p.URL, "")
		w.unavailable(t, w.token(t, k1(), p), "its certificate is not trusted")
		if p.Discoveries.Load() != 0 {
			t.Error("asked all the same")
		}
	})
	t.Run("hangs", func(t *testing.T) {
		p := issuertest.New(t, k1().JWK())
		w := newWorld(t, p)
		for _, set := range w.registry.sets {
			set.limit = 50 * time.Millisecond
		}
		p.Answer(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
		w.unavailable(t, w.token(t, k1(), p), "it did not answer in time")
	})
	t.Run("name", func(t *testing.T) {
		p := issuertest.New(t)
		w := newWorldAt(t, "https://no-such-host.invalid", "")
		err := w.authenticate(t.Context(), w.token(t, k1(), p))
		var fault idp.Fault
		if !errors.As(err, &fault) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("environment proxies are not used", func(t *testing.T) {
		t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
		p := issuertest.New(t, k1().JWK())
		w := newWorld(t, p)
		transport := w.client.Transport.(*http.Transport)
		if transport.Proxy != nil {
			t.Error("the transport has a proxy")
		}
		w.check(t, w.token(t, k1(), p), nil)
	})
}

// With keys at hand an outage of the provider fails no token that can be
// judged with them, for an hour.
func TestOutageWithKeys(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	long := w.token(t, k1(), p, "exp", w.clock.Now().Add(24*time.Hour).Unix())
	w.check(t, long, nil)
	p.Answer(issuertest.Status(500, ""), issuertest.Status(500, ""))

	w.clock.Step(keysAge)
	w.check(t, long, nil) // waits for the read, which fails
	if fault := w.Fault(); fault == "" {
		t.Error("no fault")
	}
	asked := p.Discoveries.Load()
	for n := range 5 {
		w.check(t, w.token(t, k1(), p, "n", n), nil)
	}
	if p.Discoveries.Load() != asked {
		t.Error("asked for each token")
	}
	// A kid that may be new cannot be judged.
	w.unavailable(t, w.token(t, k2(), p), "it answered with status 500")
	w.unavailable(t, w.token(t, k2(), p, "n", 1), "it answered with status 500")
	// A signature that is bad can.
	w.check(t, w.token(t, by("k1", jose.RS256, issuertest.RSA2()), p), ErrSignature)

	w.clock.Step(keysStale - keysAge - time.Second)
	w.check(t, long, nil)
	issuertest.Eventually(t, "the read in the background ends", func() bool { return !w.isReading() })
	w.clock.Step(time.Minute)
	w.unavailable(t, long, "it answered with status 500")

	p.Answer(nil, nil)
	w.clock.Step(retryNoKeys)
	w.check(t, long, nil)
	if fault := w.Fault(); fault != "" {
		t.Errorf("still %q", fault)
	}
}

// AUTH-13: a panic over an answer is a fault of the provider and ends no process.
func TestPanicIsAFault(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	usual := w.client.Transport
	w.client.Transport = panics{usual}
	token := w.token(t, k1(), p)
	w.unavailable(t, token, "its answer cannot be read")
	w.client.Transport = usual
	w.clock.Step(retryNoKeys)
	w.check(t, token, nil)
}

type panics struct{ http.RoundTripper }

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("boom") }

// A kube-apiserver answers 406 to those who do not accept a JWK Set.
func TestKeysOfAnApiserver(t *testing.T) {
	p := issuertest.New(t, k1().JWK())
	w := newWorld(t, p)
	p.Answer(nil, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept"), "application/jwk-set+json") {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		issuertest.WriteJSON(w, map[string]any{"keys": []any{k1().JWK()}})
	})
	w.check(t, w.token(t, k1(), p), nil)
}
