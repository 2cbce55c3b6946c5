package users

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// AUTH-15, TEX-02: a machine sends one API token for longer than what it is
// exchanged for lives. No request fails, each exchanged token serves until
// shortly before its end, and none reaches the apiserver after it. Without
// expires_in the end is the token's own exp.
func TestAUTH15Renewal(t *testing.T) {
	t.Parallel()
	const lifetime, lives = 5 * time.Second, 3
	type machine struct {
		name, bearer string
		p            *oidc.Provider
		up           *rawserver.Server
	}
	var machines []machine
	clusters := map[string]string{}
	for name, fault := range map[string]oidc.Fault{
		"told": {}, "not-told": oidc.NoExpiresIn, "told-too-much": oidc.With(map[string]any{"expires_in": 3600}),
	} {
		m := machine{name: name, up: rawserver.Start(t, rawserver.Options{NoIdentity: true})}
		m.p = oidc.Start(t, oidc.Options{Demanding: true, Clients: []oidc.Client{{ID: oidc.ClientID, TokenLifetime: lifetime}}})
		m.p.SetFault(oidc.Token, fault)
		m.bearer = m.p.APIToken(oidc.Robot)
		clusters[name+".yaml"] = recorderManifest(name, v1.ModePassthrough, m.up, exchanging(byJWT(m.p), m.p))
		machines = append(machines, m)
	}
	px := startProxy(t, "", clusters, nil)
	began := time.Now()
	for time.Since(began) < lives*lifetime {
		for _, m := range machines {
			if a := ask(t, px, "h2", m.name, "/api", m.bearer); a.Code != http.StatusOK {
				t.Fatalf("%s, after %v: %d %s", m.name, time.Since(began), a.Code, a.Body)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	elapsed := time.Since(began)
	// A token is renewed within the last tenth of its life, of which up to a
	// second is lost to exp, which is in whole seconds.
	most := 1 + int(elapsed/(lifetime*9/10-time.Second))
	for _, m := range machines {
		requests, sent := m.up.Requests(), map[string]int{}
		for _, r := range requests {
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			sent[token]++
			if exp := int64(payload(t, token)["exp"].(float64)); r.At.Unix() > exp {
				t.Errorf("%s: a token arrived %d s after its end", m.name, r.At.Unix()-exp)
			}
		}
		n := len(m.p.TokenCalls())
		t.Logf("%s: %d requests in %v, %d exchanges", m.name, len(requests), elapsed.Round(time.Millisecond), n)
		if n < lives || n > most || len(sent) != n {
			t.Errorf("%s: %d exchanges, %d tokens sent; want %d to %d", m.name, n, len(sent), lives, most)
		}
	}
}
