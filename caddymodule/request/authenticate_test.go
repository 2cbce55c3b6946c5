package request

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func podsRequest(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/clusters/team-a/prod/api/v1/pods", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// AUTH-8: an apiserver that gave no verdict on a token is a 502 or a 503, never a
// 401, and its text is the caller's.
func TestReviewFaultIsNoUnauthorized(t *testing.T) {
	for _, tt := range []struct {
		failure authn.ReviewFailure
		want    Refusal
	}{
		{authn.ReviewFailure{Status: 503, Reason: "r", Message: "m"}, Refusal{Code: 503, Audit: "r", Message: "m"}},
		{authn.ReviewFailure{Status: 502, Reason: "r", Message: "m"}, Refusal{Code: 502, Audit: "r", Message: "m"}},
		{authn.ReviewFailure{Err: context.DeadlineExceeded}, Refusal{Code: 502, Audit: "upstream_timeout", Message: "the cluster's apiserver did not answer in time"}},
	} {
		c := newCluster(t, v1.ModePassthrough, failing(&tt.failure), nil)
		_, refused := New(httptest.NewRecorder(), podsRequest("abc"), configOf(clustersOf(c)), Name{InPath: true}, "").Decide()
		if refused == nil || refused.Code != tt.want.Code || refused.Audit != tt.want.Audit || refused.Message != tt.want.Message {
			t.Errorf("%+v, want %+v", refused, tt.want)
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
