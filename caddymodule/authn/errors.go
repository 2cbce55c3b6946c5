package authn

import (
	"errors"
	"fmt"
	"strings"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/claims"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/authn/keys"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
)

// Unauthenticated says that there is no credential, or not a good one (401).
type Unauthenticated struct {
	// Reason says what is wrong, in words for the caller. Nothing in it is taken
	// from the credential.
	Reason string
	// Audited is more for the audit log alone: which audiences were expected and
	// received. It quotes claims of a token that need not be verified, in printable
	// form and shortened.
	Audited string
}

// Error is the reason.
func (e *Unauthenticated) Error() string { return e.Reason }

// isProvidersFault reports whether a token that a provider has just issued is
// refused because of how it was made (AUTH-16). The other reasons are about its
// audience and the user that it names.
func (e *Unauthenticated) isProvidersFault() bool {
	switch e.Reason {
	case errMalformed.Reason, errUnknownIssuer.Reason, errExpired.Reason, errNotYetValid.Reason,
		errAlgorithm.Reason, errUnknownKey.Reason, errSignature.Reason, errOpaque.Reason, errNotIntrospected.Reason:
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

// One value per reason: a refusal allocates nothing.
var (
	errNoCredential     = &Unauthenticated{Reason: "no bearer token was sent"}
	errScheme           = &Unauthenticated{Reason: "only the Bearer scheme is accepted"}
	errMalformed        = &Unauthenticated{Reason: "the bearer token is not well formed"}
	errConflict         = &Unauthenticated{Reason: "more than one credential was sent"}
	errUnknownIssuer    = &Unauthenticated{Reason: "the token is from an issuer this cluster does not know"}
	errAudience         = &Unauthenticated{Reason: "the token is for another audience"}
	errExpired          = &Unauthenticated{Reason: "the token has expired"}
	errNotYetValid      = &Unauthenticated{Reason: "the token is not valid yet"}
	errAlgorithm        = &Unauthenticated{Reason: "the token is signed with an algorithm that is not accepted"}
	errUnknownKey       = &Unauthenticated{Reason: "the token is signed with a key its issuer does not publish"}
	errSignature        = &Unauthenticated{Reason: "the signature of the token is not right"}
	errClaims           = &Unauthenticated{Reason: "a claim of the token is missing or has the wrong type"}
	errEmailNotVerified = &Unauthenticated{Reason: "the e-mail address of the token is not verified"}
	errRule             = &Unauthenticated{Reason: "the token does not meet a validation rule of this cluster"}
	errTooLarge         = &Unauthenticated{Reason: "the token is too large for the expressions of this cluster"}
	errExchange         = &Unauthenticated{Reason: "the token exchange was refused"}
	errApiserver        = &Unauthenticated{Reason: "the cluster's apiserver refuses the token"}
	errInternal         = &Unauthenticated{Reason: "the token could not be validated"}
	errOpaque           = &Unauthenticated{Reason: "the token is opaque, and this cluster accepts signed ones only"}
	errNotIntrospected  = &Unauthenticated{Reason: "the token is opaque, and its audience cannot be checked by introspection"}
	errInactive         = &Unauthenticated{Reason: "the identity provider says that the token is not active"}
	errNotAccepted      = &Unauthenticated{Reason: "the identity provider does not accept the token"}
	errSubject          = &Unauthenticated{Reason: "the identity provider did not answer for the subject of the token"}
)

const (
	// maxAudited bounds each audience that the audit log names, in characters, and
	// maxAudiences how many of a list it names.
	maxAudited   = 64
	maxAudiences = 4
)

// wrongAudience is errAudience with what the audit log says of it.
func wrongAudience(expected, received []string) *Unauthenticated {
	return &Unauthenticated{Reason: errAudience.Reason, Audited: "expected " + audited(expected) + ", received " + audited(received)}
}

func audited(audiences []string) string {
	if len(audiences) == 0 {
		return "none"
	}
	var list []string
	for _, audience := range audiences[:min(len(audiences), maxAudiences)] {
		list = append(list, text.Quote(audience, maxAudited))
	}
	if more := len(audiences) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}
