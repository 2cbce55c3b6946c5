package serving

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// AUTH-7, AUTH-13: a token for another audience, and a provider that cannot be
// asked, are each logged once a minute and cluster.
func TestAuthWarningsAreOccasional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.DebugLevel)
		auth := Auth{warnings: newAuthWarnings(zap.New(core))}
		key := k8swatch.Key{Namespace: "team-a", Name: "prod"}
		fault := errors.New("https://idp.example.test: userinfo endpoint: it refused the connection")
		for minute := 1; minute <= 2; minute++ {
			for range 3 {
				auth.WarnAudience(key)
				auth.WarnProvider(key, fault)
			}
			if n := logs.FilterMessageSnippet("not for the audience").Len(); n != minute {
				t.Errorf("told of the audience %d times in %d minutes", n, minute)
			}
			told := logs.FilterMessageSnippet("could not be judged").All()
			if len(told) != minute || told[0].ContextMap()["error"] != fault.Error() || told[0].ContextMap()["cluster"] != "team-a/prod" {
				t.Errorf("told of the provider %v", told)
			}
			time.Sleep(time.Minute)
		}
	})
}

// closing is a validator that says when it is closed.
type closing struct {
	authn.Validator
	closed atomic.Bool
}

func (c *closing) Close() { c.closed.Store(true) }

// A validator that the next version does not take over is closed when no
// request can use it any more.
func TestAuthRetires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, dropped := new(closing), new(closing)
		for _, a := range []*closing{kept, dropped} {
			old := Auth{Validator: a}
			old.retire(Auth{Validator: kept})
		}
		time.Sleep(requestDrain - time.Second)
		if dropped.closed.Load() {
			t.Error("closed while a request may use it")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait() // until the timer's function has ended
		if !dropped.closed.Load() || kept.closed.Load() {
			t.Errorf("closed: dropped %t, kept %t", dropped.closed.Load(), kept.closed.Load())
		}
	})
}
