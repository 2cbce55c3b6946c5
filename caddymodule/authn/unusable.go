package authn

import (
	"errors"
	"sync"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// unusable remembers for IssuerFaults that the last token of an exchange was
// none for this cluster (AUTH-16). The endpoint itself answered as it should.
type unusable struct {
	// onChange, if not nil, is told that fault may have changed.
	onChange func()

	mu   sync.Mutex
	what string
	at   time.Time
}

// set notes what is wrong with a token, empty for one that is good.
func (u *unusable) set(what string, now time.Time) {
	u.mu.Lock()
	changed := what != u.shown(now)
	u.what, u.at = what, now
	u.mu.Unlock()
	if changed && u.onChange != nil {
		u.onChange()
	}
}

// fault is what was wrong with the last token, empty for nothing or when that is
// long ago.
func (u *unusable) fault(now time.Time) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.shown(now)
}

func (u *unusable) shown(now time.Time) string {
	if now.Sub(u.at) >= idp.FaultAge {
		return ""
	}
	return u.what
}

// unusableFor returns the fault of the provider that a verdict on a token shows
// that it just issued, nil for none: a verdict that is not about who made the
// token stays what it is.
func (e *Exchanging) unusableFor(verdict error) *Unavailable {
	if verdict == nil {
		e.unusable.set("", e.cache.now())
		return nil
	}
	var refused *Unauthenticated
	if !errors.As(verdict, &refused) || !refused.isAboutMaking() {
		return nil
	}
	what := "it gave a token that is not valid here: " + refused.Error()
	e.unusable.set(what, e.cache.now())
	return &Unavailable{Fault: e.client.Name() + ": " + what}
}

// isAboutMaking reports whether the reason lies with who made the token. All
// others are about whom it is for and about whom it names.
func (e *Unauthenticated) isAboutMaking() bool {
	switch e.Reason {
	case ReasonMalformed, ReasonUnknownIssuer, ReasonExpired, ReasonNotYetValid,
		ReasonAlgorithm, ReasonUnknownKey, ReasonSignature, ReasonOpaque, ReasonNotIntrospected:
		return true
	}
	return false
}
