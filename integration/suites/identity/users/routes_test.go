package users

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/rawserver"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// route is one path by which a token, and the claims that are mapped, come to be
// judged.
type route struct {
	name string
	// idp is the route's own: keys are shared by all clusters of an issuer.
	idp  *oidc.Provider
	auth func(p *oidc.Provider) *v1.AuthConfig
	// exchanged is whether the token comes from the token endpoint, userinfo
	// whether the claims come from /userinfo, opaque whether it is no JWT but one
	// that has to be introspected first.
	exchanged, userinfo, opaque bool
	// before is a bearer that was good before the keys were rotated, and reads how
	// often they had been read when one was withdrawn.
	before string
	reads  int
}

// routes are all paths a token can take.
func routes() []*route {
	jwt := func(p *oidc.Provider) *v1.AuthConfig { return byJWT(p) }
	token := func(p *oidc.Provider) *v1.AuthConfig { return byOIDC(p, fromToken) }
	info := func(p *oidc.Provider) *v1.AuthConfig { return byOIDC(p) }
	opaque := func(p *oidc.Provider) *v1.AuthConfig { return byOIDC(p, introspecting) }
	with := func(a func(*oidc.Provider) *v1.AuthConfig, changes ...func(*v1.TokenExchange)) func(*oidc.Provider) *v1.AuthConfig {
		return func(p *oidc.Provider) *v1.AuthConfig { return exchanging(a(p), p, changes...) }
	}
	return []*route{
		{name: "jwt", auth: jwt},
		{name: "token", auth: token},
		{name: "userinfo", auth: info, userinfo: true},
		{name: "exchanged-jwt", auth: with(jwt), exchanged: true},
		{name: "exchanged-token", auth: with(token), exchanged: true},
		{name: "exchanged-userinfo", auth: with(info, accessToken), exchanged: true, userinfo: true},
		{name: "opaque", auth: opaque, userinfo: true, opaque: true},
		{name: "exchanged-opaque", auth: with(opaque, client(oidc.OpaqueClientID, ""), accessToken), exchanged: true, userinfo: true, opaque: true},
	}
}

// tracks is what the tests of tokens share: every route to both recorders, and
// once more with the e-mail address for a username.
type tracks struct {
	w      *world
	px     *proxy.Proxy
	routes []*route
}

// furtherKeys are the algorithms of the keys that the providers have beside
// RS256 and ES256, and their names.
var furtherKeys = []string{"PS256", "ES384", "EdDSA"}

// newTracks starts a proxy with all routes.
func newTracks(t *testing.T) *tracks {
	t.Helper()
	s := &tracks{w: get(t), routes: routes()}
	files := map[string]string{}
	for _, r := range s.routes {
		r.idp = oidc.Start(t, oidc.Options{Demanding: true, Clients: clients()})
		for _, alg := range furtherKeys {
			if err := r.idp.AddKey(alg, jose.SignatureAlgorithm(alg)); err != nil {
				t.Fatal(err)
			}
		}
		maps.Copy(files, s.w.recorders(map[string]*v1.AuthConfig{
			r.name: r.auth(r.idp), "email-" + r.name: byEmail(r.auth(r.idp)),
		}))
	}
	s.px = startProxy(t, "", files, nil)
	return s
}

// byEmail takes the username from the claim email.
func byEmail(a *v1.AuthConfig) *v1.AuthConfig {
	if a.OidcProvider != nil {
		a.OidcProvider.ClaimMappings.Username.Claim = ptr("email")
	} else {
		a.JWT[0].ClaimMappings.Username.Claim = ptr("email")
	}
	return a
}

// bearer is what a caller sends to have a token judged: that token, or an API
// token that the provider exchanges for it from now on.
func (r *route) bearer(token string) string {
	if !r.exchanged {
		return token
	}
	r.idp.SetFault(oidc.Token, oidc.With(map[string]any{"access_token": token}))
	return r.idp.APIToken(oidc.Robot)
}

// wrongTokenCode is the code for a JWT that was made wrong: the fault of the caller,
// or of the provider that gave it in an exchange (AUTH-16).
func (r *route) wrongTokenCode() int {
	if r.exchanged {
		return http.StatusServiceUnavailable
	}
	return http.StatusUnauthorized
}

// spelled is the code for a claim as it is written. A JWT that is no Unicode is
// not well formed for OidcProvider, which tells tokens apart by their payload.
func (r *route) spelled(written string, code int) int {
	if r.name == "exchanged-token" && !utf8.ValidString(written) {
		return r.wrongTokenCode()
	}
	return code
}

// claims is bearer of alice's JWT with one claim as it is written, which is
// absent when it is empty. Where /userinfo gives the claims it is there that
// it stands, and the token is a good one.
func (r *route) claims(t *testing.T, name, written string) string {
	t.Helper()
	all := r.idp.Claims(oidc.Alice, map[string]any{name: nil})
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if written != "" {
		payload = append(payload[:len(payload)-1], fmt.Sprintf(`,%q:%s}`, name, written)...)
	}
	if r.userinfo {
		r.idp.SetFault(oidc.Userinfo, oidc.JSON(http.StatusOK, string(payload)))
		if r.opaque {
			return r.bearer(r.opaqueToken(t))
		}
		return r.bearer(r.idp.Token(oidc.Alice, nil))
	}
	return r.bearer(r.idp.Mint(nil, oidc.Sign{Payload: payload}))
}

// opaqueToken is one of alice's login.
func (r *route) opaqueToken(t *testing.T) string {
	t.Helper()
	r.idp.Repair(oidc.Token)
	token := r.idp.MustLogin(t, oidc.Alice, oidc.OpaqueClientID).AccessToken
	if strings.Count(token, ".") == 2 {
		t.Fatal("the token is a JWT")
	}
	return token
}

// judged asks both clusters of a route and expects that code; a request that
// is refused, and only that, leaves no trace upstream. It returns who arrived
// in FrontProxy.
func (s *tracks) judged(t *testing.T, cluster, bearer string, code int, text string) *rawserver.Identity {
	t.Helper()
	var who *rawserver.Identity
	for _, f := range recorded {
		up := s.w.records[f.mode]
		up.Reset()
		a := ask(t, s.px, "h2", cluster+f.suffix, "/api", bearer)
		if code != http.StatusOK {
			a.refused(t, code, text)
			up.None(t)
			continue
		}
		if a.Code != code {
			t.Errorf("%s: %d %s", cluster+f.suffix, a.Code, a.Body)
			continue
		}
		r := up.Only(t)
		if f.mode == v1.ModeFrontProxy {
			who = r.Identity.Unprefixed(prefix)
		}
	}
	return who
}

// every runs a test for each route, and ends what it made of its provider.
func (s *tracks) every(t *testing.T, f func(t *testing.T, r *route)) {
	t.Helper()
	for _, r := range s.routes {
		t.Run(r.name, func(t *testing.T) {
			defer r.idp.Repair()
			f(t, r)
		})
	}
}

// jwts is every, without the routes of tokens that are no JWT.
func (s *tracks) jwts(t *testing.T, f func(t *testing.T, r *route)) {
	t.Helper()
	of := *s
	of.routes = slices.DeleteFunc(slices.Clone(s.routes), func(r *route) bool { return r.opaque })
	of.every(t, f)
}
