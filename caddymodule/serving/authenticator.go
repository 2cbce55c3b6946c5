package serving

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/exchange"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// authScope is what the verdicts of an authenticator depend on beside the token
// and the object (AUTH-12). An apiserver's are about it alone, as it is asked.
func authScope(spec *k8swatch.Cluster) string {
	if spec.Auth.ValidateAgainst == v1.ValidateKubernetes {
		return spec.Auth.Hash + "/" + spec.CredentialID()
	}
	return spec.Auth.Hash
}

// authenticator makes the authenticator of a cluster, its token exchange
// included.
func (rt *Runtime) authenticator(c *Cluster) (authn.Authenticator, error) {
	spec := c.Spec
	inner, err := rt.validator(c)
	if err != nil || spec.Auth.Exchange == nil {
		return inner, err
	}
	e := spec.Auth.Exchange
	faultChanged := func() { rt.statusChanged(spec.Key) }
	client, err := exchange.New(exchange.Config{
		TokenURL: e.TokenURL, CertificateAuthority: e.CertificateAuthority,
		ClientID: e.ClientID, ClientSecret: e.ClientSecret,
		Audience: e.Audience, Resource: e.Resource, Scopes: e.Scopes,
		SubjectTokenType: e.SubjectTokenType, RequestedTokenType: e.RequestedTokenType,
		OnFaultChange: faultChanged,
	})
	if err != nil {
		closeAuthenticator(inner)
		return nil, fmt.Errorf("making a client for token_exchange: %w", err)
	}
	misconfigured := &occasionalWarning{logger: rt.logger}
	auth, err := authn.NewExchanging(authn.ExchangingConfig{
		UID: spec.UID, Hash: authScope(spec), TTL: rt.options.TokenCacheTTL,
		ForwardAccessToken: e.ForwardAccessToken,
		OnExchange:         func(result string) { rt.process.Metrics.TokenExchanges.WithLabelValues(result).Inc() },
		OnFaultChange:      faultChanged,
		OnMisconfigured: func(code string) {
			misconfigured.warn("the token exchange is refused for a reason that lies in token_exchange, not in the token",
				zap.Stringer("cluster", spec.Key), zap.String("token_url", client.Name()), zap.String("error", code))
		},
	}, inner, client, rt.cache)
	if err != nil {
		closeAuthenticator(inner)
		return nil, err
	}
	return auth, nil
}

// validator makes the validator of a cluster, for the caller's token or the
// exchanged one.
func (rt *Runtime) validator(c *Cluster) (authn.Authenticator, error) {
	spec, hash := c.Spec, authScope(c.Spec)
	switch spec.Auth.ValidateAgainst {
	case v1.ValidateKubernetes:
		r, err := newReviewer(c)
		if err != nil {
			return nil, err
		}
		return authn.NewKubernetes(authn.KubernetesConfig{
			UID: spec.UID, Hash: hash, TTL: rt.options.TokenCacheTTL, Review: r.review,
		}, rt.cache), nil
	case v1.ValidateOidcProvider:
		p := spec.Auth.OIDC
		return authn.NewOIDC(authn.OIDCConfig{
			UID: spec.UID, Hash: hash, TTL: rt.options.TokenCacheTTL,
			IssuerURL: p.IssuerURL, CertificateAuthority: p.CertificateAuthority,
			ClientID: p.ClientID, ClientSecret: p.ClientSecret,
			Audience: p.Audience, AcceptAuthorizedParty: p.AcceptAuthorizedParty, AudienceValidation: rt.options.AudienceValidation,
			ClaimsFromToken: p.ClaimsFromToken, Claims: mapped(p.Claims),
		}, rt.keySets, rt.cache)
	case v1.ValidateJwtAuthenticators:
		cfg := authn.Config{UID: spec.UID, Hash: hash}
		for _, j := range spec.Auth.JWT {
			cfg.JWT = append(cfg.JWT, mapped(j))
		}
		return authn.NewJWT(cfg, rt.keySets, rt.cache)
	}
	// Admission and compilation know the validators that there are.
	return nil, fmt.Errorf("no authenticator for validate_against %q", spec.Auth.ValidateAgainst)
}

func mapped(j k8swatch.JWT) authn.JWT {
	return authn.JWT{Authenticator: j.Authenticator, Mapper: j.Mapper}
}
