package probe

import (
	"fmt"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// Effect is what a verdict means to requests that wait for it.
type Effect int

// The effects of a verdict.
const (
	// Inconclusive proves nothing.
	Inconclusive Effect = iota
	// Believed is short of a proof, and enough where nothing is known yet.
	Believed
	// Passes is the proof that was asked for.
	Passes
	// Refuses is the proof of the contrary.
	Refuses
)

// Verdict is what one probe found out (TRUST-1).
type Verdict struct {
	Trust v1.Trust
	// Message says why the verdict is not Trusted: one line, printable, at
	// most 256 characters. It may quote what the apiserver sent, and nothing of
	// a credential.
	Message string
	// NamesAssertedUser marks the Unknown of an apiserver that forbids the
	// review itself, in words that name the asserted user: it did believe the
	// proxy (TRUST-3).
	NamesAssertedUser bool
}

func unknown(format string, args ...any) Verdict {
	return Verdict{Trust: v1.TrustUnknown, Message: text.Escape(fmt.Sprintf(format, args...), maxMessage)}
}

// Effect is what the verdict means to requests in FrontProxy (TRUST-3).
func (v Verdict) Effect() Effect {
	switch v.Trust {
	case v1.TrustTrusted:
		return Passes
	case v1.TrustRejected, v1.TrustNotHonoured:
		return Refuses
	}
	if v.NamesAssertedUser {
		// An apiserver that forbids the review itself, to the user we
		// asserted, has believed the proxy.
		return Believed
	}
	return Inconclusive
}

// Kind tells verdicts apart whose messages may differ.
func (v Verdict) Kind() string { return string(v.Trust) }
