package request

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/upstream"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func podsRequest(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/clusters/team-a/prod/api/v1/pods", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// SIG-3: a panic over a token refuses it, and is logged without it.
func TestPanicOverATokenRefusesIt(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	c := newCluster(t, v1.ModePassthrough, authenticatorFunc(func(token string) (*authn.Result, error) { panic(token) }), nil)
	config := configOf(clustersOf(c))
	config.Logger = zap.New(core)
	_, refused := New(httptest.NewRecorder(), podsRequest("a-secret-token"), config, Name{InPath: true}, "").Decide()
	if refused == nil || refused.Code != http.StatusUnauthorized {
		t.Fatalf("%v", refused)
	}
	if logs.Len() != 1 {
		t.Fatalf("%d log lines", logs.Len())
	}
	for _, field := range logs.All()[0].Context {
		text, _ := field.Interface.([]byte)
		if strings.Contains(field.String+string(text), "a-secret-token") {
			t.Errorf("the log holds the token: %s", field.Key)
		}
	}
}

// AUTH-8: an apiserver that gave no verdict on a token is a 502 or a 503, never a
// 401, and its text is the caller's.
func TestReviewFaultIsNoUnauthorized(t *testing.T) {
	for _, bad := range []bool{false, true} {
		c := newCluster(t, v1.ModePassthrough, failing(&serving.Unreviewed{BadGateway: bad, Failure: upstream.Failure{Reason: "r", Message: "m", Detail: "d"}}), nil)
		_, refused := New(httptest.NewRecorder(), podsRequest("abc"), configOf(clustersOf(c)), Name{InPath: true}, "").Decide()
		want := http.StatusServiceUnavailable
		if bad {
			want = http.StatusBadGateway
		}
		if refused == nil || refused.Code != want || refused.Audit != "r" || refused.Message != "m" || refused.Detail != "d" {
			t.Errorf("%+v, want %d", refused, want)
		}
	}
}

// A credential is taken out of the request by the check that reads it; without
// validation the transport sends it on.
func TestCredentialIsTakenOut(t *testing.T) {
	r := podsRequest("abc")
	d, _ := New(httptest.NewRecorder(), r, configOf(clustersOf(newCluster(t, v1.ModePassthrough, alice(), nil))), Name{InPath: true}, "").Decide()
	if r.Header.Get("Authorization") != "" || len(d.authorization) != 1 || d.authorization[0] != "Bearer abc" {
		t.Errorf("left %v, taken %v", r.Header, d.authorization)
	}
	unvalidated := newCluster(t, v1.ModePassthrough, nil, func(c *k8swatch.Cluster) { c.Auth.DisableValidation = true })
	r = podsRequest("abc")
	r.Header["Sec-Websocket-Protocol"] = []string{"base64url.bearer.authorization.k8s.io.YWJj, v5.channel.k8s.io"}
	d, _ = New(httptest.NewRecorder(), r, configOf(clustersOf(unvalidated)), Name{InPath: true}, "").Decide()
	if r.Header.Get("Sec-Websocket-Protocol") != "" || len(d.protocols) != 1 || d.authorization[0] != "Bearer abc" {
		t.Errorf("left %v, taken %v and %v", r.Header, d.authorization, d.protocols)
	}
}
