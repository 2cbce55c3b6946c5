package users

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// AUTH-7: what a token for another audience gets under each setting of
// audience_validation.
func TestAUTH7Audiences(t *testing.T) {
	w := get(t)
	bare := oidc.Start(t, oidc.Options{NoIntrospection: true, Clients: clients()})
	for _, p := range []*oidc.Provider{w.idp, bare} {
		p.SetClient(oidc.Client{ID: "opaque-elsewhere", OpaqueAccessTokens: true, Audience: []string{oidc.SecretClientID}})
	}
	party := func(o *v1.OidcProvider) { o.AcceptAuthorizedParty = true }
	configs := map[string]*v1.AuthConfig{
		"jwt": byJWT(w.idp), "token": byOIDC(w.idp, fromToken), "userinfo": byOIDC(w.idp),
		"party": byOIDC(w.idp, fromToken, party), "introspecting": byOIDC(w.idp, introspecting),
		"bare": byOIDC(bare, introspecting),
	}
	minted := func(changes map[string]any) func(*testing.T) string {
		return func(*testing.T) string { return w.idp.Token(oidc.Alice, changes) }
	}
	opaque := func(p *oidc.Provider, client string) func(*testing.T) string {
		return func(t *testing.T) string { return p.MustLogin(t, oidc.Alice, client).AccessToken }
	}
	right := map[string]any{"aud": []string{otherID, oidc.ClientID}}
	wrong := map[string]any{"aud": []string{otherID}}
	authorized := map[string]any{"aud": otherID, "azp": oidc.ClientID}
	type codes [3]int // enforce, warn, off
	always, never, loose := codes{200, 200, 200}, codes{401, 401, 401}, codes{401, 200, 200}
	tests := []struct {
		name, cluster string
		bearer        func(*testing.T) string
		want          codes
		// warned says that warn accepts it as one for another audience.
		warned bool
	}{
		{"one of several", "token", minted(right), always, false},
		{"one of several", "userinfo", minted(right), always, false},
		{"another", "token", minted(wrong), loose, true},
		{"another", "userinfo", minted(wrong), loose, true},
		{"none", "token", minted(map[string]any{"aud": nil}), loose, true},
		{"azp alone", "token", minted(authorized), loose, true},
		{"azp alone", "party", minted(authorized), always, false},
		{"azp of another", "party", minted(map[string]any{"aud": otherID, "azp": otherID}), loose, true},
		{"azp that is no text", "party", minted(map[string]any{"aud": otherID, "azp": []string{oidc.ClientID}}), loose, true},
		{"jwt[] always holds its audiences", "jwt", minted(wrong), never, false},
		{"jwt[] and azp", "jwt", minted(authorized), never, false},
		{"opaque, introspected", "introspecting", opaque(w.idp, oidc.OpaqueClientID), always, false},
		{"opaque, introspected, another", "introspecting", opaque(w.idp, "opaque-elsewhere"), loose, true},
		{"opaque, unknown", "introspecting", func(*testing.T) string { return "opaque-token-of-nobody" }, never, false},
		{"opaque, no client_secret", "userinfo", opaque(w.idp, oidc.OpaqueClientID), loose, true},
		{"opaque, no introspection endpoint", "bare", opaque(bare, oidc.OpaqueClientID), loose, true},
		{"opaque, claims_source Token", "token", opaque(w.idp, oidc.OpaqueClientID), never, false},
	}
	for i, setting := range []string{"enforce", "warn", "off"} {
		t.Run(setting, func(t *testing.T) {
			clusters := map[string]string{}
			for name, auth := range configs {
				clusters[name+".yaml"] = w.manifest(name, recPassthrough, auth)
			}
			// FrontProxy needs enforce, and does not serve without it.
			front := map[string]string{"front.yaml": w.manifest("userinfo", recFrontProxy, configs["userinfo"])}
			px := startProxy(t, "audience_validation "+setting, clusters, front)
			up := w.records[v1.ModePassthrough]
			const series = `proxyauth_authentication_total{method="OidcProvider",result="wrong_audience"}`
			warned := map[string]int{}
			for _, tt := range tests {
				before := px.MustCounter(t, series)
				up.Reset()
				a := ask(t, px, "h2", tt.cluster+recPassthrough.suffix, "/api", tt.bearer(t))
				if tt.want[i] == http.StatusOK {
					if a.Code != http.StatusOK || len(up.Requests()) != 1 {
						t.Errorf("%s, %s: %d %s", tt.cluster, tt.name, a.Code, a.Body)
					}
				} else {
					a.refused(t, tt.want[i], "")
					up.None(t)
				}
				want := 0
				if setting == "warn" && tt.warned {
					want = 1
					warned[ns+"/"+tt.cluster+recPassthrough.suffix]++
				}
				if got := px.MustCounter(t, series) - before; got != want {
					t.Errorf("%s, %s: counted %d times, want %d", tt.cluster, tt.name, got, want)
				}
			}
			// Once a minute and cluster, not once a token.
			told := map[string]int{}
			for _, e := range mustLog(t, px) {
				if e.Text("level") == "warn" && strings.Contains(e.Text("msg"), "audience_validation is warn") {
					told[e.Text("cluster")]++
				}
			}
			for cluster, tokens := range warned {
				if told[cluster] != 1 {
					t.Errorf("%s: %d warnings of %d tokens", cluster, told[cluster], tokens)
				}
			}
			if len(told) != len(warned) {
				t.Errorf("warnings of %v, want of %v", told, warned)
			}
			if setting != "enforce" {
				ask(t, px, "h2", "userinfo"+recFrontProxy.suffix, "/api", w.idp.Token(oidc.Alice, nil)).
					refused(t, http.StatusServiceUnavailable, "requires OIDC audience validation")
			}
		})
	}
}

