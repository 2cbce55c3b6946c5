package caddymodule

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/request"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// mover runs between decision and transport, as slow handlers do.
type mover struct {
	clusters *someClusters
	key      k8swatch.Key
	// moves are what becomes of the cluster meanwhile, one a call; nil removes it.
	moves   []*serving.Cluster
	relayed int
}

func (m *mover) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	d := request.DecisionOf(r.Context())
	if m.relayed < len(m.moves) {
		m.clusters.put(m.key, m.moves[m.relayed])
		d.Cluster.Relay.Streams.End(time.Second)
	}
	m.relayed++
	named, err := new(Upstreams).GetUpstreams(r)
	if err != nil {
		return err
	}
	ctx := context.WithValue(r.Context(), caddy.CtxKey("reverse_proxy.dial_info"), reverseproxy.DialInfo{Upstream: named[0]})
	r = r.WithContext(ctx)
	res, err := new(Transport).RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	w.WriteHeader(res.StatusCode)
	_, err = io.Copy(w, res.Body)
	return err
}

// An apiserver that answers with its name and what it was sent.
func echo(t *testing.T, name string) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, strings.Join([]string{name, r.RequestURI, r.Header.Get("Authorization"), string(body)}, " "))
	}))
	t.Cleanup(server.Close)
	return server
}

// someClusters are clusters to decide on.
type someClusters struct {
	snapshot atomic.Pointer[serving.Snapshot]
	counts   []int // status codes
}

func (c *someClusters) Snapshot() *serving.Snapshot { return c.snapshot.Load() }
func (c *someClusters) Metrics() *serving.Metrics   { return process.Metrics }
func (c *someClusters) Stopping() bool              { return false }

func (c *someClusters) CountRequest(_ *serving.Cluster, code int, _ time.Duration) {
	c.counts = append(c.counts, code)
}

func (c *someClusters) put(key k8swatch.Key, one *serving.Cluster) {
	all := map[k8swatch.Key]*serving.Cluster{}
	if one != nil {
		all[key] = one
	}
	c.snapshot.Store(&serving.Snapshot{Clusters: all})
}

// knownBearer is a validator that has seen every token.
type knownBearer struct {
	authn.Validator
	result *authn.Result
}

func (k knownBearer) Authenticate(context.Context, string) (*authn.Result, error) {
	return k.result, nil
}
func (knownBearer) AsksApiserver() bool { return false }

func passthroughTo(t *testing.T, key k8swatch.Key, server *httptest.Server) *serving.Cluster {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	spec := &k8swatch.Cluster{
		Key: key, Enabled: true, Mode: v1.ModePassthrough, CA: roots, ServerName: "example.com",
		Target: k8swatch.Target{Canonical: "external:" + server.URL, Address: u.Host, Host: u.Host},
		Auth:   k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators},
	}
	c := &serving.Cluster{
		Spec:  spec,
		Relay: serving.NewRelay(spec, upstream.NewRegistry().NewGroup()),
		Auth:  serving.Auth{Validator: knownBearer{result: &authn.Result{Identity: &identity.Identity{Name: "alice"}}}},
	}
	c.Relay.Pair = trust.Connect(spec, nil)
	c.Trust = trust.New(spec, c.Relay.Pair, nil, nil, nil)
	t.Cleanup(c.Relay.Pair.Retire)
	return c
}

// CERT-8, STREAM-1: a request that was decided in the moment in which its
// cluster moves or goes away is decided again, on what is in force then.
func TestDecidedAgain(t *testing.T) {
	key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
	before, after := echo(t, "before"), echo(t, "after")
	for name, tc := range map[string]struct {
		moves func() []*serving.Cluster
		code  int
		body  string
		times int
	}{
		"stays":     {func() []*serving.Cluster { return nil }, http.StatusOK, "before /api/v1/pods?limit=1 Bearer abc payload", 1},
		"moves":     {func() []*serving.Cluster { return []*serving.Cluster{passthroughTo(t, key, after)} }, http.StatusOK, "after /api/v1/pods?limit=1 Bearer abc payload", 2},
		"goes away": {func() []*serving.Cluster { return []*serving.Cluster{nil} }, http.StatusNotFound, `"code":404`, 1},
		"moves all the time": {func() []*serving.Cluster {
			return []*serving.Cluster{passthroughTo(t, key, after), passthroughTo(t, key, before), passthroughTo(t, key, after)}
		}, http.StatusServiceUnavailable, "before the request was sent", 3},
	} {
		t.Run(name, func(t *testing.T) {
			clusters := new(someClusters)
			clusters.put(key, passthroughTo(t, key, before))
			m := &mover{clusters: clusters, key: key, moves: tc.moves()}
			core, audit := observer.New(zapcore.InfoLevel)
			h := &Handler{name: constantName(""), config: request.Config{
				Clusters: clusters, Impersonation: request.ImpersonationStrip, Logger: zap.NewNop(), Audit: zap.New(core),
			}}
			r := httptest.NewRequest(http.MethodPost, "/clusters/team-a/prod/api/v1/pods?limit=1", strings.NewReader("payload"))
			r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{}))
			r.Header.Set("Authorization", "Bearer abc")
			w := httptest.NewRecorder()
			if err := h.ServeHTTP(w, r, m); err != nil {
				t.Fatal(err)
			}
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) || m.relayed != tc.times {
				t.Errorf("%d %q after %d decisions, want %d %q after %d", w.Code, w.Body, m.relayed, tc.code, tc.body, tc.times)
			}
			if len(clusters.counts) != 1 || clusters.counts[0] != tc.code {
				t.Errorf("counted as %v", clusters.counts)
			}
			// The audit names no caller of a cluster that is gone (SIG-2).
			user := "alice"
			if tc.code == http.StatusNotFound {
				user = "-"
			}
			if lines := audit.All(); len(lines) != 1 || lines[0].ContextMap()["user"] != user {
				t.Errorf("the audit says %v, want user %q", lines, user)
			}
			if tc.code != http.StatusNotFound && r.Header.Get("Authorization") != "" {
				t.Error("the credential is left in the request")
			}
		})
	}
}

// The handler's placeholders count, not what an authentication before it left.
func TestHandlerPlaceholders(t *testing.T) {
	key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
	clusters := new(someClusters)
	clusters.put(key, passthroughTo(t, key, echo(t, "apiserver")))
	h := &Handler{name: constantName(""), config: request.Config{Clusters: clusters, Logger: zap.NewNop(), Audit: zap.NewNop()}}
	repl := caddy.NewReplacer()
	repl.Set("http.auth.user.id", "another")
	repl.Set("http.auth.user.groups", "system:masters")
	r := httptest.NewRequest(http.MethodGet, "/clusters/team-a/prod/version", nil)
	ctx := context.WithValue(r.Context(), caddyhttp.VarsCtxKey, map[string]any{})
	r = r.WithContext(context.WithValue(ctx, caddy.ReplacerCtxKey, repl))
	r.Header.Set("Authorization", "Bearer abc")
	if err := h.ServeHTTP(httptest.NewRecorder(), r, &mover{clusters: clusters, key: key}); err != nil {
		t.Fatal(err)
	}
	const all = "{http.auth.user.id} {http.auth.user.groups} {http.proxyauth.cluster} {http.proxyauth.mode} {http.proxyauth.upstream_user} {http.proxyauth.reason}"
	if got, want := repl.ReplaceAll(all, "-"), "alice - team-a/prod Passthrough - -"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
