package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// ExtraKey is the extra attribute that carries the random value.
const ExtraKey = "proxyauth.weebo.si.rs/probe"

// Effect is what a verdict means to requests that wait for it.
type Effect int

// The effects of a verdict.
const (
	// Inconclusive proves nothing.
	Inconclusive Effect = iota
	// Provisional is less than a proof: it opens a gate of which nothing is known yet.
	Provisional
	// Passes is the proof that was asked for.
	Passes
	// Refuses is the proof of the contrary.
	Refuses
)

// Verdict is the result of CheckTrust.
type Verdict struct {
	Trust v1.Trust
	// Message says why the verdict is not Trusted: one line, printable, at
	// most 256 characters. It may quote what the apiserver sent, and nothing of
	// a credential.
	Message string
	// NamesAssertedUser says that an Unknown came from an apiserver that forbids
	// the review to the asserted user, and names that user: it honoured the
	// identity (TRUST-3).
	NamesAssertedUser bool
}

func unknown(format string, args ...any) Verdict {
	return Verdict{Trust: v1.TrustUnknown, Message: text.Escape(fmt.Sprintf(format, args...), maxMessage)}
}

// Effect is what the verdict means to requests in mode FrontProxy (TRUST-3).
func (v Verdict) Effect() Effect {
	switch v.Trust {
	case v1.TrustTrusted:
		return Passes
	case v1.TrustRejected, v1.TrustNotHonoured:
		return Refuses
	}
	if v.NamesAssertedUser {
		return Provisional
	}
	return Inconclusive
}

// Kind is the same for verdicts that differ in their messages only.
func (v Verdict) Kind() string { return string(v.Trust) }

// Doubt is why the verdict proves nothing, empty if it proves something.
func (v Verdict) Doubt() string {
	if v.Effect() == Inconclusive {
		return v.Message
	}
	return ""
}

// CheckTrust asks an apiserver once whether it honours the proxy (TRUST-1).
// settings are the prefixes of the cluster.
func (s Apiserver) CheckTrust(ctx context.Context, settings identity.Settings) Verdict {
	asserted, violation := identity.Forward(probeIdentity(), settings)
	if violation != nil {
		// Admission and compilation refuse such prefixes.
		return unknown("the probe was not sent: %s", violation.Message())
	}
	a, fault := s.ask(ctx, asserted)
	defer a.done()
	switch {
	case fault != "":
		return unknown("%s", fault)
	case a.code == http.StatusUnauthorized:
		return Verdict{Trust: v1.TrustRejected, Message: text.Escape("the apiserver answered 401"+s.presented()+": --requestheader-client-ca-file does not verify "+
			"it, or --requestheader-allowed-names lacks the CN", maxMessage)}
	case a.code == http.StatusForbidden:
		return forbidden(a.body, asserted)
	case a.code == http.StatusCreated:
		return judge(a.body, asserted)
	}
	return unknown("the apiserver answered %d to the probe", a.code)
}

// presented names the certificate that the apiserver was shown. Both parts are
// short, so that the flags behind them fit the message.
func (s Apiserver) presented() string {
	if s.Presented == nil {
		return " to the proxy's certificate"
	}
	return fmt.Sprintf(" to CN %s, issuer %s", text.Quote(s.Presented.Subject.CommonName, 40), text.Quote(s.Presented.Issuer.String(), 56))
}

// probeIdentity is an identity that no user has: its name and group are known, the
// rest is random, so that no cache in front of the apiserver can answer.
func probeIdentity() *identity.Identity {
	return &identity.Identity{
		Name:   Name,
		UID:    rand.Text(),
		Groups: []string{Name},
		Extra:  map[string][]string{ExtraKey: {rand.Text()}},
	}
}

// judge compares the user that the apiserver saw with the asserted one. Additional
// groups are no fault: the apiserver adds system:authenticated.
func judge(body []byte, asserted *identity.Forwarded) Verdict {
	seen, ok := reviewedUser(body)
	if !ok {
		return unknown("the apiserver's answer to the probe is no SelfSubjectReview")
	}
	var missing []string
	for _, group := range asserted.Groups {
		if !slices.Contains(seen.Groups, group) {
			missing = append(missing, "group (--requestheader-group-headers)")
		}
	}
	for key, values := range asserted.Extra {
		if !slices.Equal(seen.Extra[key], values) {
			missing = append(missing, "extra (--requestheader-extra-headers-prefix)")
		}
	}
	if asserted.UID != "" && seen.UID != asserted.UID {
		missing = append(missing, "uid (--requestheader-uid-headers)")
	}
	message := ""
	switch {
	case seen.Username != asserted.User:
		message = fmt.Sprintf("the apiserver saw another name than the asserted one: user %q, groups %q", seen.Username, seen.Groups)
	case len(missing) > 0:
		message = fmt.Sprintf("the apiserver saw the asserted name without its %s: user %q, groups %q",
			strings.Join(missing, ", "), seen.Username, seen.Groups)
	default:
		return Verdict{Trust: v1.TrustTrusted}
	}
	return Verdict{Trust: v1.TrustNotHonoured, Message: text.Escape(message, maxMessage)}
}

// forbidden is the verdict on a 403. The authorizer of the apiserver forbids the
// review to the user that it saw, and names that user (`User "x" cannot create
// resource …`).
func forbidden(body []byte, asserted *identity.Forwarded) Verdict {
	v := unknown("the apiserver forbids the probe's SelfSubjectReview (403)")
	var status metav1.Status
	if decode(body, &status) && status.Kind == "Status" {
		v.NamesAssertedUser = strings.Contains(status.Message, strconv.Quote(asserted.User))
	}
	return v
}
