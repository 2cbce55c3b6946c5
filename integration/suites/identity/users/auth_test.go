package users

import (
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The clients of the providers beside the default ones: confidential clients
// registered for one way to authenticate each, with secrets that have to be
// encoded, and one that no object names.
const (
	basicID, basicSecret = "machines-basic", "basic:%20 +&=secret-0123456789"
	postID, postSecret   = "machines-post", "post:%20 +&=secret-0123456789"
	otherID              = "another-cluster"
)

func clients() []oidc.Client {
	return []oidc.Client{
		{ID: oidc.ClientID},
		{ID: oidc.OpaqueClientID, OpaqueAccessTokens: true, Audience: []string{oidc.SecretClientID, oidc.ClientID}},
		{ID: oidc.SecretClientID, Secret: oidc.ClientSecret, MachineUser: oidc.Robot},
		{ID: basicID, Secret: basicSecret},
		{ID: postID, Secret: postSecret, Auth: oidc.AuthPost},
		{ID: otherID},
	}
}

// byJWT is JwtAuthenticators with these providers.
func byJWT(providers ...*oidc.Provider) *v1.AuthConfig {
	a := &v1.AuthConfig{ValidateAgainst: v1.ValidateJwtAuthenticators}
	for _, p := range providers {
		a.JWT = append(a.JWT, proxy.Authenticator(p))
	}
	return a
}

// byOIDC is OidcProvider with the audience ClientID.
func byOIDC(p *oidc.Provider, changes ...func(*v1.OidcProvider)) *v1.AuthConfig {
	o := &v1.OidcProvider{
		Enabled: true, IssuerURL: p.Issuer, ClientID: oidc.ClientID,
		CertificateAuthority: ptr(string(p.CA.PEM)), ClaimMappings: names(),
	}
	for _, change := range changes {
		change(o)
	}
	return &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: o}
}

// names maps preferred_username and groups, without prefixes.
func names() *v1.ClaimMappings {
	return &v1.ClaimMappings{
		Username: &v1.PrefixedClaimOrExpression{Claim: ptr("preferred_username"), Prefix: ptr("")},
		Groups:   &v1.PrefixedClaimOrExpression{Claim: ptr("groups"), Prefix: ptr("")},
	}
}

// The changes of byOIDC.
func fromToken(o *v1.OidcProvider) { o.ClaimsSource = v1.ClaimsSourceToken }

// introspecting is a client that may introspect, for the same audience.
func introspecting(o *v1.OidcProvider) {
	o.ClientID, o.ClientSecret, o.Audience = oidc.SecretClientID, ptr(oidc.ClientSecret), oidc.ClientID
}

// exchanging adds a token exchange at that provider, by a public client, whose
// id_token is used.
func exchanging(a *v1.AuthConfig, p *oidc.Provider, changes ...func(*v1.TokenExchange)) *v1.AuthConfig {
	with := *a
	with.TokenExchange = &v1.TokenExchange{
		Enabled: true, TokenURL: p.Issuer + "/oauth/token", CertificateAuthority: string(p.CA.PEM),
		ClientID: oidc.ClientID, Audience: oidc.ClientID, Scopes: []string{"openid", "groups_name"},
	}
	for _, change := range changes {
		change(with.TokenExchange)
	}
	return &with
}

// The changes of exchanging.
func accessToken(e *v1.TokenExchange) { e.Forward = v1.ForwardAccessToken }

func client(id, secret string) func(*v1.TokenExchange) {
	return func(e *v1.TokenExchange) { e.ClientID, e.ClientSecret = id, secret }
}

// way is one way to find out who is asking, and who arrives by it.
type way struct {
	name string
	// bearer is what a caller sends: a human's, or a machine's API token when
	// exchanged says so.
	bearer    func(t *testing.T, w *world) string
	exchanged bool
	// user and groups are the proxy identity, own what an apiserver that sees
	// the (exchanged) token calls its bearer.
	user, own string
	groups    []string
	auth      func(w *world) *v1.AuthConfig
	// form is what the token endpoint must have been asked, beside what it
	// demands.
	form map[string]string
	// method is how the client has to have authenticated there.
	method oidc.AuthMethod
	at     func(w *world) *oidc.Provider
}

func ofIDP(w *world) *oidc.Provider    { return w.idp }
func ofKanidm(w *world) *oidc.Provider { return w.kanidm }

const urn = "urn:ietf:params:oauth:token-type:"

// ways are those of which the audit log has to tell.
func ways() []way {
	login := func(client string, choose func(*oidc.Tokens) string) func(t *testing.T, w *world) string {
		return func(t *testing.T, w *world) string { return choose(w.idp.MustLogin(t, oidc.Alice, client)) }
	}
	idToken := func(t *oidc.Tokens) string { return t.IDToken }
	access := func(t *oidc.Tokens) string { return t.AccessToken }
	human := func(name string, bearer func(*testing.T, *world) string, auth func(*world) *v1.AuthConfig) way {
		return way{name: name, bearer: bearer, auth: auth, at: ofIDP, user: oidc.Alice,
			groups: []string{"team-a", "a,b"}, own: ownPrefix + "subject-alice"}
	}
	all := []way{
		human("jwt", login(oidc.ClientID, idToken), func(w *world) *v1.AuthConfig { return byJWT(w.idp) }),
		human("userinfo", login(oidc.ClientID, access), func(w *world) *v1.AuthConfig { return byOIDC(w.idp) }),
		human("token", login(oidc.ClientID, idToken), func(w *world) *v1.AuthConfig { return byOIDC(w.idp, fromToken) }),
		human("config-from", login(oidc.OpaqueClientID, access), func(w *world) *v1.AuthConfig {
			return byOIDC(w.idp, fromSecret)
		}),
		human("opaque", login(oidc.OpaqueClientID, access), func(w *world) *v1.AuthConfig { return byOIDC(w.idp, introspecting) }),
	}
	for i := range all {
		if name := all[i].name; name == "opaque" || name == "config-from" {
			all[i].own = ownPrefix + "introspected:subject-alice"
		}
	}
	return append(all, exchangedWays()...)
}

