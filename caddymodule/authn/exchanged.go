package authn

import (
	"errors"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

const (
	// An exchanged token is renewed this long before its end, or a tenth of its
	// life before, whichever is less.
	renewAhead = 30 * time.Second
	renewPart  = 10
)

// exchangedToken is what a bearer was exchanged for (AUTH-15). It outlives the
// verdicts on it, so that a verdict that counts for half a minute costs no
// exchange twice a minute.
type exchangedToken struct {
	token string
	// fault, if not nil, is why there is no token: this cluster does not accept
	// what the provider gave.
	fault *Unavailable
	// renew is when it is time for another one, end when the token is good for
	// nothing. Both are times of day.
	renew, end time.Time
}

// newExchangedToken says how long a token is remembered that was asked for at some
// time: to its exp, or as long as the provider said, whichever ends first, and for
// fallback when neither is known. Nothing else is believed of a token that is not
// verified yet: an early end is the most that it can bring about.
func newExchangedToken(token string, asked time.Time, life, fallback time.Duration) *exchangedToken {
	end, known := claimedExpiry(token)
	if life > 0 && (!known || asked.Add(life).Before(end)) {
		end, known = asked.Add(life), true
	}
	if !known {
		end = asked.Add(fallback)
	}
	end = end.Round(0)
	return &exchangedToken{token: token, end: end, renew: end.Add(-min(renewAhead, max(0, end.Sub(asked))/renewPart))}
}

// faultyToken remembers for a while that an exchange gave no usable token, so that
// a machine that tries again costs no exchange.
func faultyToken(fault *Unavailable, now time.Time) *exchangedToken {
	end := now.Add(refusedFor).Round(0)
	return &exchangedToken{fault: fault, renew: end, end: end}
}

// postponed is the token with its renewal put off.
func (t *exchangedToken) postponed(now time.Time) *exchangedToken {
	later := *t
	later.renew = now.Add(renewPause).Round(0)
	if t.end.Before(later.renew) {
		later.renew = t.end
	}
	return &later
}

// remembered is what a bearer was exchanged for, nil for nothing that still
// counts.
func (e *exchanging) remembered(bearer *tokenDigest, now time.Time) *exchangedToken {
	t, ok := e.tokens.get(bearer)
	if ok && !now.Before(t.end) {
		e.tokens.remove(bearer)
		return nil
	}
	return t
}

func (e *exchanging) remember(bearer *tokenDigest, t *exchangedToken) {
	e.tokens.add(bearer, t, entryOverhead+len(t.token))
}

// providersFault returns the fault of the provider that a verdict on a token shows
// that it just issued, nil for none: a verdict that is not about how the token was
// made stays what it is.
func (e *exchanging) providersFault(verdict error) *Unavailable {
	if verdict == nil {
		e.lastToken.Set("", e.now())
		return nil
	}
	var refused *Unauthenticated
	if !errors.As(verdict, &refused) || !refused.isProvidersFault() {
		return nil
	}
	what := "it gave a token that is not valid here: " + refused.Error()
	e.lastToken.Set(idp.Fault(what), e.now())
	return &Unavailable{Fault: e.client.Name() + ": " + what}
}
