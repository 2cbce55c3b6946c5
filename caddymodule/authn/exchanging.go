package authn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/exchange"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// The results of an exchange, for OnExchange.
const (
	ExchangeOK          = "ok"
	ExchangeRefused     = "refused"     // the provider refused the bearer
	ExchangeUnavailable = "unavailable" // it gave no usable answer, or was not asked
	ExchangeInvalid     = "invalid"     // it gave a token that this cluster does not accept
)

const (
	// renewLimit bounds an exchange while there is a token at hand, so that
	// time is left to validate that one.
	renewLimit = lookupLimit / 2
	// renewPause is the least time between attempts to renew a token.
	renewPause = 5 * time.Second
)

// ExchangingConfig says how a cluster exchanges tokens.
type ExchangingConfig struct {
	// UID and Hash are as in Config.
	UID  types.UID
	Hash string
	// ForwardAccessToken uses the access token of an answer, the ID token is
	// used otherwise.
	ForwardAccessToken bool
	// TTL is how long an exchanged token is kept whose end nobody told, at
	// least a second (token_cache_ttl).
	TTL time.Duration
	// OnExchange, if not nil, is told how each exchange went: one of the
	// Exchange constants. It must not block.
	OnExchange func(result string)
	// OnMisconfigured, if not nil, is told of a refusal that is about the
	// configuration rather than the bearer, with the OAuth error, which is of
	// a fixed list. It must not block.
	OnMisconfigured func(code string)
	// OnFaultChange, if not nil, is told that IssuerFaults may have changed
	// for what an exchange gave. It must not block.
	OnFaultChange func()
}

// Exchanging accepts the long-lived tokens of machines, next to what another
// authenticator accepts (AUTH-14, AUTH-15). Who is asking is told by the token:
// one that names an issuer is for the other authenticator or for nobody. All
// others are exchanged, and what they are exchanged for is validated as any
// token of the cluster.
//
// A bearer is exchanged once for all requests that carry it. What it was
// exchanged for is kept until shortly before its end and validated again
// whenever the verdict on it has lapsed. It is safe for concurrent use.
type Exchanging struct {
	inner inner
	// issuers and innerScope are those of the inner one.
	issuers    []string
	innerScope scope
	client     *exchange.Client
	scope      scope
	cache      *Cache

	use        exchange.Forward
	ttl        time.Duration
	onExchange func(string)
	// onMisconfigured may be nil.
	onMisconfigured func(string)
	unusable        unusable
}

// inner is what an Exchanging builds on: any validator of this package.
type inner interface {
	validator
	// remembers is the scope of its verdicts on bearers.
	remembers() scope
	Refresh()
	IssuerFaults() []string
	Close()
}

var errInner = errors.New("tokens cannot be exchanged for this authenticator")

// NewExchanging makes an Exchanging of another authenticator of this package,
// which it closes with itself, as it does the client. It asks nothing yet.
func NewExchanging(cfg ExchangingConfig, authenticator Authenticator, client *exchange.Client, cache *Cache) (*Exchanging, error) {
	in, ok := authenticator.(inner)
	if !ok {
		return nil, errInner
	}
	onExchange := cfg.OnExchange
	if onExchange == nil {
		onExchange = func(string) {}
	}
	return &Exchanging{
		inner:      in,
		issuers:    in.issuers(),
		innerScope: in.remembers(),
		client:     client,
		// Not that of the inner one: a verdict there is on the bearer itself.
		scope:      cache.newScope(cfg.UID, "token exchange "+cfg.Hash),
		cache:      cache,
		use:        exchange.Forward(cfg.ForwardAccessToken),
		ttl:        max(cfg.TTL, time.Second),
		onExchange: onExchange,

		onMisconfigured: cfg.OnMisconfigured,
		unusable:        unusable{onChange: cfg.OnFaultChange},
	}, nil
}

// Authenticate has a token validated by the inner authenticator, or exchanged.
// A token of another issuer is shown to nobody, nor is one that might be read
// as such; where the issuers are not known (the Kubernetes validator) the
// inner authenticator decides, and the provider of the exchange still sees
// none of them.
func (e *Exchanging) Authenticate(ctx context.Context, token string) (*Result, error) {
	// What is remembered went the right way when it was new.
	key := cacheKey{scope: e.scope, token: digest(token)}
	if result, err, ok := e.cache.recall(&key); ok {
		return result, err
	}
	direct := cacheKey{scope: e.innerScope, token: key.token}
	if result, err, ok := e.cache.recall(&direct); ok {
		return result, err
	}
	kind, issuer := classify(token)
	switch {
	case kind == opaque, kind == signedAnonymous:
		return e.exchanged(ctx, key, token)
	case e.issuers == nil && idp.IsBearer(token), slices.Contains(e.issuers, issuer):
		return e.inner.Authenticate(ctx, token)
	case kind == malformed:
		return nil, errMalformed
	}
	return nil, errUnknownIssuer
}

