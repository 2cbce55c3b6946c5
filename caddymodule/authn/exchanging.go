package authn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/exchange"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
)

// The results of an exchange, for OnExchange.
const (
	ExchangeOK          = "ok"
	ExchangeRefused     = "refused"     // the provider refused the bearer
	ExchangeUnavailable = "unavailable" // it gave no usable answer, or was not asked
	ExchangeInvalid     = "invalid"     // it gave a token that this cluster does not accept
)

const (
	// renewLimit bounds an exchange while there is a token at hand, so that time
	// is left to validate that one.
	renewLimit = lookupLimit / 2
	// renewPause is the least time between attempts to renew a token.
	renewPause = 5 * time.Second
)

// exchanging accepts the long-lived tokens of machines, next to what another
// validator accepts (AUTH-14, AUTH-15). The token decides: one that names an
// issuer is for the other validator or refused. All others are exchanged, and
// what they are exchanged for is validated as any token of the cluster.
//
// A bearer is exchanged once for all requests that carry it. What it was
// exchanged for is remembered until shortly before its end and validated again
// whenever the verdict on it has lapsed.
type exchanging struct {
	// Validator is the other validator.
	Validator
	// issuers are those of the tokens that it accepts, where it says.
	issuers []string
	client  *exchange.Client
	tokens  *memory[*exchangedToken]
	// lastToken is what was wrong with the token that the endpoint gave last
	// (AUTH-16). The endpoint itself answered as it should.
	lastToken idp.LastFault

	now func() time.Time
	// ttl is how long an exchanged token is remembered whose end is not known.
	ttl time.Duration
	// onExchange and onMisconfigured are those of Options for this cluster.
	onExchange, onMisconfigured func(string)
}

// newExchanging makes a validator of another one, which it closes with itself. It
// asks nothing yet.
func (f *Factory) newExchanging(c *k8swatch.Cluster, inner Validator) (*exchanging, error) {
	changed := func() {
		if f.options.OnClusterFault != nil {
			f.options.OnClusterFault(c.Key)
		}
	}
	client, err := exchange.New(c.Auth.Exchange, f.options.Answers, f.options.DeniedTargets, f.cache.now, changed)
	if err != nil {
		return nil, fmt.Errorf("making a client for token_exchange: %w", err)
	}
	e := &exchanging{
		Validator: inner,
		issuers:   c.Auth.Issuers(),
		client:    client,
		tokens:    f.cache.exchanged.newMemory(),
		now:       f.cache.now,
		ttl:       max(f.options.TokenCacheTTL, time.Second),
		lastToken: idp.LastFault{OnChange: changed},

		onExchange:      f.options.OnExchange,
		onMisconfigured: func(string) {},
	}
	if e.onExchange == nil {
		e.onExchange = func(string) {}
	}
	if tell := f.options.OnMisconfigured; tell != nil {
		e.onMisconfigured = func(code string) { tell(c.Key, client.Name(), code) }
	}
	return e, nil
}

// Authenticate has a token validated by the other validator, or exchanged. A
// token of another issuer is sent nowhere, nor is one that might be read as such;
// where the apiserver is asked, which alone knows its issuers, the other validator
// decides, and the provider of the exchange still sees none of them.
func (e *exchanging) Authenticate(ctx context.Context, token string) (*Result, error) {
	kind, issuer := classify(token)
	switch {
	case kind == opaque, kind == signedAnonymous:
		return e.exchangeAndValidate(ctx, token)
	case e.AsksApiserver() && idp.IsBearer(token), slices.Contains(e.issuers, issuer):
		return e.Validator.Authenticate(ctx, token)
	case kind == malformed:
		return nil, atSight{errMalformed}
	}
	return nil, atSight{errUnknownIssuer}
}

