package migration

import (
	"testing"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/oidc"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/proxy"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// The same way with an OidcProvider, which is asked for the claims of each
// token and whose settings are in a Secret of the tenant: prepare, switch under
// load, renew the certificate, go back, and no request fails.
func TestREC7MigrationWithOidcProvider(t *testing.T) {
	w := newWorld(t, false, byOidcProvider)
	w.hub.Apply(t, w.cluster(prod, w.main), proxy.Secret(prod.Namespace, providerSecret, map[string]string{
		"issuer_url": w.idp.Issuer, "client_id": oidc.ClientID, "certificate_authority": string(w.idp.CA.PEM),
	}))
	w.ready(t, prod, time.Time{}, "True/Serving")
	began := time.Now()
	users := w.newLoad(t, prod)
	users.more(t, idpName)
	if name := w.whoami(t, prod); name != idpName {
		t.Fatalf("whoami %q", name)
	}
	prepare(t, w)
	switchOver(t, w, users)
	users.stop(t)
	// Once for each whoami, and twice a minute for the token of the load, which
	// is another every minute.
	if n := w.idp.Calls(oidc.Userinfo); n == 0 || n > 10+4*int(time.Since(began)/time.Minute+1) {
		t.Errorf("userinfo was asked %d times in %v", n, time.Since(began))
	}
	w.nobodyRanAsACertificate(t)
	w.nothingLeaked(t)
	w.hub.MustNotHaveBeenForbidden(t)
}

// providerSecret is what config_from names.
const providerSecret = "provider"

func byOidcProvider(p *oidc.Provider) *v1.AuthConfig {
	return &v1.AuthConfig{ValidateAgainst: v1.ValidateOidcProvider, OidcProvider: &v1.OidcProvider{
		Enabled: true, ConfigFrom: &v1.ConfigReference{Secret: &v1.SecretReference{Name: providerSecret}},
		ClaimMappings: proxy.Authenticator(p).ClaimMappings,
	}}
}
