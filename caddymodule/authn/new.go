package authn

import (
	"fmt"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Options are those of all validators of a Factory.
type Options struct {
	Cache CacheOptions
	// Answers limits what is read of the answers of identity providers, nil for a
	// Reader of the Factory's own.
	Answers *boundedjson.Reader
	// DeniedTargets are where no connection to an identity provider may lead.
	DeniedTargets *egress.Policy
	// TokenCacheTTL is how long what was asked about a token over the network is
	// remembered (token_cache_ttl). 0 asks for each request.
	TokenCacheTTL time.Duration
	// AudienceValidation is one of the Audience constants.
	AudienceValidation string

	// The functions below may be nil, and must not block.

	// OnIssuerFault is told that the Faults of the validators with this issuer
	// may have changed.
	OnIssuerFault func(issuer string)
	// OnClusterFault is told that the Faults of this cluster's validator may have
	// changed.
	OnClusterFault func(cluster k8swatch.Key)
	// OnExchange is told how each token exchange went: one of the Exchange
	// constants.
	OnExchange func(result string)
	// OnMisconfigured is told of an exchange that was refused for a reason that
	// lies in the configuration rather than in the bearer, with the OAuth error,
	// which is of a fixed list.
	OnMisconfigured func(cluster k8swatch.Key, tokenURL, code string)
}

// Factory makes the validators of clusters, and has what they share: the keys of
// issuers, the bounds of what is remembered, and the turns of expressions.
type Factory struct {
	options Options
	cache   *Cache
	keys    *keys.Registry
	turns   *claims.Turns
	// owner is the object that a validator is made for.
	owner boundedjson.Owner
}

// forObject is the Factory for the validator of one object.
func (f *Factory) forObject(key k8swatch.Key) *Factory {
	of := *f
	of.owner = boundedjson.Owner(key)
	of.options.Answers = f.options.Answers.ForObject(of.owner)
	return &of
}

// NewFactory makes a Factory. It ends with its Close.
func NewFactory(o Options) *Factory {
	if o.Answers == nil {
		o.Answers = boundedjson.NewReader(boundedjson.LargeAnswers)
	}
	cache := NewCache(o.Cache)
	f := &Factory{options: o, cache: cache, keys: keys.NewRegistry(cache.now, o.Answers, o.DeniedTargets), turns: claims.NewTurns()}
	f.keys.OnFaultChange = f.issuerFault
	return f
}

func (f *Factory) issuerFault(issuer string) {
	if f.options.OnIssuerFault != nil {
		f.options.OnIssuerFault(issuer)
	}
}

// New makes the validator of a cluster whose bearers are validated, which ends
// with its Close. It does no I/O. review is used where the cluster's apiserver is
// asked.
func (f *Factory) New(c *k8swatch.Cluster, review Reviewer) (Validator, error) {
	f = f.forObject(c.Key)
	v, err := f.newValidator(&c.Auth, review)
	if err != nil {
		return nil, err
	}
	if c.Auth.Exchange != nil {
		e, err := f.newExchanging(c, v)
		if err != nil {
			v.Close()
			return nil, err
		}
		v = e
	}
	return newCaching(v, f.cache), nil
}

// newValidator makes what validates a token, the caller's or an exchanged one.
func (f *Factory) newValidator(a *k8swatch.Auth, review Reviewer) (Validator, error) {
	switch a.ValidateAgainst {
	case v1.ValidateKubernetes:
		return f.newKubernetes(review), nil
	case v1.ValidateOidcProvider:
		return f.newOIDC(a.OIDC)
	case v1.ValidateJwtAuthenticators:
		return f.newJWT(a.JWT)
	}
	// Admission and compilation know the validators that there are.
	return nil, fmt.Errorf("no validator for validate_against %q", a.ValidateAgainst)
}

// Close breaks off what is being read from issuers. Validators that are still open
// go on with the keys that are known.
func (f *Factory) Close() { f.keys.Close() }

// ConfigID is what the verdicts on a cluster's tokens depend on beside the token
// (AUTH-12): two versions of an object with one ConfigID may share a validator. An
// apiserver's verdicts are about it alone, and about the connection it is asked
// over.
func ConfigID(c *k8swatch.Cluster) string {
	id := string(c.UID) + "/" + c.Auth.Hash
	if c.Auth.ValidateAgainst == v1.ValidateKubernetes {
		id += "/" + c.CredentialID()
	}
	return id
}
