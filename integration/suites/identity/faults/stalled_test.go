package faults

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/pki"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
)

// AUTH-13: providers of one tenant that begin large answers and never end them
// hold no place that a large answer of another tenant's provider needs.
func TestAUTH13StalledAnswersOfATenant(t *testing.T) {
	const tenants = "team-stalled"
	large := strings.Repeat("x", 100<<10)
	honest := openSite(t, wayTo("oidc-userinfo"))
	honest.idp.SetFault(oidc.Userinfo, oidc.With(map[string]any{"padding": large}))
	hostile := openSite(t, wayTo("oidc-userinfo"))

	var objects []any
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		object := proxy.FrontProxyCluster(tenants, name, api.URL, api.PKI.ServerCA, prefix)
		object.Spec.AuthConfig = hostile.auth(hostile)
		objects = append(objects, object, proxy.FrontProxySecret(tenants, name, api.URL, pki.Must(api.FrontProxy())))
	}
	w := watch(t, proxy.Start(t, proxy.Options{Manifests: map[string]string{
		"honest.yaml": proxy.Manifests(cluster(api, "honest", honest.auth(honest))...), "stalled.yaml": proxy.Manifests(objects...),
	}}))
	w.serving(t, append(names, "honest")...)
	ask := func() *answer {
		t.Helper()
		a, err := w.ask(t.Context(), "honest", honest.token(honest))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.good(honest.user); err != nil {
			t.Error(err)
		}
		return a
	}
	t.Logf("a large answer alone: %v", ask().took)

	hostile.idp.SetFault(oidc.Userinfo, oidc.Fault{Status: http.StatusOK, Body: []byte(`{"padding":"` + large), Stall: true})
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, name := range names {
		for range 3 {
			callers.Go(func() {
				for ctx.Err() == nil {
					_, _ = kube.WhoAmI(ctx, w.client, w.px.ClusterURL(tenants, name), kube.Bearer(hostile.token(hostile)))
				}
			})
		}
	}
	defer callers.Wait()
	defer stop()
	// Twice as many stalled calls as there are places.
	for began := time.Now(); hostile.idp.Calls(oidc.Userinfo) < 16; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > soon {
			t.Fatal("too few calls: ", hostile.idp.Calls(oidc.Userinfo))
		}
	}
	for i := range 3 {
		if a := ask(); a.took > answerLimit/2 {
			t.Errorf("a large answer took %v", a.took)
		} else {
			t.Log(fmt.Sprint("large answer ", i, " among stalled ones: "), a.took)
		}
	}
}
