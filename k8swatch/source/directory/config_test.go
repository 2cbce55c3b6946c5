package directory

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/admission"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/compile"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/internal/k8stest"
)

// API-7, CERT-7: config_from of a directory, in an object that passed admission.
func TestDirectoryWithConfigFrom(t *testing.T) {
	validator, err := admission.Default()
	if err != nil {
		t.Fatal(err)
	}
	object := func(name, secret string) string {
		return fmt.Sprintf("---\napiVersion: weebo.si.rs/v1\nkind: ProxyKubeApi\nmetadata: {name: %s, namespace: team-a}\n"+
			"spec: {service: {ExternalService: {url: 'https://1'}}, auth_config: {validate_against: OidcProvider, "+
			"oidc_provider: {enabled: true, config_from: {Secret: {name: %s}}}}}\n", name, secret)
	}
	secret := func(name, issuer string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: team-a}\n"+
			"stringData: {issuer_url: '%s', client_id: kube, client_secret: hunter2}\n", name, issuer)
	}
	rig := newDirRig(t, map[string]string{
		"a.yaml": object("a", "idp"), "b.yaml": object("b", "other"),
		"idp.yaml": secret("idp", "https://one.example.test"), "other.yaml": secret("other", "https://two.example.test"),
	})
	compiler, carried := compile.New(compile.Options{Namespace: k8stest.ProxyNamespace, Revalidate: validator.Revalidate}), map[k8swatch.Key]compile.Carried{}
	compiled := func(name, issuer string) *k8swatch.Cluster {
		t.Helper()
		c, next := compiler.Compile(rig, dirKey(name), carried[dirKey(name)])
		carried[dirKey(name)] = next
		k8stest.WantReady(t, c, k8swatch.ReasonServing)
		if p := c.Auth.OIDC; p == nil || p.IssuerURL != issuer || p.ClientID != "kube" || p.ClientSecret != "hunter2" || p.Audience != "kube" || p.ClaimsFromToken {
			t.Fatalf("provider of %s: %v", name, p)
		}
		return c
	}
	before, neighbour := compiled("a", "https://one.example.test"), compiled("b", "https://two.example.test")

	rig.rewrite("idp.yaml", secret("idp", "https://three.example.test"))
	change := k8swatch.Change{Kind: k8swatch.KindSecret, Namespace: "team-a", Name: "idp"}
	if got := slices.Collect(maps.Keys(compile.Affected(carried, []k8swatch.Change{change}))); !slices.Equal(got, []k8swatch.Key{dirKey("a")}) {
		t.Errorf("affected: %v", got)
	}
	if after := compiled("a", "https://three.example.test"); after.Auth.Hash == before.Auth.Hash {
		t.Error("the hash of another issuer is the same")
	}
	if compiled("b", "https://two.example.test") != neighbour {
		t.Error("the neighbour is another value")
	}

	rig.rewrite("idp.yaml", secret("idp", "http://four.example.test"))
	k8stest.WantNotice(t, compiled("a", "https://three.example.test"), k8swatch.NoticeReferenceStale, `get Secret team-a/idp: key "issuer_url" must be an https:// URL`)
	rig.remove("idp.yaml")
	rig.settle()
	k8stest.WantNotice(t, compiled("a", "https://three.example.test"), k8swatch.NoticeReferenceStale, "get Secret team-a/idp: it does not exist")
}
