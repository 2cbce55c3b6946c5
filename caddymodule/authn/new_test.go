package authn

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/probe"
)

// Each validate_against has its validator, with and without an exchange, and each
// of them gives back what it holds.
func TestNewChoosesTheValidator(t *testing.T) {
	p := newIDP(t, k1().JWK())
	review := func(context.Context, string) (probe.Subject, int, error) {
		return probe.Subject{Name: "alice"}, http.StatusCreated, nil
	}
	oidc := k8swatch.OIDCProvider{IssuerURL: p.URL, Audience: "proxy-a", CertificateAuthority: p.CA(), Claims: compile(t, p.authenticator())}
	exchange := &k8swatch.TokenExchange{TokenURL: "https://idp.example.test/token", ClientID: "proxy-a"}
	for _, tt := range []struct {
		name          string
		auth          k8swatch.Auth
		review        Reviewer
		asksApiserver bool
		fails         bool
	}{
		{name: "JwtAuthenticators", auth: k8swatch.Auth{ValidateAgainst: v1.ValidateJwtAuthenticators, JWT: []k8swatch.JWT{compile(t, p.authenticator())}}},
		{name: "OidcProvider", auth: k8swatch.Auth{ValidateAgainst: v1.ValidateOidcProvider, OIDC: &oidc}},
		{name: "Kubernetes", auth: k8swatch.Auth{ValidateAgainst: v1.ValidateKubernetes}, review: review, asksApiserver: true},
		{name: "a kind of the future", auth: k8swatch.Auth{ValidateAgainst: "Future"}, fails: true},
	} {
		for _, e := range []*k8swatch.TokenExchange{nil, exchange, {ClientID: "without a URL"}} {
			f := NewFactory(Options{AudienceValidation: AudienceEnforce})
			tt.auth.Exchange = e
			v, err := f.New(&k8swatch.Cluster{Auth: tt.auth}, tt.review)
			if fails := tt.fails || e != nil && e.TokenURL == ""; (err != nil) != fails {
				t.Errorf("%s: %v", tt.name, err)
			}
			if err == nil {
				if v.AsksApiserver() != tt.asksApiserver {
					t.Errorf("%s: asks the apiserver: %t", tt.name, !tt.asksApiserver)
				}
				if faults := v.Faults(); faults != nil {
					t.Errorf("%s: faults %q", tt.name, faults)
				}
				v.Close()
			}
			if n := f.keys.Len(); n != 0 {
				t.Errorf("%s: %d key sets are left", tt.name, n)
			}
			f.Close()
		}
	}
}

// AUTH-12: what ends a validator: another object, another configuration, and for
// Kubernetes another connection.
func TestConfigID(t *testing.T) {
	base := func(kind v1.ValidateAgainst) *k8swatch.Cluster {
		return &k8swatch.Cluster{UID: "uid", Auth: k8swatch.Auth{Hash: "hash", ValidateAgainst: kind}}
	}
	for name, tt := range map[string]struct {
		change func(*k8swatch.Cluster)
		kinds  map[v1.ValidateAgainst]bool // whether the ID is another
	}{
		"nothing":        {func(*k8swatch.Cluster) {}, map[v1.ValidateAgainst]bool{}},
		"object":         {func(c *k8swatch.Cluster) { c.UID = "other" }, map[v1.ValidateAgainst]bool{v1.ValidateKubernetes: true, v1.ValidateOidcProvider: true, v1.ValidateJwtAuthenticators: true}},
		"configuration":  {func(c *k8swatch.Cluster) { c.Auth.Hash = "other" }, map[v1.ValidateAgainst]bool{v1.ValidateKubernetes: true, v1.ValidateOidcProvider: true, v1.ValidateJwtAuthenticators: true}},
		"the connection": {func(c *k8swatch.Cluster) { c.ServerName = "other" }, map[v1.ValidateAgainst]bool{v1.ValidateKubernetes: true}},
	} {
		for _, kind := range []v1.ValidateAgainst{v1.ValidateKubernetes, v1.ValidateOidcProvider, v1.ValidateJwtAuthenticators} {
			c := base(kind)
			tt.change(c)
			if changed := ConfigID(c) != ConfigID(base(kind)); changed != tt.kinds[kind] {
				t.Errorf("%s, %s: another ID: %t", name, kind, changed)
			}
		}
	}
}

// Each error of the packages below has its answer: only one about the token is a
// 401 (AUTH-13).
func TestVerdict(t *testing.T) {
	for err, want := range map[error]error{
		claims.ErrClaim: errClaims, claims.ErrEmailNotVerified: errEmailNotVerified, claims.ErrRule: errRule, claims.ErrTooLarge: errTooLarge,
		keys.ErrUnknownKey: errUnknownKey, keys.ErrSignature: errSignature,
		claims.ErrBusy: errBusy, keys.ErrBusy: errBusy, errors.New("another"): errInternal, nil: nil,
	} {
		if got := verdict("https://idp.example.test", err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	for fault, limit := range map[idp.Fault]string{"it refused the connection": "", idp.TooManyWait: string(idp.TooManyWait)} {
		var u *Unavailable
		if !errors.As(verdict("https://idp.example.test", fault), &u) || u.Fault != "https://idp.example.test: "+string(fault) || u.Limit != limit {
			t.Errorf("%s: %+v", fault, u)
		}
	}
}
