package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// authenticatorFunc is an authenticator for one test.
type authenticatorFunc func(token string) (*authn.Result, error)

func (f authenticatorFunc) Authenticate(_ context.Context, token string) (*authn.Result, error) {
	return f(token)
}

// SIG-3: a panic over a token refuses it, and is logged without it.
func TestPanicOverATokenRefusesIt(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	h := &Handler{logger: zap.New(core)}
	c := &cluster{spec: &k8swatch.Cluster{}, auth: authenticatorFunc(func(token string) (*authn.Result, error) { panic(token) })}
	result, err := h.whose(t.Context(), c, "a-secret-token")
	var refused *authn.Unauthenticated
	if result != nil || !errors.As(err, &refused) || refused.Reason != authn.ReasonInternal {
		t.Fatalf("%v, %v", result, err)
	}
	if logs.Len() != 1 {
		t.Fatalf("%d log lines", logs.Len())
	}
	for _, field := range logs.All()[0].Context {
		if strings.Contains(field.String, "a-secret-token") || strings.Contains(string(interfaceBytes(field)), "a-secret-token") {
			t.Errorf("the log holds the token: %s", field.Key)
		}
	}
}

func interfaceBytes(f zapcore.Field) []byte {
	b, _ := f.Interface.([]byte)
	return b
}

// AUTH-13: why a token could not be judged is logged where it happened, now
// and then; the caller is told the kind of it alone.
func TestUnavailableIsLogged(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	c := &cluster{spec: &k8swatch.Cluster{}, idpFault: &occasionalWarning{logger: zap.New(core)}}
	for range 3 {
		refused := c.notAuthenticated(t.Context(), &authn.Unavailable{Fault: "https://idp.example.test: userinfo endpoint: it refused the connection"})
		if refused.code != http.StatusServiceUnavailable || strings.Contains(refused.message, "userinfo") {
			t.Errorf("%d %s", refused.code, refused.message)
		}
	}
	// Bounds of the proxy's own are not told as the provider's fault.
	const limit = "too many tokens were refused lately"
	if refused := c.notAuthenticated(t.Context(), &authn.Unavailable{Fault: "https://idp.example.test: " + limit, Limit: limit}); refused.code != http.StatusServiceUnavailable ||
		refused.message != "the identity provider cannot be asked about this token now: "+limit || refused.audit != "idp_limited" {
		t.Errorf("%+v", refused)
	}
	if told := logs.FilterMessageSnippet("could not be judged").All(); len(told) != 1 || !strings.Contains(told[0].ContextMap()["error"].(string), "userinfo endpoint: it refused the connection") {
		t.Errorf("told %v", told)
	}
}