func mustLog(t *testing.T, px *proxy.Proxy) []proxy.Entry {
	t.Helper()
	all, err := px.Log()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// AUTH-6: /userinfo and introspection must name the token's subject. An answer
// without a subject is the provider's fault.
func TestAUTH6AnotherSubject(t *testing.T) {
	w := get(t)
	login := w.idp.MustLogin(t, oidc.Alice, oidc.OpaqueClientID)
	for _, tt := range []struct {
		name, cluster, bearer string
		endpoint              oidc.Endpoint
		fault                 oidc.Fault
		code                  int
	}{
		{"userinfo of a JWT", "userinfo", w.idp.Token(oidc.Alice, nil), oidc.Userinfo, oidc.WrongSubject, http.StatusUnauthorized},
		{"userinfo of a JWT, without one", "userinfo", w.idp.Token(oidc.Alice, nil), oidc.Userinfo, oidc.With(map[string]any{"sub": nil}), http.StatusServiceUnavailable},
		{"userinfo of a JWT, a prefix of it", "userinfo", w.idp.Token(oidc.Alice, nil), oidc.Userinfo, oidc.With(map[string]any{"sub": "subject-alic"}), http.StatusUnauthorized},
		{"userinfo of an opaque token", "opaque", login.AccessToken, oidc.Userinfo, oidc.WrongSubject, http.StatusUnauthorized},
		{"introspection of an opaque token", "opaque", w.idp.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken, oidc.Introspection, oidc.WrongSubject, http.StatusUnauthorized},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.idp.SetFault(tt.endpoint, tt.fault)
			defer w.idp.Repair()
			for _, f := range recorded {
				up := w.records[f.mode]
				up.Reset()
				ask(t, w.px, "h1", tt.cluster+f.suffix, "/api", tt.bearer).refused(t, tt.code, "")
				up.None(t)
			}
		})
	}
}

// AUTH-9, API-1, AUTH-11: what an OidcProvider takes for a name.
func TestAUTH9ClaimMappings(t *testing.T) {
	w := get(t)
	none := func(o *v1.OidcProvider) { o.ClaimMappings = nil }
	expression := func(text string) func(*v1.OidcProvider) {
		return func(o *v1.OidcProvider) {
			o.ClaimMappings.Username = &v1.PrefixedClaimOrExpression{Expression: ptr(text)}
		}
	}
	members := byOIDC(w.idp, none)
	// Groups without claim_mappings count, for the group of the cluster too.
	withGroup := proxy.Cluster(ns, "members", w.records[v1.ModePassthrough].URL, w.records[v1.ModePassthrough].ServerCA)
	withGroup.Spec.AuthConfig, withGroup.Spec.ProxyGroup = members, ptr("team-a")
	px := startProxy(t, "", map[string]string{
		"default.yaml":  w.manifest("default", recPassthrough, byOIDC(w.idp, none)),
		"members.yaml":  proxy.Manifests(withGroup),
		"verified.yaml": w.manifest("verified", recFrontProxy, byOIDC(w.idp, expression("claims.email_verified ? claims.email : ''"))),
	}, map[string]string{
		"front.yaml":      w.manifest("front", recFrontProxy, byOIDC(w.idp, none)),
		"unverified.yaml": w.manifest("unverified", recFrontProxy, byOIDC(w.idp, expression("claims.email"))),
	})
	t.Run("Passthrough", func(t *testing.T) {
		const path = "/api/v1/namespaces/auth-9"
		if a := ask(t, px, "h1", "default"+recPassthrough.suffix, path, w.idp.Token(oidc.Alice, nil)); a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		line := px.MustAudit(t, func(e proxy.Entry) bool { return e.Text("path") == path })
		groups, _ := line["groups"].([]any)
		if line.Text("user") != oidc.Alice || len(groups) != 2 || groups[0] != "team-a" || groups[1] != "a,b" {
			t.Errorf("audited as %v of %v", line["user"], line["groups"])
		}
		if a := ask(t, px, "h1", "members", "/api", w.idp.Token(oidc.Alice, nil)); a.Code != http.StatusOK {
			t.Errorf("a member: %d %s", a.Code, a.Body)
		}
		ask(t, px, "h1", "members", "/api", w.idp.Token(oidc.Elodie, nil)).refused(t, http.StatusForbidden, "not a member of group team-a")
	})
	t.Run("an expression that looks at email_verified", func(t *testing.T) {
		up := w.records[v1.ModeFrontProxy]
		up.Reset()
		if a := ask(t, px, "h1", "verified"+recFrontProxy.suffix, "/api", w.idp.Token(oidc.Alice, nil)); a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		if id := up.Only(t).Identity; id == nil || id.User != prefix+"alice@example.test" {
			t.Errorf("arrived as %v", id)
		}
	})
	for name, text := range map[string]string{"front" + recFrontProxy.suffix: "claim_mappings", "unverified" + recFrontProxy.suffix: "email_verified"} {
		t.Run(name, func(t *testing.T) {
			s := px.MustCluster(t, ns, name, func(s *proxy.ClusterStatus) bool { return s.Ready() != "" })
			if s.Ready() != "False/InvalidSpec" || !strings.Contains(message(s), text) {
				t.Errorf("%s: %s", s.Ready(), message(s))
			}
			ask(t, px, "h1", name, "/api", w.idp.Token(oidc.Alice, nil)).refused(t, http.StatusServiceUnavailable, "InvalidSpec")
		})
	}
}
