package differential

import (
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The configurations, one issuer each. The apiserver has all of them in one jwt
// list; the proxy, which takes at most eight in one, in those of two clusters.
const (
	basic      = "basic"
	expr       = "expr"
	prefixes   = "prefixes"
	email      = "email"
	emailExpr  = "email-expr"
	rules      = "rules"
	audiences  = "audiences"
	nested     = "nested"
	emailIndex = "email-index"
	costly     = "costly"
)

// clusters are the configurations by cluster.
var clusters = map[string][]string{
	"prod": {basic, expr, prefixes, email, emailExpr, rules, audiences, nested},
	"more": {emailIndex, costly},
}

// authenticator is one entry of jwt.
func authenticator(name string, idp *oidc.Provider) v1.JWTAuthenticator {
	a := proxy.Authenticator(idp) // preferred_username and groups, no prefixes
	m := a.ClaimMappings
	switch name {
	case basic:
		m.UID = &v1.ClaimOrExpression{Claim: ptr("sub")}
	case expr:
		m.Username = expression("claims.nick")
		m.Groups = expression(`dyn(claims.?groups.orValue([])).filter(g, g.startsWith("k8s-"))`)
		m.UID = &v1.ClaimOrExpression{Expression: ptr(`claims.?uid.orValue("none")`)}
		m.Extra = []v1.ExtraMapping{
			{Key: "example.com/tenant", ValueExpression: `claims.?tenant.orValue("")`},
			{Key: "example.com/roles:a=b", ValueExpression: `claims.?realm.roles.orValue([])`},
		}
	case prefixes:
		m.Username = &v1.PrefixedClaimOrExpression{Claim: ptr("sub"), Prefix: ptr("oidc:")}
		m.Groups = &v1.PrefixedClaimOrExpression{Claim: ptr("roles"), Prefix: ptr("oidc-")}
	case email:
		m.Username.Claim = ptr("email")
	case emailExpr:
		m.Username, m.Groups = expression("claims.email"), nil
		a.ClaimValidationRules = []v1.ClaimValidationRule{{Expression: ptr("claims.email_verified == true"), Message: "verify your e-mail"}}
	case rules:
		a.ClaimValidationRules = []v1.ClaimValidationRule{
			{Claim: ptr("hd"), RequiredValue: "example.test"},
			{Claim: ptr("env")},
			{Expression: ptr("claims.?level.orValue(0.0) >= 2.0"), Message: "level 2 is needed"},
		}
		a.UserValidationRules = []v1.UserValidationRule{
			{Expression: `!user.username.startsWith("system:")`, Message: "reserved name"},
			{Expression: `user.groups.all(g, !g.startsWith("system:"))`, Message: "reserved group"},
		}
	case audiences:
		a.Issuer.Audiences = []string{oidc.ClientID, "second", "third"}
		// Another address of the same document.
		a.Issuer.DiscoveryURL = ptr(strings.Replace(idp.Issuer, "127.0.0.1", "localhost", 1) + "/.well-known/openid-configuration")
		m.Username, m.Groups = expression("claims.preferred_username"), expression("claims.groups")
	case nested:
		m.Username = &v1.PrefixedClaimOrExpression{Claim: ptr("https://example.com/name"), Prefix: ptr("")}
		m.Groups = expression(`has(claims.csv) ? claims.csv.split(",") : ["none"]`)
		m.Extra = []v1.ExtraMapping{{Key: "example.com/teams", ValueExpression: "claims.?org.teams__dot__k8s.orValue([])"}}
	case emailIndex:
		m.Username, m.Groups = expression(`claims["email"]`), nil
		a.ClaimValidationRules = []v1.ClaimValidationRule{{Expression: ptr(`!has(claims.probe) || "email" in claims`), Message: "no e-mail"}}
	case costly:
		m.Username = expression("claims.preferred_username")
		m.Groups = expression(`dyn(claims.?list.orValue([])).map(g, g + "-team").filter(g, g == "k8s-team")`)
		m.Extra = []v1.ExtraMapping{
			{Key: "example.com/text", ValueExpression: `has(claims.pad) ? string(claims.pad.replace("a", "` + long(64) + `").size()) : ""`},
			{Key: "example.com/range", ValueExpression: `has(claims.n) ? string(lists.range(int(claims.n)).size()) : ""`},
		}
	}
	return a
}

func expression(e string) *v1.PrefixedClaimOrExpression {
	return &v1.PrefixedClaimOrExpression{Expression: &e}
}

func ptr[T any](v T) *T { return &v }
