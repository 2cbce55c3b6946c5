package migration

import (
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The same way, with every fault and flag, with an OidcProvider, which is asked
// for the claims of each token and whose settings are in a Secret of the tenant.
func TestREC7MigrationWithOidcProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byOidcProvider, false)
	began := time.Now()
	users := w.walk(t, nil)
	users.stop(t)
	// Once for each token that was used once, and twice a minute for that of
	// each of the two loads, which is another every minute.
	most := int(w.asked.Load()) + 2*4*int(time.Since(began)/time.Minute+1)
	if n := w.idp.Calls(oidc.Userinfo); n == 0 || n > most {
		t.Errorf("userinfo was asked %d times, want %d at most", n, most)
	}
	w.judge(t)
}

// providerSecret is what config_from names.
const providerSecret = "provider"

var byOidcProvider = validator{
	auth: func(p *oidc.Provider) *v1.AuthConfig {
		return &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: &v1.OidcProvider{
			Enabled: true, ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: providerSecret}},
			ClaimMappings: proxy.Authenticator(p).ClaimMappings,
		}}
	},
	objects: func(p *oidc.Provider, namespace string) []any {
		return []any{proxy.Secret(namespace, providerSecret, map[string]string{
			"issuer_url": p.Issuer, "client_id": oidc.ClientID, "certificate_authority": string(p.CA.PEM),
		})}
	},
}
