package authn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/idp"
)

// Authenticator finds out who the bearer of a token is.
//
// The error is an *Unauthenticated (401) when the token is at fault and an
// *Unavailable (503) when the token could not be judged. Any other error is that
// of a Reviewer, or means that ctx ended before there was an answer; it is no
// verdict on the token either.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (*Result, error)
}

// validator is an Authenticator whose verdict another one may build on: it is
// how the token that an exchange gave is held against the rules of its cluster.
type validator interface {
	Authenticator
	// judge validates a token and remembers nothing.
	judge(ctx context.Context, token string) (answer, error)
	// issuers are the iss of the tokens it can accept, nil for one that leaves
	// that to somebody else.
	issuers() []string
}

// Result is who the bearer of a token is. It is shared between the requests
// that carry the token and must not be changed.
type Result struct {
	Identity *identity.Identity
	// Expires is when the token ends.
	Expires time.Time
	// Bearer is the token that goes to the apiserver in Passthrough in place of
	// the caller's: what it was exchanged for (ID-4). Empty for the caller's own.
	Bearer string
	// WrongAudience says that the token is for another audience and was
	// accepted all the same, under audience_validation warn (AUTH-7).
	WrongAudience bool

	forwarded atomic.Pointer[forwarded]
}

// forwarded is the answer of identity.Forward for some settings.
type forwarded struct {
	settings identity.Settings
	identity *identity.Forwarded
	refusal  *identity.Refusal
}

// Forward is identity.Forward of the identity. The answer for the settings
// asked for last is remembered, so that a token pays for it once and not each
// of its requests.
func (r *Result) Forward(s identity.Settings) (*identity.Forwarded, *identity.Refusal) {
	f := r.forwarded.Load()
	if f == nil || f.settings != s {
		f = &forwarded{settings: s}
		f.identity, f.refusal = identity.Forward(r.Identity, s)
		r.forwarded.Store(f)
	}
	return f.identity, f.refusal
}

// Unauthenticated says that there is no credential, or not a good one (401).
// Nothing in it is taken from the credential, so all of it may be shown.
type Unauthenticated struct {
	// Reason is one of the Reason constants, for metrics and audit.
	Reason string
}

// Error is a sentence about the credential, fit to be shown to the caller.
func (e *Unauthenticated) Error() string {
	if text, ok := reasonTexts[e.Reason]; ok {
		return text
	}
	return "the credential is not accepted"
}

// Unavailable says that a token could not be judged because an identity
// provider gave no usable answer (503, AUTH-13).
type Unavailable struct {
	// Fault is what went wrong, for the log. It names the configured issuer
	// and the kind of fault, and holds nothing a provider wrote.
	Fault string
	// Limit is set when the provider was not asked because of bounds of the
	// proxy's own: which, in words that callers may see.
	Limit string
}

func unavailable(name string, f idp.Fault) *Unavailable {
	u := &Unavailable{Fault: name + ": " + string(f)}
	if f.IsLimit() {
		u.Limit = string(f)
	}
	return u
}

// Error names the fault. Callers are told no more than that the identity
// provider cannot be asked, and Limit.
func (e *Unavailable) Error() string {
	return "the identity provider cannot be asked: " + e.Fault
}

// The reasons of an Unauthenticated.
const (
	ReasonNoCredential     = "no_credential"
	ReasonScheme           = "unsupported_scheme"
	ReasonMalformed        = "malformed"
	ReasonConflict         = "conflicting_credentials"
	ReasonUnknownIssuer    = "unknown_issuer"
	ReasonAudience         = "wrong_audience"
	ReasonExpired          = "expired"
	ReasonNotYetValid      = "not_yet_valid"
	ReasonAlgorithm        = "algorithm"
	ReasonUnknownKey       = "unknown_key"
	ReasonSignature        = "bad_signature"
	ReasonClaims           = "bad_claims"
	ReasonEmailNotVerified = "email_not_verified"
	ReasonRule             = "rule_not_met"
	ReasonTooLarge         = "too_large"
	ReasonApiserver        = "refused_by_apiserver"
	ReasonExchange         = "exchange_refused"
	ReasonInternal         = "internal"

	// The reasons of the validator OidcProvider.
	ReasonOpaque          = "opaque_token"
	ReasonNotIntrospected = "not_introspected"
	ReasonInactive        = "inactive"
	ReasonNotAccepted     = "not_accepted"
	ReasonSubject         = "wrong_subject"
)

var reasonTexts = map[string]string{
	ReasonNoCredential:     "no bearer token was sent",
	ReasonScheme:           "only the Bearer scheme is accepted",
	ReasonMalformed:        "the bearer token is not well formed",
	ReasonConflict:         "more than one credential was sent",
	ReasonUnknownIssuer:    "the token is from an issuer this cluster does not know",
	ReasonAudience:         "the token is for another audience",
	ReasonExpired:          "the token has expired",
	ReasonNotYetValid:      "the token is not valid yet",
	ReasonAlgorithm:        "the token is signed with an algorithm that is not accepted",
	ReasonUnknownKey:       "the token is signed with a key its issuer does not publish",
	ReasonSignature:        "the signature of the token is not right",
	ReasonClaims:           "a claim of the token is missing or has the wrong type",
	ReasonEmailNotVerified: "the e-mail address of the token is not verified",
	ReasonRule:             "the token does not meet a validation rule of this cluster",
	ReasonTooLarge:         "the token is too large for the expressions of this cluster",
	ReasonApiserver:        "the cluster's apiserver refuses the token",
	ReasonExchange:         "the token exchange was refused",
	ReasonInternal:         "the token could not be validated",
	ReasonOpaque:           "the token is opaque, and this cluster accepts signed ones only",
	ReasonNotIntrospected:  "the token is opaque, and its audience cannot be checked by introspection",
	ReasonInactive:         "the identity provider says that the token is not active",
	ReasonNotAccepted:      "the identity provider does not accept the token",
	ReasonSubject:          "the identity provider did not answer for the subject of the token",
}

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
	errInternal         = &Unauthenticated{ReasonInternal}
	errOpaque           = &Unauthenticated{ReasonOpaque}
	errNotIntrospected  = &Unauthenticated{ReasonNotIntrospected}
	errInactive         = &Unauthenticated{ReasonInactive}
	errNotAccepted      = &Unauthenticated{ReasonNotAccepted}
	errSubject          = &Unauthenticated{ReasonSubject}
)
