package caddymodule

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// knownBearer is an authenticator that has seen every token.
type knownBearer struct{ result *authn.Result }

func (k knownBearer) Authenticate(context.Context, string) (*authn.Result, error) {
	return k.result, nil
}

// costFixture is what the product itself does for one request: the decision,
// the request for the apiserver, the stream, the audit line. Neither Caddy nor
// a connection is part of it.
type costFixture struct {
	handler  *Handler
	response []byte
	relayed  bool
}

func newCostFixture(audit *zap.Logger) *costFixture {
	key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
	c := &cluster{
		spec: &k8swatch.Cluster{
			Key: key, Enabled: true, Mode: v1.ModeFrontProxy, UserPrefix: "proxyauth:", GroupPrefix: "proxyauth:",
			Auth:   k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators},
			Target: k8swatch.Target{Canonical: "external:https://10.0.0.1:6443", Address: "10.0.0.1:6443", Host: "10.0.0.1:6443"},
		},
		settings: identity.Settings{UserPrefix: "proxyauth:", GroupPrefix: "proxyauth:"},
		auth: knownBearer{&authn.Result{Expires: time.Now().Add(time.Hour), Identity: &identity.Identity{
			Name: "alice", Groups: []string{"team-a", "a,b"}, Extra: map[string][]string{"example.com/session": {"s-1"}},
		}}},
		gate:    upstream.NewGate[probe.Verdict](nil),
		streams: upstream.NewRegistry().NewGroup(), requests: new(requestCounts),
		via: "proxyauth-0123456789abcdef", viaHTTP1: []string{"1.1 proxyauth-0123456789abcdef"},
	}
	c.gate.Observe(probe.Verdict{Trust: v1.TrustTrusted})
	c.entrance = guarded(c.gate, c.probe)
	rt := &runtime{}
	rt.snapshot.Store(&snapshot{clusters: map[k8swatch.Key]*cluster{key: c}})
	return &costFixture{
		handler:  &Handler{app: &App{runtime: rt, impersonation: impersonationStrip}, logger: zap.NewNop(), audit: audit},
		response: []byte(strings.Repeat("x", 1024)),
	}
}

// ServeHTTP stands in for reverse_proxy and its transport.
func (f *costFixture) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	f.relayed = true
	d := r.Context().Value(decisionKey{}).(*decision)
	ctx, answered := d.cluster.streams.Begin(r.Context(), d.subject())
	defer answered()
	out := d.outgoing(ctx, r, &bodyWatcher{ReadCloser: r.Body})
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: 1024, Body: io.NopCloser(http.NoBody), Request: out}
	identity.ScrubResponse(res.Header, false)
	d.track(r, res)
	w.WriteHeader(res.StatusCode)
	_, err := w.Write(f.response)
	_ = res.Body.Close()
	return err
}

// nullWriter is a client that costs nothing.
type nullWriter struct{ header http.Header }

func (w nullWriter) Header() http.Header         { return w.header }
func (w nullWriter) WriteHeader(int)             {}
func (w nullWriter) Write(p []byte) (int, error) { return len(p), nil }

func (f *costFixture) request() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/clusters/team-a/prod/api/v1/namespaces/default/pods?limit=500", nil)
	r.Header = http.Header{
		"Accept":            {"application/json"},
		"Accept-Encoding":   {"gzip"},
		"User-Agent":        {"kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0"},
		"Via":               {"1.1 Caddy"},
		"X-Forwarded-For":   {"192.0.2.1"},
		"X-Forwarded-Host":  {"k8s.example.com"},
		"X-Forwarded-Proto": {"https"},
	}
	ctx := context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: "192.0.2.1"})
	return r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, caddy.NewReplacer()))
}

func (f *costFixture) serve(tb testing.TB, r *http.Request, token []string) {
	r.Header["Authorization"] = token
	f.relayed = false
	if err := f.handler.ServeHTTP(nullWriter{http.Header{}}, r, caddyhttp.HandlerFunc(f.ServeHTTP)); err != nil {
		tb.Fatal(err)
	}
	if !f.relayed {
		tb.Fatal("the request was refused")
	}
}

func BenchmarkOwnCost(b *testing.B) {
	json := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	for name, audit := range map[string]*zap.Logger{
		"audited": zap.New(zapcore.NewCore(json, zapcore.AddSync(io.Discard), zapcore.InfoLevel)),
		"bare":    zap.NewNop(),
	} {
		b.Run(name, func(b *testing.B) {
			f := newCostFixture(audit)
			r, token := f.request(), []string{"Bearer " + strings.Repeat("a", 600)}
			b.ReportAllocs()
			for b.Loop() {
				f.serve(b, r, token)
			}
		})
	}
}

// A request with a known token makes little garbage: what is the same for all
// requests of a token or a cluster is made once.
func TestOwnAllocations(t *testing.T) {
	const most = 25
	f := newCostFixture(zap.NewNop())
	r, token := f.request(), []string{"Bearer " + strings.Repeat("a", 600)}
	if n := testing.AllocsPerRun(200, func() { f.serve(t, r, token) }); n > most {
		t.Errorf("%v allocations a request, want at most %d", n, most)
	}
}
