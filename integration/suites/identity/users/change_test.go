package users

import (
	"net/http"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// AUTH-12: a change of one cluster's configuration, in its spec or in the
// Secret of its config_from, drops what is remembered for it and nothing else;
// the metrics count what was remembered and what was asked.
func TestAUTH12ChangeDropsItsEntries(t *testing.T) {
	w := get(t)
	secretOf := func(name string) func(*v1.OidcProvider) {
		return func(o *v1.OidcProvider) {
			fromSecret(o)
			o.ConfigFrom.Secret.Name = name
		}
	}
	object := func(name string, auth *v1.AuthConfig) string { return w.manifest(name, recPassthrough, auth) }
	secret := func(name string, change map[string]string) string {
		data := configData(w.idp)
		for key, value := range change {
			data[key] = value
		}
		return proxy.Manifests(proxy.Secret(ns, name, data))
	}
	uid := func(o *v1.OidcProvider) { o.ClaimMappings.UID = &v1.ClaimOrExpression{Claim: ptr("sub")} }
	tests := []struct {
		name   string
		kind   oidc.Endpoint // what is asked once for a token
		bearer func(*testing.T) string
		// auth of a cluster, by its name, and what else there is beside it
		auth func(name string) *v1.AuthConfig
		// change is the file with the new content.
		change func(name string) (file, content string)
	}{
		{
			"the spec, userinfo", oidc.Userinfo, func(*testing.T) string { return w.idp.Token(oidc.Alice, nil) },
			func(string) *v1.AuthConfig { return byOIDC(w.idp) },
			func(name string) (string, string) { return name + ".yaml", object(name, byOIDC(w.idp, uid)) },
		},
		{
			"the Secret of config_from", oidc.Introspection,
			func(t *testing.T) string { return w.idp.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken },
			func(name string) *v1.AuthConfig { return byOIDC(w.idp, secretOf(name)) },
			func(name string) (string, string) {
				return name + "-secret.yaml", secret(name, map[string]string{"audience": oidc.SecretClientID})
			},
		},
		{
			"the spec, token exchange", oidc.Token, func(*testing.T) string { return w.idp.APIToken(oidc.Robot) },
			func(string) *v1.AuthConfig { return exchanging(byJWT(w.idp), w.idp) },
			func(name string) (string, string) {
				return name + ".yaml", object(name, exchanging(byJWT(w.idp), w.idp, func(e *v1.TokenExchange) { e.Scopes = []string{"openid"} }))
			},
		},
	}
	clusters, secrets := map[string]string{}, map[string]string{}
	name := func(i int, which string) string { return []string{"spec", "secret", "exchange"}[i] + "-" + which }
	for i, tt := range tests {
		for _, which := range []string{"a", "b"} {
			clusters[name(i, which)+".yaml"] = object(name(i, which), tt.auth(name(i, which)))
		}
	}
	for _, which := range []string{"a", "b"} {
		secrets[name(1, which)+"-secret.yaml"] = secret(name(1, which), nil)
	}
	px := startProxy(t, "token_cache_ttl 10m", clusters, secrets)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b, bearer := name(i, "a"), name(i, "b"), tt.bearer(t)
			send := func(cluster string) {
				t.Helper()
				if got := ask(t, px, "h2", cluster+recPassthrough.suffix, "/api", bearer); got.Code != http.StatusOK {
					t.Fatalf("%s: %d %s", cluster, got.Code, got.Body)
				}
			}
			// asked is how often the provider is asked while f runs.
			asked := func(f func()) int {
				before := w.idp.Calls(tt.kind)
				f()
				return w.idp.Calls(tt.kind) - before
			}
			before := readMetrics(t, px, tt.auth("").ValidateAgainst)
			if n := asked(func() { send(a); send(b) }); n != 2 {
				t.Fatalf("%d calls for the first request of two clusters", n)
			}
			if n := asked(func() { send(a); send(b); send(a) }); n != 0 {
				t.Fatalf("%d calls for a token that is known", n)
			}
			after := readMetrics(t, px, tt.auth("").ValidateAgainst)
			exchanges := 0
			if tt.kind == oidc.Token {
				exchanges = 2
			}
			if got, want := after.since(before), (numbers{hit: 3, miss: 2, ok: 5, exchanged: exchanges}); got != want {
				t.Errorf("the metrics count %+v, want %+v", got, want)
			}

			file, content := tt.change(a)
			if err := px.WriteManifest(file, content); err != nil {
				t.Fatal(err)
			}
			start, requests, calls := time.Now(), 0, 0
			for calls == 0 && time.Since(start) < 20*time.Second {
				calls = asked(func() { send(a) })
				requests++
				time.Sleep(20 * time.Millisecond)
			}
			if calls != 1 {
				t.Fatalf("%d calls within %v of the change", calls, time.Since(start))
			}
			t.Logf("asked again %v after the change, with request %d", time.Since(start).Round(10*time.Millisecond), requests)
			if n := asked(func() { send(a); send(b); send(a); send(b) }); n != 0 {
				t.Errorf("%d calls for what the change is not about", n)
			}
			got := readMetrics(t, px, tt.auth("").ValidateAgainst).since(after)
			if want := (numbers{hit: requests - 1 + 4, miss: 1, ok: requests + 4, exchanged: exchanges / 2}); got != want {
				t.Errorf("after the change the metrics count %+v, want %+v", got, want)
			}
		})
	}
}

// numbers are metrics about authentication (SIG-1).
type numbers struct{ hit, miss, ok, exchanged int }

func readMetrics(t *testing.T, px *proxy.Proxy, method v1.ValidateAgainst) numbers {
	t.Helper()
	return numbers{
		hit:       px.MustCounter(t, `proxyauth_token_cache_total{result="hit"}`),
		miss:      px.MustCounter(t, `proxyauth_token_cache_total{result="miss"}`),
		ok:        px.MustCounter(t, `proxyauth_authentication_total{method="`+string(method)+`",result="ok"}`),
		exchanged: px.MustCounter(t, `proxyauth_token_exchange_total{result="ok"}`),
	}
}

func (n numbers) since(o numbers) numbers {
	return numbers{n.hit - o.hit, n.miss - o.miss, n.ok - o.ok, n.exchanged - o.exchanged}
}
