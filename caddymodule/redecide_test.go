package caddymodule

import (
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// mover runs between decision and transport, as slow handlers do.
type mover struct {
	runtime *runtime
	key     k8swatch.Key
	// moves are what becomes of the cluster meanwhile, one a call; nil removes it.
	moves   []*cluster
	relayed int
}

func (m *mover) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	d := r.Context().Value(decisionKey{}).(*decision)
	if m.relayed < len(m.moves) {
		clusters := map[k8swatch.Key]*cluster{}
		if next := m.moves[m.relayed]; next != nil {
			clusters[m.key] = next
		}
		m.runtime.snapshot.Store(&snapshot{clusters: clusters})
		d.cluster.streams.End(endGrace)
	}
	m.relayed++
	d.upstream = &reverseproxy.Upstream{Dial: d.cluster.spec.Target.Address}
	ctx := context.WithValue(r.Context(), caddy.CtxKey("reverse_proxy.dial_info"), reverseproxy.DialInfo{Upstream: d.upstream})
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

func passthroughTo(t *testing.T, key k8swatch.Key, server *httptest.Server) *cluster {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	target := k8swatch.Target{Canonical: "external:" + server.URL, Address: u.Host, Host: u.Host}
	c := &cluster{
		spec: &k8swatch.Cluster{
			Key: key, Enabled: true, Mode: v1.ModePassthrough, Target: target,
			Auth: k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators},
		},
		auth:    knownBearer{&authn.Result{Identity: &identity.Identity{Name: "alice"}}},
		pair:    upstream.New(upstream.Config{Target: target, RootCAs: roots, ServerName: "example.com"}),
		streams: upstream.NewRegistry().NewGroup(),

		entrance: wayIn{},
		requests: new(requestCounts),
	}
	t.Cleanup(c.pair.Retire)
	return c
}

// CERT-8, STREAM-1: a request that was decided in the moment in which its
// cluster moves or goes away is decided again, on what is in force then.
func TestDecidedAgain(t *testing.T) {
	key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
	before, after := echo(t, "before"), echo(t, "after")
	for name, tc := range map[string]struct {
		moves func() []*cluster
		code  int
		body  string
		times int
	}{
		"stays":     {func() []*cluster { return nil }, http.StatusOK, "before /api/v1/pods?limit=1 Bearer abc payload", 1},
		"moves":     {func() []*cluster { return []*cluster{passthroughTo(t, key, after)} }, http.StatusOK, "after /api/v1/pods?limit=1 Bearer abc payload", 2},
		"goes away": {func() []*cluster { return []*cluster{nil} }, http.StatusNotFound, `"code":404`, 1},
		"moves all the time": {func() []*cluster {
			return []*cluster{passthroughTo(t, key, after), passthroughTo(t, key, before), passthroughTo(t, key, after)}
		}, http.StatusServiceUnavailable, "before the request was sent", maxDecisions},
	} {
		t.Run(name, func(t *testing.T) {
			rt := &runtime{}
			rt.snapshot.Store(&snapshot{clusters: map[k8swatch.Key]*cluster{key: passthroughTo(t, key, before)}})
			m := &mover{runtime: rt, key: key, moves: tc.moves()}
			core, audit := observer.New(zapcore.InfoLevel)
			h := &Handler{app: &App{runtime: rt, impersonation: impersonationStrip}, logger: zap.NewNop(), audit: zap.New(core)}
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
			// Of nobody who was let in to what is no more (SIG-2).
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
