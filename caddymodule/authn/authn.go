package authn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
)

// Validator finds out who the bearer of a token is. There is one kind for each
// validate_against, one that exchanges tokens before another validates them, and
// one that remembers the results of another. All are safe for concurrent use.
type Validator interface {
	// Authenticate validates a token.
	//
	// The error is an *Unauthenticated (401) when the token is at fault, an
	// *Unavailable (503) when the token could not be judged, and a *ReviewFailure
	// (502 or 503) when the cluster's apiserver gave no verdict. Any other error
	// means that ctx ended before there was an answer; it is no verdict on the
	// token either.
	Authenticate(ctx context.Context, token string) (*Result, error)
	// Refresh begins to read the keys and endpoints of identity providers again
	// where they are due, and does not wait. Without it a provider could fail
	// between two tokens, and Faults would not know.
	Refresh()
	// Faults lists the providers that gave no usable answer when last asked, each
	// with what was wrong, for the notice IssuerUnavailable (AUTH-13). It is in
	// the order of the configuration and holds nothing that a provider wrote.
	Faults() []string
	// AsksApiserver reports whether the cluster's own apiserver is asked about
	// tokens (AUTH-8), and so sees them.
	AsksApiserver() bool
	// Close gives back what the validator holds and forgets what it remembers. A
	// request that is still with it is answered with the keys that are known.
	Close()
}

// Result is who the bearer of a token is. It is shared between the requests that
// carry the token and must not be changed.
type Result struct {
	Identity *identity.Identity
	// Expires is when the token ends.
	Expires time.Time
	// Bearer is the token that goes to the apiserver in Passthrough in place of
	// the caller's: what it was exchanged for (ID-4). Empty for the caller's own.
	Bearer string
	// WrongAudience says that the token is for another audience and was accepted
	// all the same, under audience_validation warn (AUTH-7).
	WrongAudience bool

	// until is how long the result may be remembered; Expires counts too.
	until time.Time
	// stillValid, if not nil, can end the result before that. It must not wait.
	stillValid func(now time.Time) bool

	forwarded atomic.Pointer[forwarded]
}

// forwarded is the answer of identity.Forward for some settings.
type forwarded struct {
	settings  identity.Settings
	identity  *identity.Forwarded
	violation *identity.Violation
}

// Forward is identity.Forward of the identity. The answer for the settings asked
// for last is remembered, so that a token pays for it once and not each of its
// requests.
func (r *Result) Forward(s identity.Settings) (*identity.Forwarded, *identity.Violation) {
	f := r.forwarded.Load()
	if f == nil || f.settings != s {
		f = &forwarded{settings: s}
		f.identity, f.violation = identity.Forward(r.Identity, s)
		r.forwarded.Store(f)
	}
	return f.identity, f.violation
}
