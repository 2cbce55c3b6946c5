package serving

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/trust"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/egress"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// Auth says who sends the requests of a cluster.
type Auth struct {
	// Validator is nil when bearers are not validated, and while the cluster may
	// not serve.
	authn.Validator

	// id is the authn.ConfigID of the validator.
	id       string
	warnings *authWarnings
}

// authWarnings are told about one cluster; its versions share them.
type authWarnings struct {
	logger *zap.Logger
	// audience is about tokens that are not for the cluster, provider about an
	// identity provider that cannot be asked, exchange about a token_exchange that
	// the provider does not accept.
	audience, provider, exchange rate.Sometimes
}

func newAuthWarnings(logger *zap.Logger) *authWarnings {
	// Once a minute: callers can bring these about as often as they like. Metrics
	// count each time.
	return &authWarnings{
		logger:   logger,
		audience: rate.Sometimes{Interval: time.Minute}, provider: rate.Sometimes{Interval: time.Minute}, exchange: rate.Sometimes{Interval: time.Minute},
	}
}

// WarnAudience logs, now and then, that a token for another audience was
// accepted (AUTH-7).
func (a *Auth) WarnAudience(key k8swatch.Key) {
	if a.warnings != nil {
		a.warnings.audience.Do(func() {
			a.warnings.logger.Warn("a token that is not for the audience of the cluster was accepted: audience_validation is warn", zap.Stringer("cluster", key))
		})
	}
}

// WarnProvider logs, now and then, why a token could not be judged. The status
// tells what the leader met; this replica may meet something else.
func (a *Auth) WarnProvider(key k8swatch.Key, err error) {
	if a.warnings != nil {
		a.warnings.provider.Do(func() {
			a.warnings.logger.Warn("a token could not be judged", zap.Stringer("cluster", key), zap.Error(err))
		})
	}
}

// warnMisconfigured logs, now and then, that a token exchange was refused for a
// reason that lies in the object.
func (rt *Runtime) warnMisconfigured(key k8swatch.Key, tokenURL, code string) {
	if c := rt.clusters()[key]; c != nil && c.Auth.warnings != nil {
		c.Auth.warnings.exchange.Do(func() {
			rt.logger.Warn("the token exchange is refused for a reason that lies in token_exchange, not in the token",
				zap.Stringer("cluster", key), zap.String("token_url", tokenURL), zap.String("error", code))
		})
	}
}

// newValidators makes the factory of the validators of a runtime.
func (rt *Runtime) newValidators(denied *egress.Policy) *authn.Factory {
	p := rt.process
	return authn.NewFactory(authn.Options{
		Cache: authn.CacheOptions{
			OnLookup: func(result string) { p.Metrics.TokenCache.WithLabelValues(result).Inc() },
			OnPanic: func(stack []byte) {
				p.logger.Error("the validation of a token panicked; the token was refused", zap.ByteString("stack", stack))
			},
			Source: func(ctx context.Context) string { return SourceOf(p.clientIP(ctx)) },
		},
		Answers:            p.answers,
		DeniedTargets:      denied,
		TokenCacheTTL:      rt.options.TokenCacheTTL,
		AudienceValidation: rt.options.AudienceValidation,
		OnIssuerFault:      rt.issuerChanged,
		OnClusterFault:     rt.statusChanged,
		OnExchange:         func(result string) { p.Metrics.TokenExchanges.WithLabelValues(result).Inc() },
		OnMisconfigured:    rt.warnMisconfigured,
	})
}

// setValidator takes over the validator of the version before while it was made
// of the same, and makes a new one otherwise.
func (rt *Runtime) setValidator(c *Cluster, old Auth) error {
	c.Auth.id = authn.ConfigID(c.Spec)
	if old.Validator != nil && old.id == c.Auth.id {
		c.Auth.Validator = old.Validator
		return nil
	}
	if c.Spec.Auth.DisableValidation {
		return nil
	}
	// The apiserver is asked over the connections of requests (AUTH-8).
	validator, err := rt.validators.New(c.Spec, trust.Apiserver(c.Spec, c.Relay.Pair, rt.answersFor(c.Spec)).Review)
	if err != nil {
		return err
	}
	c.Auth.Validator = validator
	return nil
}

// requestDrain is how long validators outlive the snapshot that they were
// in: requests that found them there may still read keys. Such a request is
// older than the snapshot, its header takes up to 10 s to read on the listener,
// and the provider up to 10 s to answer (AUTH-13).
const requestDrain = 30 * time.Second

func (a *Auth) retire(next Auth) {
	if old := a.Validator; old != nil && next.Validator != old {
		time.AfterFunc(requestDrain, old.Close)
	}
}

// refresh has the keys of the issuers read again that are due.
func (a *Auth) refresh() {
	if a.Validator != nil {
		a.Validator.Refresh()
	}
}

// notices is IssuerUnavailable, with all issuers in one (AUTH-13).
func (a *Auth) notices() []k8swatch.Condition {
	if a.Validator == nil {
		return nil
	}
	faults := a.Validator.Faults()
	if len(faults) == 0 {
		return nil
	}
	return []k8swatch.Condition{{
		Type:    k8swatch.NoticeIssuerUnavailable,
		Status:  k8swatch.StatusTrue,
		Reason:  k8swatch.NoticeIssuerUnavailable,
		Message: strings.Join(faults, "; "),
	}}
}

// issuerChanged has the statuses written again of the clusters whose provider
// stopped or began to answer (AUTH-13).
func (rt *Runtime) issuerChanged(issuer string) {
	for key, c := range rt.clusters() {
		if slices.Contains(c.Spec.Auth.Issuers(), issuer) {
			rt.statusChanged(key)
		}
	}
}
