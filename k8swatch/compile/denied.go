package compile

import (
	"fmt"
	"net/url"
	"slices"

	"k8s.io/utils/ptr"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// validationRequired refuses disable_validation where the proxy admin does not
// allow it.
func (b *builder) validationRequired() []problem {
	if a := b.spec.AuthConfig; a == nil || !a.DisableValidation || !b.options.RequireValidation {
		return nil
	}
	return []problem{invalid("spec.auth_config.disable_validation", "is not enabled on this proxy installation; the option disable_validation opens it")}
}

// deniedHost refuses a host, by any of its names, that denied_targets denies as it
// is written. So the author learns at once what would otherwise fail when it is
// dialled, where the address behind a name is judged.
func (b *builder) deniedHost(path string, names ...string) []problem {
	i := slices.IndexFunc(names, b.options.DeniedTargets.DeniesHost)
	if i < 0 {
		return nil
	}
	return []problem{invalid(path, "leads to "+names[i]+", to which this proxy does not connect (denied_targets)")}
}

// deniedProviders refuses the URLs of an auth_config that lead to denied hosts,
// whether they are in use or not.
func (b *builder) deniedProviders(config *v1.AuthConfig) []problem {
	var problems []problem
	check := func(path, address string) {
		if u, err := url.Parse(address); err == nil {
			problems = append(problems, b.deniedHost("spec.auth_config."+path, u.Hostname())...)
		}
	}
	for i := range config.JWT {
		path, issuer := fmt.Sprintf("jwt[%d].issuer", i), &config.JWT[i].Issuer
		if elsewhere := ptr.Deref(issuer.DiscoveryURL, ""); elsewhere != "" {
			check(path+".discovery_url", elsewhere) // the issuer itself is not asked
		} else {
			check(path+".url", issuer.URL)
		}
	}
	if config.OidcProvider != nil {
		check("oidc_provider.issuer_url", config.OidcProvider.IssuerURL)
	}
	if config.TokenExchange != nil {
		check("token_exchange.token_url", config.TokenExchange.TokenURL)
	}
	return problems
}
