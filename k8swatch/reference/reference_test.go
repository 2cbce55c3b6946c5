package reference

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

func TestResolve(t *testing.T) { // API-4, API-5
	policy := Policy{Namespace: "team-a", Opened: []string{"shared"}}
	for name, tt := range map[string]struct {
		kind, name     string
		namespace, key *string
		want           string // of the Reference
		refused        string // part of the only fault
	}{
		"its own namespace":          {k8swatch.KindSecret, "ca", nil, ptr.To("ca.crt"), "Secret team-a/ca", ""},
		"an empty namespace":         {k8swatch.KindSecret, "ca", ptr.To(""), ptr.To("ca.crt"), "Secret team-a/ca", ""},
		"an opened namespace":        {k8swatch.KindConfigMap, "ca", ptr.To("shared"), ptr.To("ca.crt"), "ConfigMap shared/ca", ""},
		"all of a Secret":            {k8swatch.KindSecret, "idp", nil, nil, "Secret team-a/idp", ""},
		"another namespace":          {k8swatch.KindSecret, "ca", ptr.To("team-b"), ptr.To("k"), "Secret team-b/ca", "must be the namespace of the object"},
		"a path for a name":          {k8swatch.KindSecret, "a/../b", nil, ptr.To("k"), "Secret team-a/a/../b", "must be the name of a Secret"},
		"no key":                     {k8swatch.KindSecret, "ca", nil, ptr.To(""), "Secret team-a/ca", "is required"},
		"a front-proxy certificate":  {k8swatch.KindSecret, "proxyauth-frontproxy-team-a.prod", nil, ptr.To("tls.key"), "Secret team-a/proxyauth-frontproxy-team-a.prod", ProtectedText},
		"a ConfigMap with that name": {k8swatch.KindConfigMap, "proxyauth-frontproxy-team-a.prod", nil, ptr.To("k"), "ConfigMap team-a/proxyauth-frontproxy-team-a.prod", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, faults := policy.Resolve("spec.x", tt.kind, tt.name, tt.namespace, tt.key)
			if r.String() != tt.want {
				t.Errorf("resolved to %s", r)
			}
			switch {
			case tt.refused == "" && len(faults) > 0:
				t.Errorf("refused: %v", faults)
			case tt.refused != "" && (len(faults) != 1 || !strings.Contains(faults[0].Text, tt.refused)):
				t.Errorf("faults %v, want %q", faults, tt.refused)
			}
		})
	}
}

// A reference costs the hub requests only while something is made of it.
func TestIsRead(t *testing.T) {
	frontProxy := &v1.ProxyKubeApiSpec{UpstreamAuth: &v1.UpstreamAuth{Mode: v1.ModeFrontProxy}}
	oidc := &v1.ProxyKubeApiSpec{AuthConfig: &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider}}
	unchecked := &v1.ProxyKubeApiSpec{AuthConfig: &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, DisableValidation: true}}
	for _, tt := range []struct {
		path string
		spec *v1.ProxyKubeApiSpec
		want bool
	}{
		{"spec.cert.Secret", &v1.ProxyKubeApiSpec{}, true},
		{"spec.client_cert.key.Secret", &v1.ProxyKubeApiSpec{}, true},
		{"spec.client_cert.key.Secret", frontProxy, false},
		{ConfigFromPath, oidc, true},
		{ConfigFromPath, unchecked, false},
		{ConfigFromPath, &v1.ProxyKubeApiSpec{}, false},
		{"spec.virtual_apis[0].list_fallback_token.Secret", &v1.ProxyKubeApiSpec{}, false},
	} {
		if got := IsRead(tt.path, tt.spec); got != tt.want {
			t.Errorf("%s: %v", tt.path, got)
		}
	}
}

// The text of an error names the service account of the proxy, which a tenant
// must not read in a status.
func TestFaultRepeatsNothing(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for want, err := range map[string]error{
		"it does not exist": apierrors.NewNotFound(secrets, "hidden"),
		"forbidden":         apierrors.NewForbidden(secrets, "hidden", errors.New("hidden")),
		"unauthorized":      apierrors.NewUnauthorized("hidden"),
		"timed out":         apierrors.NewTimeoutError("hidden", 1),
		"the read failed":   errors.New("hidden"),
	} {
		if got := Fault(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