func (e *Exchanging) exchanged(ctx context.Context, key cacheKey, token string) (*Result, error) {
	e.cache.observe(CacheMiss)
	return e.cache.load(ctx, key, func(ctx context.Context) (answer, error) { return e.validate(ctx, &key, token) })
}

// validate judges what a bearer was exchanged for, and exchanges it when there
// is nothing at hand that is good.
func (e *Exchanging) validate(ctx context.Context, key *cacheKey, token string) (answer, error) {
	now := e.cache.now()
	kept := e.cache.kept.get(key, now)
	if kept != nil && kept.fault != nil {
		return answer{}, kept.fault
	}
	if kept != nil && now.Before(kept.renew) {
		a, err := e.judge(ctx, kept)
		if !isRefusal(err) {
			return a, err
		}
		kept = nil // it was revoked, perhaps, and the bearer was not
	}
	var fault *Unavailable // of what the exchange gave
	fresh, err := e.exchange(ctx, token, kept != nil)
	if err == nil {
		a, verdict := e.judge(ctx, fresh)
		if fault = e.unusableFor(verdict); fault == nil {
			return a, e.settle(key, fresh, verdict)
		}
		e.onExchange(ExchangeInvalid)
		err = fault
	}
	if kept != nil && !isRefusal(err) {
		// It goes on to its end. Refused, or at its end by now, it leaves the
		// bearer without a verdict.
		kept = kept.postponed(e.cache.now())
		if a, verdict := e.judge(ctx, kept); !isRefusal(verdict) {
			e.cache.kept.add(key, kept, e.cache.now())
			return a, verdict
		}
	}
	if fault != nil {
		now = e.cache.now()
		e.cache.kept.add(key, keptFault(fault, now), now)
		return answer{}, fault
	}
	e.cache.kept.remove(key)
	return answer{}, err
}

// exchange has the provider exchange a bearer.
func (e *Exchanging) exchange(ctx context.Context, token string, renewing bool) (*keptToken, error) {
	if renewing {
		limited, cancel := context.WithTimeout(ctx, renewLimit)
		defer cancel()
		ctx = limited
	}
	asked := e.cache.now()
	issued, err := e.client.Exchange(ctx, token, e.use)
	var refused *exchange.Refused
	switch {
	case err == nil:
		return newKeptToken(issued.Value, asked, issued.Life, e.ttl), nil
	case errors.As(err, &refused):
		e.onExchange(ExchangeRefused)
		if refused.Misconfigured() && e.onMisconfigured != nil {
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

// settle keeps a token that was just issued, unless the verdict on it is a
// refusal.
func (e *Exchanging) settle(key *cacheKey, fresh *keptToken, verdict error) error {
	if isRefusal(verdict) {
		e.onExchange(ExchangeInvalid)
		e.cache.kept.remove(key)
		return verdict
	}
	e.onExchange(ExchangeOK)
	e.cache.kept.add(key, fresh, e.cache.now())
	return verdict
}

// judge has the inner validator judge an exchanged token. The verdict counts
// until the token is to be renewed.
func (e *Exchanging) judge(ctx context.Context, kept *keptToken) (answer, error) {
	if !e.cache.now().Before(kept.end) {
		return answer{}, errExpired
	}
	a, err := e.inner.judge(ctx, kept.token)
	if err != nil {
		return answer{}, err
	}
	a.result.Bearer = kept.token
	if kept.renew.Before(a.until) {
		a.until = kept.renew
	}
	if kept.end.Before(a.result.Expires) {
		a.result.Expires = kept.end
	}
	return a, nil
}

func isRefusal(err error) bool {
	var refused *Unauthenticated
	return errors.As(err, &refused)
}

// Refresh is that of the inner authenticator. The endpoint of the exchange can
// only be asked with a token.
func (e *Exchanging) Refresh() { e.inner.Refresh() }

// IssuerFaults are those of the inner authenticator and that of the exchange
// (AUTH-13): of its endpoint, else of the token that it gave last.
func (e *Exchanging) IssuerFaults() []string {
	faults := e.inner.IssuerFaults()
	if fault := cmp.Or(e.client.Fault(), e.unusable.fault(e.cache.now())); fault != "" {
		faults = append(faults, e.client.Name()+": "+fault)
	}
	return faults
}

// Close closes the inner authenticator and the client, and drops the tokens
// that are kept with what is remembered of them.
func (e *Exchanging) Close() {
	e.inner.Close()
	e.cache.drop(e.scope)
	e.client.Close()
}

// Interface guards.
var (
	_ Authenticator = (*Exchanging)(nil)
	_ inner         = (*JWTAuthenticators)(nil)
	_ inner         = (*OIDCProvider)(nil)
	_ inner         = (*Kubernetes)(nil)
)