// fromSecret takes all that can be taken from the Secret idp-config; the
// fields say otherwise.
func fromSecret(o *v1.OidcProvider) {
	o.IssuerURL, o.ClientID, o.ClientSecret = "https://127.0.0.1:1/nobody", "nobody", ptr("nobodys-secret")
	o.Audience, o.CertificateAuthority = "nobody", nil
	o.ConfigFrom = &v1.ConfigReference{Secret: &v1.SecretReference{Name: configSecret}}
}

const configSecret = "idp-config"

// configData is a Secret for config_from.
func configData(p *oidc.Provider) map[string]string {
	return map[string]string{
		"issuer_url": p.Issuer, "client_id": oidc.SecretClientID, "client_secret": oidc.ClientSecret,
		"audience": oidc.ClientID, "certificate_authority": string(p.CA.PEM),
	}
}

func exchangedWays() []way {
	opaque := func(at func(*world) *oidc.Provider) func(*testing.T, *world) string {
		return func(t *testing.T, w *world) string { return at(w).APIToken(oidc.Robot) }
	}
	anonymous := func(at func(*world) *oidc.Provider) func(*testing.T, *world) string {
		return func(t *testing.T, w *world) string { return at(w).APITokenJWS(oidc.Robot) }
	}
	const kanidm = ownPrefix + "kanidm:subject-robot"
	resource := func(e *v1.TokenExchange) { e.Resource = "https://clusters.example.test/a?b=c&d" }
	rows := []way{
		{name: "kanidm", at: ofKanidm, method: oidc.AuthNone, own: kanidm,
			auth: func(w *world) *v1.AuthConfig { return exchanging(byJWT(w.kanidm), w.kanidm) },
			form: map[string]string{"client_id": oidc.ClientID, "audience": oidc.ClientID, "scope": "openid groups_name",
				"subject_token_type": urn + "access_token", "requested_token_type": urn + "id_token"}},
		{name: "kanidm-token", at: ofKanidm, method: oidc.AuthNone, own: kanidm,
			auth: func(w *world) *v1.AuthConfig {
				return exchanging(byOIDC(w.kanidm, fromToken), w.kanidm, func(e *v1.TokenExchange) { e.RequestedTokenType = urn + "access_token" })
			},
			form: map[string]string{"requested_token_type": urn + "access_token"}},
		{name: "kanidm-access", at: ofKanidm, method: oidc.AuthNone, own: kanidm,
			auth: func(w *world) *v1.AuthConfig { return exchanging(byOIDC(w.kanidm), w.kanidm, accessToken) },
			form: map[string]string{"requested_token_type": urn + "access_token"}},
		{name: "basic", at: ofIDP, method: oidc.AuthBasic, own: ownPrefix + "subject-robot",
			auth: func(w *world) *v1.AuthConfig {
				return exchanging(byJWT(w.idp), w.idp, client(basicID, basicSecret), resource)
			},
			form: map[string]string{"client_id": basicID, "audience": oidc.ClientID, "resource": "https://clusters.example.test/a?b=c&d",
				"requested_token_type": urn + "id_token"}},
		{name: "post", at: ofIDP, method: oidc.AuthPost, own: ownPrefix + "subject-robot",
			auth: func(w *world) *v1.AuthConfig {
				return exchanging(byOIDC(w.idp, fromToken), w.idp, client(postID, postSecret), func(e *v1.TokenExchange) {
					e.SubjectTokenType, e.Scopes = urn+"jwt", nil
				})
			},
			form: map[string]string{"client_id": postID, "subject_token_type": urn + "jwt", "scope": "openid"}},
		{name: "basic-access", at: ofIDP, method: oidc.AuthBasic, own: ownPrefix + "subject-robot",
			auth: func(w *world) *v1.AuthConfig {
				return exchanging(byOIDC(w.idp), w.idp, client(basicID, basicSecret), accessToken)
			},
			form: map[string]string{"client_id": basicID, "requested_token_type": urn + "access_token"}},
		{name: "opaque-access", at: ofIDP, method: oidc.AuthNone, own: ownPrefix + "introspected:subject-robot",
			auth: func(w *world) *v1.AuthConfig {
				return exchanging(byOIDC(w.idp, introspecting), w.idp, client(oidc.OpaqueClientID, ""), accessToken)
			},
			form: map[string]string{"client_id": oidc.OpaqueClientID}},
	}
	var all []way
	for _, r := range rows {
		r.exchanged, r.user, r.groups = true, oidc.Robot, []string{"machines"}
		r.bearer = opaque(r.at)
		all = append(all, r)
		r.bearer, r.name = anonymous(r.at), r.name+"/jws"
		all = append(all, r)
	}
	return all
}

// cluster is the name of the cluster of a way, the same for every kind of
// bearer.
func (y way) cluster() string {
	name, _, _ := strings.Cut(y.name, "/")
	return name
}

// clusters are those of the shared proxy: every way in front of every target.
func (w *world) clusters() map[string]string {
	files := map[string]string{}
	for _, y := range ways() {
		for _, f := range []front{apiPassthrough, apiFrontProxy, recPassthrough, recFrontProxy} {
			files[y.cluster()+f.suffix+".yaml"] = w.manifest(y.cluster(), f, y.auth(w))
		}
	}
	return files
}