// exchangeAndValidate validates what a bearer was exchanged for, and exchanges the
// bearer when there is nothing at hand that is good.
func (e *exchanging) exchangeAndValidate(ctx context.Context, bearer string) (*Result, error) {
	key, now := digest(bearer), e.now()
	known := e.remembered(&key, now)
	if known != nil && known.fault != nil {
		return nil, known.fault
	}
	if known != nil && now.Before(known.renew) {
		result, err := e.validate(ctx, known)
		if !isRefusal(err) {
			return result, err
		}
		known = nil // it was revoked, perhaps, and the bearer was not
	}
	var fault *Unavailable // of what the exchange gave
	fresh, err := e.exchange(ctx, bearer, known != nil)
	if err == nil {
		result, verdict := e.validate(ctx, fresh)
		if fault = e.providersFault(verdict); fault == nil {
			return result, e.settle(&key, fresh, verdict)
		}
		e.onExchange(ExchangeInvalid)
		err = fault
	}
	if known != nil && !isRefusal(err) {
		// It goes on to its end. Refused, or at its end by now, it leaves the
		// bearer without a verdict.
		known = known.postponed(e.now())
		if result, verdict := e.validate(ctx, known); !isRefusal(verdict) {
			e.remember(&key, known)
			return result, verdict
		}
	}
	if fault != nil {
		e.remember(&key, faultyToken(fault, e.now()))
		return nil, fault
	}
	e.tokens.remove(&key)
	return nil, err
}

// exchange has the provider exchange a bearer.
func (e *exchanging) exchange(ctx context.Context, bearer string, renewing bool) (*exchangedToken, error) {
	if renewing {
		limited, cancel := context.WithTimeout(ctx, renewLimit)
		defer cancel()
		ctx = limited
	}
	asked := e.now()
	issued, err := e.client.Exchange(ctx, bearer)
	var refused *exchange.Refused
	switch {
	case err == nil:
		return newExchangedToken(issued.Value, asked, issued.Life, e.ttl), nil
	case errors.As(err, &refused):
		e.onExchange(ExchangeRefused)
		if refused.Misconfigured() {
			e.onMisconfigured(refused.Code)
		}
		return nil, errExchange
	}
	e.onExchange(ExchangeUnavailable)
	var fault idp.Fault
	if !errors.As(err, &fault) {
		fault = "it cannot be asked"
	}
	return nil, unavailable(e.client.Name(), fault)
}

// settle remembers a token that was just issued, unless the verdict on it is a
// refusal.
func (e *exchanging) settle(key *tokenDigest, fresh *exchangedToken, verdict error) error {
	if isRefusal(verdict) {
		e.onExchange(ExchangeInvalid)
		e.tokens.remove(key)
		return verdict
	}
	e.onExchange(ExchangeOK)
	e.remember(key, fresh)
	return verdict
}

// validate has the other validator validate an exchanged token. The verdict counts
// until the token is to be renewed.
func (e *exchanging) validate(ctx context.Context, exchanged *exchangedToken) (*Result, error) {
	if !e.now().Before(exchanged.end) {
		return nil, errExpired
	}
	result, err := e.Validator.Authenticate(ctx, exchanged.token)
	if err != nil {
		var seen atSight
		if errors.As(err, &seen) {
			// The bearer costs an exchange: the refusal is to be remembered.
			return nil, seen.Unauthenticated
		}
		return nil, err
	}
	result.Bearer = exchanged.token
	if exchanged.renew.Before(result.until) {
		result.until = exchanged.renew
	}
	if exchanged.end.Before(result.Expires) {
		result.Expires = exchanged.end
	}
	return result, nil
}

func isRefusal(err error) bool {
	var refused *Unauthenticated
	return errors.As(err, &refused)
}

// Faults implements Validator: those of the other validator and that of the
// exchange, of its endpoint, else of the token that it gave last (AUTH-13).
func (e *exchanging) Faults() []string {
	faults := e.Validator.Faults()
	if fault := cmp.Or(e.client.Fault(), e.lastToken.Get(e.now())); fault != "" {
		faults = append(faults, e.client.Name()+": "+string(fault))
	}
	return faults
}

// Close implements Validator.
func (e *exchanging) Close() {
	e.Validator.Close()
	e.tokens.close()
	e.client.Close()
}

// Interface guard.
var _ Validator = (*exchanging)(nil)
