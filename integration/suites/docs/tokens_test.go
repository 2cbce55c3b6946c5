package docs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

type object map[string]any

// Claims as the vendors document them, of a user that the manifest lets in.
var (
	kanidmClaims = object{
		"iss": "https://idm.example.com/oauth2/openid/staging", "aud": "staging", "azp": "staging",
		"sub": "cc8e95b4-c24f-4d68-ba54-8bed76f63930", "preferred_username": "alice@idm.example.com",
		"groups": []string{"k8s-admins", "k8s-users", "mail"},
	}
	dexClaims = object{
		"iss": "https://dex.example.com", "aud": "prod", "sub": "CgcyMzQyNzQ5EgRsZGFw", "name": "Jane Doe",
		"email": "jane@example.com", "email_verified": true, "groups": []string{"admins", "developers"},
		"federated_claims": object{"connector_id": "ldap", "user_id": "2342749"},
	}
	keycloakClaims = object{
		"iss": "https://keycloak.example.com/realms/example", "aud": "staging", "azp": "staging", "typ": "ID",
		"sub": "f6b7b6de-1b3c-4a2f-9b53-2f4c1f1c9f0e", "preferred_username": "alice", "groups": []string{"/k8s/admins", "/mail"},
	}
	entraClaims = object{
		"iss": "https://login.microsoftonline.com/00000000-1111-2222-3333-444444444444/v2.0",
		"aud": "55555555-6666-7777-8888-999999999999", "ver": "2.0", "tid": "00000000-1111-2222-3333-444444444444",
		"oid": "cb7eda1b-d09a-40ae-b8bb-37836ebc6abd", "sub": "3OBtLXUC2ZrN_ADLNjW9X4o0lcd61py7lgHw3Skh77s",
		"groups": []string{"0760b6cf-170e-4a14-91b3-4b78e0739963"}, "roles": []string{"k8s-admins"},
	}
	entraOverage = object{
		"groups":         nil,
		"_claim_names":   object{"groups": "src1"},
		"_claim_sources": object{"src1": object{"endpoint": "https://graph.windows.net/tenant/users/user/getMemberObjects"}},
	}
	githubClaims = object{
		"iss": "https://token.actions.githubusercontent.com", "aud": "https://k8s.example.com/clusters/team-a/prod",
		"sub": "repo:octo-org@1234567/octo-repo@23456789:environment:production", "repository": "octo-org/octo-repo",
		"repository_id": "23456789", "repository_owner": "octo-org", "repository_owner_id": "1234567", "environment": "production",
		"ref": "refs/heads/main", "ref_type": "branch", "event_name": "push", "run_id": "99", "run_attempt": "2",
		"workflow_ref": "octo-org/octo-repo/.github/workflows/deploy.yml@refs/heads/main",
	}
	gitlabClaims = object{
		"iss": "https://gitlab.example.com", "aud": "https://k8s.example.com/clusters/team-a/prod",
		"sub": "project_path:my-group/my-project:ref_type:branch:ref:main", "project_id": "20", "project_path": "my-group/my-project",
		"namespace_id": "72", "namespace_path": "my-group", "user_login": "sample-user", "pipeline_id": "574", "job_id": "302",
		"ref": "main", "ref_type": "branch", "ref_protected": "true", "runner_id": 1,
		"environment": "production", "deployment_tier": "production",
	}
)

