package request

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// costFixture is what the product itself does for one request: the decision,
// the request for the apiserver, the stream, the audit line. Neither Caddy nor
// a connection is part of it.
type costFixture struct {
	config   *Config
	response []byte
}

func newCostFixture(tb testing.TB, audit *zap.Logger) *costFixture {
	result := &authn.Result{Expires: time.Now().Add(time.Hour), Identity: &identity.Identity{
		Name: "alice", Groups: []string{"team-a", "a,b"}, Extra: map[string][]string{"example.com/session": {"s-1"}},
	}}
	c := newCluster(tb, v1.ModeFrontProxy, validatorFunc(func(string) (*authn.Result, error) { return result, nil }), nil)
	config := configOf(clustersOf(c))
	config.Clusters = uncounted{config.Clusters}
	config.Audit = audit
	return &costFixture{config: config, response: []byte(strings.Repeat("x", 1024))}
}

// uncounted are clusters whose requests are not remembered.
type uncounted struct{ Clusters }

func (uncounted) CountRequest(*serving.Cluster, int, time.Duration) {}

// relay stands in for reverse_proxy and its transport.
func (f *costFixture) relay(w http.ResponseWriter, r *http.Request) {
	d := DecisionOf(r.Context())
	ctx, answered := d.Cluster.Relay.Streams.Begin(r.Context(), d.subject)
	defer answered()
	out := d.outgoing(ctx, r, &bodyWatcher{ReadCloser: r.Body})
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: 1024, Body: io.NopCloser(http.NoBody), Request: out}
	identity.ScrubAnswer(res.Header, false)
	d.track(r, res)
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(f.response)
	_ = res.Body.Close()
}

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
	return r
}

func (f *costFixture) serve(tb testing.TB, r *http.Request, token []string) {
	r.Header["Authorization"] = token
	q := New(discard{http.Header{}}, r, f.config, Name{InPath: true}, "192.0.2.1")
	defer q.Finish()
	d, refused := q.Decide()
	if refused != nil {
		tb.Fatal(refused)
	}
	f.relay(q, WithDecision(r, d))
}

func BenchmarkOwnCost(b *testing.B) {
	json := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	for name, audit := range map[string]*zap.Logger{
		"audited": zap.New(zapcore.NewCore(json, zapcore.AddSync(io.Discard), zapcore.InfoLevel)),
		"bare":    zap.NewNop(),
	} {
		b.Run(name, func(b *testing.B) {
			f := newCostFixture(b, audit)
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
	const most = 22
	f := newCostFixture(t, zap.NewNop())
	r, token := f.request(), []string{"Bearer " + strings.Repeat("a", 600)}
	// What goroutines of earlier tests allocate meanwhile is counted as well, so the
	// least of some rounds tells.
	least := math.Inf(1)
	for range 20 {
		if least = min(least, testing.AllocsPerRun(200, func() { f.serve(t, r, token) })); least <= most {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%v allocations a request, want at most %d", least, most)
}
