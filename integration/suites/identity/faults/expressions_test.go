package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// dearExpressions are rules of cluster authors that cost as much as they may.
var dearExpressions = []string{
	"lists.range(2600).all(i, claims.m == claims.m)",
	"[string(claims.s)].all(x, (x+x).indexOf(x+'b') == -1)",
	"dyn(claims.l).all(a, dyn(claims.l).all(b, dyn(claims.l).all(c, a != 'x')))",
	"lists.range(2600).all(i, [dyn(claims.l).sort()].size() == 1)",
	"lists.range(2600).all(i, claims.s.matches('(a|b)*c{9}$') == false)",
	"dyn(claims.l).all(a, dyn(claims.l).exists(b, b == a + 'x') == false)",
}

// AUTH-17: six objects with dear expressions, each asked with fresh tokens, do not
// keep the fresh tokens of another cluster waiting. Times are compared with those
// before, on the same machine.
func TestAUTH17DearExpressions(t *testing.T) {
	s := openSite(t, wayTo("jwt-keys"))
	sites := map[string]*site{"quiet": s}
	for i, rule := range dearExpressions {
		dear := *s
		dear.auth = func(s *site) *v1.AuthConfig {
			auth := jwtAuthenticators(s)
			auth.JWT[0].ClaimValidationRules = []v1.ClaimValidationRule{{Expression: &rule, Message: "m"}}
			return auth
		}
		sites[fmt.Sprint("dear-", i)] = &dear
	}
	w := newWorld(t, proxy.Options{LogLevel: "WARN"}, sites)

	var list []any
	object := map[string]any{}
	for i := range 700 {
		list = append(list, fmt.Sprint("name-", i))
		object[fmt.Sprintf("k%05d", i)] = i
	}
	var n atomic.Int64
	dearToken := func() string {
		return s.idp.Mint(s.idp.Claims(oidc.Alice, map[string]any{"s": strings.Repeat("a", 6<<10), "l": list, "m": object, "n": n.Add(1)}), oidc.Sign{KeyID: oidc.E1})
	}
	fresh := func(ctx context.Context) measures {
		all := measures{}
		for ctx.Err() == nil {
			b := signedFor(s, int(n.Add(1)))
			a, err := w.ask(context.WithoutCancel(ctx), "quiet", b.token)
			if err == nil {
				err = a.good(b.user)
			}
			if err != nil {
				t.Error("a cluster where nothing is dear: ", err)
				return all
			}
			all["quiet"] = append(all["quiet"], a.took)
			time.Sleep(20 * time.Millisecond)
		}
		return all
	}
	measure := func() measures {
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		return fresh(ctx)
	}

	// Each is refused, with a message, and remembered.
	for i, rule := range dearExpressions {
		token := dearToken()
		first, err := w.ask(t.Context(), fmt.Sprint("dear-", i), token)
		if err != nil {
			t.Fatal(err)
		}
		again, err := w.ask(t.Context(), fmt.Sprint("dear-", i), token)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d after %v, %v the second time: %s", rule, first.Code, first.took, again.took, first.text())
		if first.Code == http.StatusCreated {
			continue // it fits
		}
		if first.Code != http.StatusUnauthorized || again.Code != first.Code {
			t.Errorf("%s: %d, %d: %s", rule, first.Code, again.Code, first.text())
		}
	}

	before := measure()
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range dearExpressions {
		callers.Go(func() {
			for ctx.Err() == nil {
				// Not one by one: what waits would slow its sender down.
				callers.Go(func() { _, _ = w.ask(ctx, fmt.Sprint("dear-", i), dearToken()) })
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	during := measure()
	stop()
	callers.Wait()

	// A machine that evaluates on one of its two processors answers more slowly; who
	// waits for the turns of six others waits for thirty times as long.
	for part, most := range map[float64]time.Duration{0.5: 8, 0.9: 20} {
		was, is := before.part("quiet", part), during.part("quiet", part)
		t.Logf("%.0f %% of %d fresh tokens within %v, and %v before", 100*part, len(during["quiet"]), is, was)
		if is > most*max(was, 5*time.Millisecond) {
			t.Errorf("%.0f %% of the fresh tokens of another cluster took up to %v, and %v before", 100*part, is, was)
		}
	}
}