// Each manifest makes of claims as its vendor documents them what its page
// says. This is the manifest and the proxy's own code on a token; the vendor's
// product is not here.
func TestVendorsClaims(t *testing.T) {
	t.Parallel()
	const (
		rule     = "the token does not meet a validation rule of this cluster"
		audience = "the token is for another audience"
		claims   = "a claim of the token is missing or has the wrong type"
	)
	for _, c := range []struct {
		name, manifest, cluster string
		claims, changes         object
		user                    string
		groups                  []string
		extra                   map[string][]string
		refused                 string
	}{
		{name: "Kanidm", manifest: "kanidm", cluster: "staging", claims: kanidmClaims,
			user: "cc8e95b4-c24f-4d68-ba54-8bed76f63930", groups: []string{"k8s-admins", "k8s-users", "mail"}},
		{name: "Kanidm, userinfo", manifest: "kanidm", cluster: "prod", claims: kanidmClaims,
			changes: object{"iss": "https://idm.example.com/oauth2/openid/prod", "aud": "prod"},
			user:    "proxyauth:cc8e95b4-c24f-4d68-ba54-8bed76f63930", groups: []string{"proxyauth:k8s-admins", "proxyauth:k8s-users"}},
		{name: "Kanidm, another client", manifest: "kanidm", cluster: "staging", claims: kanidmClaims,
			changes: object{"aud": "nextcloud"}, refused: audience},
		{name: "Dex", manifest: "dex", cluster: "prod", claims: dexClaims,
			user: "proxyauth:CgcyMzQyNzQ5EgRsZGFw", groups: []string{"proxyauth:admins", "proxyauth:developers"},
			extra: map[string][]string{"example.com/directory-user": {"2342749"}}},
		{name: "Dex, another connector", manifest: "dex", cluster: "prod", claims: dexClaims,
			changes: object{"federated_claims": object{"connector_id": "github", "user_id": "1"}}, refused: rule},
		{name: "Dex without the scope federated:id", manifest: "dex", cluster: "prod", claims: dexClaims,
			changes: object{"federated_claims": nil}, refused: claims},
		{name: "Keycloak", manifest: "keycloak", cluster: "staging", claims: keycloakClaims,
			user: "f6b7b6de-1b3c-4a2f-9b53-2f4c1f1c9f0e", groups: []string{"/k8s/admins", "/mail"}},
		{name: "Keycloak, userinfo", manifest: "keycloak", cluster: "prod", claims: keycloakClaims, changes: object{"aud": []string{"prod", "account"}},
			user: "proxyauth:f6b7b6de-1b3c-4a2f-9b53-2f4c1f1c9f0e", groups: []string{"proxyauth:/k8s/admins"}},
		{name: "Keycloak, an access token without audience mapper", manifest: "keycloak", cluster: "staging", claims: keycloakClaims,
			changes: object{"aud": "account", "typ": "Bearer"}, refused: audience},
		{name: "Entra ID, app roles", manifest: "entra-id", cluster: "prod", claims: entraClaims,
			user: "proxyauth:cb7eda1b-d09a-40ae-b8bb-37836ebc6abd", groups: []string{"proxyauth:k8s-admins"}},
		{name: "Entra ID, app roles beside an overage", manifest: "entra-id", cluster: "prod", claims: entraClaims, changes: entraOverage,
			user: "proxyauth:cb7eda1b-d09a-40ae-b8bb-37836ebc6abd", groups: []string{"proxyauth:k8s-admins"}},
		{name: "Entra ID, groups", manifest: "entra-id", cluster: "staging", claims: entraClaims,
			user: "cb7eda1b-d09a-40ae-b8bb-37836ebc6abd", groups: []string{"0760b6cf-170e-4a14-91b3-4b78e0739963"}},
		{name: "Entra ID, groups in an overage", manifest: "entra-id", cluster: "staging", claims: entraClaims,
			changes: entraOverage, user: "cb7eda1b-d09a-40ae-b8bb-37836ebc6abd"},
		{name: "Entra ID, groups of the implicit flow", manifest: "entra-id", cluster: "staging", claims: entraClaims,
			changes: object{"groups": nil, "hasgroups": true}, refused: rule},
		{name: "GitHub", manifest: "github-actions", cluster: "prod", claims: githubClaims,
			user:   "proxyauth:github:repo:octo-org@1234567/octo-repo@23456789:environment:production",
			groups: []string{"proxyauth:github:deployers"},
			extra: map[string][]string{
				"example.com/workflow": {"octo-org/octo-repo/.github/workflows/deploy.yml@refs/heads/main"},
				"example.com/run":      {"99/2"},
			}},
		{name: "GitHub, no environment", manifest: "github-actions", cluster: "prod", claims: githubClaims,
			changes: object{"environment": nil, "sub": "repo:octo-org/octo-repo:ref:refs/heads/x"},
			user:    "proxyauth:github:repo:octo-org/octo-repo:ref:refs/heads/x",
			extra: map[string][]string{
				"example.com/workflow": {"octo-org/octo-repo/.github/workflows/deploy.yml@refs/heads/main"},
				"example.com/run":      {"99/2"},
			}},
		{name: "GitHub, the repository of a stranger", manifest: "github-actions", cluster: "prod", claims: githubClaims,
			changes: object{"repository_owner_id": "666"}, refused: rule},
		{name: "GitHub, another repository of the owner", manifest: "github-actions", cluster: "prod", claims: githubClaims,
			changes: object{"repository_id": "1"}, refused: rule},
		{name: "GitHub, the default audience", manifest: "github-actions", cluster: "prod", claims: githubClaims,
			changes: object{"aud": "https://github.com/octo-org"}, refused: audience},
		{name: "GitLab", manifest: "gitlab", cluster: "prod", claims: gitlabClaims,
			user:   "proxyauth:gitlab:project_path:my-group/my-project:ref_type:branch:ref:main",
			groups: []string{"proxyauth:gitlab:deployers"},
			extra:  map[string][]string{"example.com/pipeline": {"574"}, "example.com/started-by": {"sample-user"}}},
		{name: "GitLab, a branch that is not protected", manifest: "gitlab", cluster: "prod", claims: gitlabClaims,
			changes: object{"ref_protected": "false"}, refused: rule},
		{name: "GitLab, another project", manifest: "gitlab", cluster: "prod", claims: gitlabClaims,
			changes: object{"project_id": "21"}, refused: rule},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			token := maps.Clone(c.claims)
			maps.Copy(token, c.changes)
			got, refused := whoIs(t, c.manifest, c.cluster, token)
			if refused != c.refused {
				t.Fatalf("refused: %q, not %q", refused, c.refused)
			}
			if refused != "" {
				return
			}
			want := &identity.Identity{Name: c.user, Groups: c.groups, Extra: c.extra}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// authenticators are those of an object. What an OidcProvider makes of the claims
// of /userinfo is tried as if they stood in the token.
func authenticators(c *k8swatch.Cluster) []k8swatch.JWT {
	if c.Auth.OIDC == nil {
		return c.Auth.JWT
	}
	return []k8swatch.JWT{c.Auth.OIDC.Claims}
}

// whoIs gives a token with these claims to the authenticators of an object,
// with a provider of the test in place of the one that iss names, and returns
// the identity, in FrontProxy as it is forwarded, or why there is none.
func whoIs(t *testing.T, manifest, cluster string, claims object) (*identity.Identity, string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "idp", manifest+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var found *k8swatch.Cluster
	for _, c := range compileManifest(t, string(text)) {
		if c.Key.Name == cluster {
			found = c
		}
	}
	if found == nil {
		t.Fatalf("%s has no object %s", manifest, cluster)
	}

	provider := oidc.Start(t, oidc.Options{})
	validated := &k8swatch.Cluster{Auth: k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators}}
	replaced := 0
	for _, a := range authenticators(found) {
		if a.Authenticator.Issuer.URL == claims["iss"] {
			a.Authenticator.Issuer.URL = provider.Issuer
			a.Authenticator.Issuer.CertificateAuthority = string(provider.CA.PEM)
			replaced++
		}
		validated.Auth.JWT = append(validated.Auth.JWT, a)
	}
	if replaced != 1 {
		t.Fatalf("%d authenticators for the issuer %s", replaced, claims["iss"])
	}
	validator, err := authn.NewFactory(authn.Options{}).New(validated, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer validator.Close()

	token := object{"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": time.Now().Add(5 * time.Minute).Unix()}
	for name, value := range claims {
		if value != nil {
			token[name] = value
		}
	}
	token["iss"] = provider.Issuer
	result, err := validator.Authenticate(t.Context(), provider.Mint(token, oidc.Sign{}))
	var unauthenticated *authn.Unauthenticated
	if errors.As(err, &unauthenticated) {
		return nil, unauthenticated.Reason
	} else if err != nil {
		t.Fatal(err)
	}
	if found.Mode == v1.ModePassthrough {
		return &identity.Identity{Name: result.Identity.Name, Groups: result.Identity.Groups, Extra: result.Identity.Extra}, ""
	}
	forwarded, refusal := result.Forward(identity.Settings{UserPrefix: found.UserPrefix, GroupPrefix: found.GroupPrefix})
	if refusal != nil {
		return nil, string(refusal.Reason)
	}
	return &identity.Identity{Name: forwarded.User, Groups: forwarded.Groups, Extra: forwarded.Extra}, ""
}
