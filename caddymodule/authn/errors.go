package authn

import (
	"errors"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// Unauthenticated says that there is no credential, or not a good one (401).
// Nothing in it is taken from the credential, so all of it may be shown.
type Unauthenticated struct {
	// Reason is one of the Reason constants.
	Reason string
}

// Error is a sentence about the credential, fit to be shown to the caller.
func (e *Unauthenticated) Error() string { return e.Reason }

// isProvidersFault reports whether a token that a provider has just issued is
// refused because of how it was made (AUTH-16). The other reasons are about its
// audience and the user that it names.
func (e *Unauthenticated) isProvidersFault() bool {
	switch e.Reason {
	case ReasonMalformed, ReasonUnknownIssuer, ReasonExpired, ReasonNotYetValid,
		ReasonAlgorithm, ReasonUnknownKey, ReasonSignature, ReasonOpaque, ReasonNotIntrospected:
		return true
	}
	return false
}

// atSight marks a refusal that was found by looking at a token and at what is at
// hand. It is not remembered: a flood of such tokens fills no cache, and costs no
// more the second time.
type atSight struct{ *Unauthenticated }

func (e atSight) Unwrap() error { return e.Unauthenticated }

// Unavailable says that a token could not be judged because an identity provider
// gave no usable answer (503, AUTH-13).
type Unavailable struct {
	// Fault is what went wrong, for the log. It names the configured issuer and
	// the kind of fault, and holds nothing a provider wrote.
	Fault string
	// Limit is set when the provider was not asked because of bounds of the
	// proxy's own: which, in words that callers may see.
	Limit string
}

// Error names the fault. Callers are told no more than that the identity
// provider cannot be asked, and Limit.
func (e *Unavailable) Error() string {
	return "the identity provider cannot be asked: " + e.Fault
}

func unavailable(name string, f idp.Fault) *Unavailable {
	u := &Unavailable{Fault: name + ": " + string(f)}
	if f.IsLimit() {
		u.Limit = string(f)
	}
	return u
}

// ReviewFailure says that the cluster's apiserver gave no verdict on a token
// (AUTH-8).
type ReviewFailure struct {
	// Status is 502 or 503, 0 when the apiserver did not answer.
	Status int
	// Reason is for the audit line, Message for the caller.
	Reason, Message string
	// Err is what sending the request or reading the answer gave, nil when Status
	// is set. It is to be described as that of any request to the apiserver.
	Err error
}

func (e *ReviewFailure) Error() string {
	if e.Err != nil {
		return "asking the cluster's apiserver about a token: " + e.Err.Error()
	}
	return e.Message
}

func (e *ReviewFailure) Unwrap() error { return e.Err }

// errBusy is for a token that waited for its turn until its time was over.
var errBusy = &Unavailable{Fault: claims.ErrBusy.Error(), Limit: claims.ErrBusy.Error()}

// ErrSlow is for a token over which the expressions of its cluster took too long. The
// token may be a good one. Yet it is remembered for a moment, as a refused one is: it
// would take the turn of others again (AUTH-17).
var ErrSlow = &Unavailable{Fault: claims.ErrSlow.Error(), Limit: claims.ErrSlow.Error()}

// verdict is the error of this package for one of the packages keys and claims,
// of a token of this issuer.
func verdict(issuer string, err error) error {
	var fault idp.Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return unavailable(issuer, fault)
	}
	switch err {
	case claims.ErrClaim:
		return errClaims
	case claims.ErrEmailNotVerified:
		return errEmailNotVerified
	case claims.ErrRule:
		return errRule
	case claims.ErrTooLarge:
		return errTooLarge
	case keys.ErrUnknownKey:
		return errUnknownKey
	case keys.ErrUnknownYet:
		// The next attempt may find the key: it would be late by as long as this is
		// remembered.
		return atSight{errUnknownKey}
	case keys.ErrSignature:
		return errSignature
	case claims.ErrBusy, keys.ErrBusy:
		return errBusy
	case claims.ErrSlow:
		return ErrSlow
	}
	return errInternal
}

// The reasons of an Unauthenticated.
const (
	ReasonNoCredential     = "no bearer token was sent"
	ReasonScheme           = "only the Bearer scheme is accepted"
	ReasonMalformed        = "the bearer token is not well formed"
	ReasonConflict         = "more than one credential was sent"
	ReasonUnknownIssuer    = "the token is from an issuer this cluster does not know"
	ReasonAudience         = "the token is for another audience"
	ReasonExpired          = "the token has expired"
	ReasonNotYetValid      = "the token is not valid yet"
	ReasonAlgorithm        = "the token is signed with an algorithm that is not accepted"
	ReasonUnknownKey       = "the token is signed with a key its issuer does not publish"
	ReasonSignature        = "the signature of the token is not right"
	ReasonClaims           = "a claim of the token is missing or has the wrong type"
	ReasonEmailNotVerified = "the e-mail address of the token is not verified"
	ReasonRule             = "the token does not meet a validation rule of this cluster"
	ReasonTooLarge         = "the token is too large for the expressions of this cluster"
	ReasonApiserver        = "the cluster's apiserver refuses the token"
	ReasonExchange         = "the token exchange was refused"
	ReasonInternal         = "the token could not be validated"

	// The reasons of the validator OidcProvider.
	ReasonOpaque          = "the token is opaque, and this cluster accepts signed ones only"
	ReasonNotIntrospected = "the token is opaque, and its audience cannot be checked by introspection"
	ReasonInactive        = "the identity provider says that the token is not active"
	ReasonNotAccepted     = "the identity provider does not accept the token"
	ReasonSubject         = "the identity provider did not answer for the subject of the token"
)

// One value per reason: a refusal allocates nothing.
var (
	errNoCredential     = &Unauthenticated{ReasonNoCredential}
	errScheme           = &Unauthenticated{ReasonScheme}
	errMalformed        = &Unauthenticated{ReasonMalformed}
	errConflict         = &Unauthenticated{ReasonConflict}
	errUnknownIssuer    = &Unauthenticated{ReasonUnknownIssuer}
	errAudience         = &Unauthenticated{ReasonAudience}
	errExpired          = &Unauthenticated{ReasonExpired}
	errNotYetValid      = &Unauthenticated{ReasonNotYetValid}
	errAlgorithm        = &Unauthenticated{ReasonAlgorithm}
	errUnknownKey       = &Unauthenticated{ReasonUnknownKey}
	errSignature        = &Unauthenticated{ReasonSignature}
	errClaims           = &Unauthenticated{ReasonClaims}
	errEmailNotVerified = &Unauthenticated{ReasonEmailNotVerified}
	errRule             = &Unauthenticated{ReasonRule}
	errTooLarge         = &Unauthenticated{ReasonTooLarge}
	errExchange         = &Unauthenticated{ReasonExchange}
	errApiserver        = &Unauthenticated{ReasonApiserver}
	errInternal         = &Unauthenticated{ReasonInternal}
	errOpaque           = &Unauthenticated{ReasonOpaque}
	errNotIntrospected  = &Unauthenticated{ReasonNotIntrospected}
	errInactive         = &Unauthenticated{ReasonInactive}
	errNotAccepted      = &Unauthenticated{ReasonNotAccepted}
	errSubject          = &Unauthenticated{ReasonSubject}
)
