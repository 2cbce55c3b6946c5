package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// firstUses is how many requests come at once with a new token.
const firstUses = 1000

// AUTH-12: all requests that come with a new token wait for one answer of the
// provider, whatever it is asked for.
func TestAUTH12FirstUses(t *testing.T) {
	t.Parallel()
	wants := map[string]map[oidc.Endpoint]int{
		"jwt-keys":           {oidc.Discovery: 1, oidc.Keys: 1},
		"oidc-keys":          {oidc.Discovery: 1, oidc.Keys: 1, oidc.Userinfo: 1},
		"oidc-userinfo":      {oidc.Discovery: 1, oidc.Keys: 1, oidc.Userinfo: 1},
		"oidc-introspection": {oidc.Discovery: 1, oidc.Keys: 1, oidc.Introspection: 1, oidc.Userinfo: 1},
		"exchange":           {oidc.Discovery: 1, oidc.Keys: 1, oidc.Token: 1},
	}
	sites := map[string]*site{}
	for name := range wants {
		sites[name] = openSite(t, wayTo(name))
	}
	w := newWorld(t, proxy.Options{LogLevel: "WARN", Settings: "impersonation deny"}, sites)
	for name, want := range wants {
		t.Run(name, func(t *testing.T) {
			s := sites[name]
			// Time for many of them to come before the answer does.
			s.idp.SetFault(s.endpoint, oidc.Slow(2*time.Second))
			b := bearer{cluster: name, token: s.token(s), user: s.user, kind: name}
			// All but the last are refused by the proxy, once it knows who they are:
			// it is not the apiserver that is to be flooded.
			header := kube.Bearer(b.token)
			header.Set("Impersonate-User", "root")
			var last atomic.Int64
			began := time.Now()
			atOnce(firstUses, func() {
				a, err := w.askWith(context.WithoutCancel(t.Context()), name, header)
				switch {
				case err != nil:
					t.Error(err)
				case a.Code != http.StatusForbidden || !strings.Contains(a.text(), "impersonation is not allowed"):
					t.Errorf("code %d: %s", a.Code, a.text())
				}
				last.Store(int64(time.Since(began)))
			})
			w.mustServe(t, &b)
			t.Logf("%d answers within %v, for %s", firstUses, time.Duration(last.Load()).Round(time.Millisecond), fmt.Sprint(s.idp.AllCalls()))
			for _, e := range []oidc.Endpoint{oidc.Discovery, oidc.Keys, oidc.Userinfo, oidc.Introspection, oidc.Token, oidc.Elsewhere, oidc.Other} {
				if got := s.idp.Calls(e); got != want[e] {
					t.Errorf("%d calls of %s, want %d", got, e, want[e])
				}
			}
		})
	}
}
