package request

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// SIG-2: one audit line, written when the headers of the response are sent, with
// what was decided.
func TestAuditLine(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	clusters := clustersOf(newCluster(t, v1.ModeFrontProxy, alice("dev"), nil))
	config := configOf(clusters)
	config.Audit = zap.New(core)
	w := httptest.NewRecorder()
	q := New(w, podsRequest("abc"), config, Name{InPath: true}, "192.0.2.1")
	if _, refused := q.Decide(); refused != nil {
		t.Fatal(refused)
	}
	q.WriteHeader(http.StatusEarlyHints)
	if logs.Len() != 0 {
		t.Fatal("an informational answer is audited")
	}
	q.WriteHeader(http.StatusCreated)
	q.WriteHeader(http.StatusOK)
	q.Finish()
	if logs.Len() != 1 || !slices.Equal(clusters.counts, []int{201}) {
		t.Fatalf("%d lines, counted %v", logs.Len(), clusters.counts)
	}
	got := logs.All()[0].ContextMap()
	delete(got, "latency_ms")
	want := map[string]any{
		"user": "alice", "groups": []any{"dev"}, "ns": "team-a", "cluster": "prod", "verb": "GET", "path": "/api/v1/pods",
		"response_status": int64(201), "source_ip": "192.0.2.1", "upstream_mode": "FrontProxy",
		"upstream_user": "proxyauth:alice", "upstream_groups": []any{"proxyauth:dev"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A refused identity is in no line, a refusal is with its reason, and a client
// that leaves without an answer is counted as 0.
func TestAuditOfRefusals(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	c := newCluster(t, v1.ModeFrontProxy, validatorFunc(func(string) (*authn.Result, error) {
		return &authn.Result{Identity: &identity.Identity{Name: "system:admin"}}, nil
	}), func(c *k8swatch.Cluster) { c.UserPrefix = "" })
	clusters := clustersOf(c)
	config := configOf(clusters)
	config.Audit = zap.New(core)
	q := New(httptest.NewRecorder(), podsRequest("abc"), config, Name{InPath: true}, "")
	_, refused := q.Decide()
	if err := q.Refuse(refused); err != nil {
		t.Fatal(err)
	}
	line := logs.All()[0].ContextMap()
	if line["user"] != "-" || line["reason"] != "upstream_identity_refused" || line["upstream_user"] != "" {
		t.Errorf("%v", line)
	}
	if n := valueOf(t, clusters.metrics.IdentityRefused, "system_prefix"); n != 1 {
		t.Errorf("counted %v times", n)
	}
	New(httptest.NewRecorder(), podsRequest("abc"), config, Name{InPath: true}, "").Finish()
	if !slices.Equal(clusters.counts, []int{403, 0}) {
		t.Errorf("counted %v", clusters.counts)
	}
}

// SIG-2: the audit line of a wrong audience says which was expected and received, and
// the answer does not.
func TestAuditOfAWrongAudience(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	c := newCluster(t, v1.ModePassthrough, validatorFunc(func(string) (*authn.Result, error) {
		return nil, &authn.Unauthenticated{Reason: "for another audience", Audited: `expected "a", received "b"`}
	}), nil)
	config := configOf(clustersOf(c))
	config.Audit = zap.New(core)
	answer := httptest.NewRecorder()
	q := New(answer, podsRequest("abc"), config, Name{InPath: true}, "")
	_, refused := q.Decide()
	if err := q.Refuse(refused); err != nil {
		t.Fatal(err)
	}
	if got, want := logs.All()[0].ContextMap()["message"], "for another audience"+`: expected "a", received "b"`; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if body := answer.Body.String(); !strings.Contains(body, "for another audience") || strings.Contains(body, "expected") {
		t.Errorf("answer %s", body)
	}
}

// AUTH-7: a token for another audience is counted apart, once a request however
// often the request is decided.
func TestAuthenticationIsCountedOnce(t *testing.T) {
	method := string(v1.ValidateJwtAuthenticators)
	for _, tt := range []struct {
		result string
		answer validatorFunc
	}{
		{"ok", alice()},
		{"wrong_audience", func(string) (*authn.Result, error) {
			return &authn.Result{Identity: &identity.Identity{Name: "alice"}, WrongAudience: true}, nil
		}},
		{"refused", failing(&authn.Unauthenticated{Reason: "the token has expired"})},
		{"unavailable", failing(&authn.Unavailable{Fault: "x"})},
	} {
		clusters := clustersOf(newCluster(t, v1.ModePassthrough, tt.answer, nil))
		q := New(httptest.NewRecorder(), podsRequest("abc"), configOf(clusters), Name{InPath: true}, "")
		for range 3 {
			q.Decide()
		}
		if n := valueOf(t, clusters.metrics.Authentications, method, tt.result); n != 0 {
			t.Errorf("%s: %v counted by a decision", tt.result, n)
		}
		q.WriteHeader(http.StatusOK)
		if n := valueOf(t, clusters.metrics.Authentications, method, tt.result); n != 1 {
			t.Errorf("%s: counted %v times", tt.result, n)
		}
	}
}

// STREAM-2: once the process is about to end, every answer on HTTP/1.1 closes its
// connection.
func TestStoppingClosesConnections(t *testing.T) {
	for _, tt := range []struct {
		major, code int
		want        string
	}{{1, 200, "close"}, {1, 101, ""}, {2, 200, ""}} {
		clusters := clustersOf()
		clusters.stopping = true
		r := podsRequest("abc")
		r.ProtoMajor = tt.major
		w := httptest.NewRecorder()
		New(w, r, configOf(clusters), Name{InPath: true}, "").WriteHeader(tt.code)
		if got := w.Header().Get("Connection"); got != tt.want {
			t.Errorf("HTTP/%d, %d: Connection %q", tt.major, tt.code, got)
		}
	}
}
