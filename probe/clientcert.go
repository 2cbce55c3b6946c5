package probe

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
)

// anonymous is the user of a request in which an apiserver found no credential.
const anonymous = "system:anonymous"

// Seen is the kind of user that an apiserver sees behind a client certificate.
type Seen string

// What an apiserver may see behind a client certificate (CERT-9).
const (
	// SeenAnonymous: a request with the certificate alone is anonymous, or 401.
	SeenAnonymous Seen = "Nobody"
	// SeenIdentity: such a request has a user, who outranks that of any token.
	SeenIdentity Seen = "Identity"
	// SeenUnknown: the answer proves nothing.
	SeenUnknown Seen = "Unknown"
)

// CertVerdict is the result of CheckClientCert.
type CertVerdict struct {
	Seen Seen
	// Message says why Seen is not SeenAnonymous: one line, printable, at most
	// 256 characters. It may quote the user that the apiserver saw.
	Message string
}

// Effect is what the verdict means to requests that would present the
// certificate.
func (v CertVerdict) Effect() Effect {
	switch v.Seen {
	case SeenAnonymous:
		return Passes
	case SeenIdentity:
		return Refuses
	}
	return Inconclusive
}

// Kind is the same for verdicts that differ in their messages only.
func (v CertVerdict) Kind() string { return string(v.Seen) }

// Doubt is why the verdict proves nothing, empty if it proves something.
func (v CertVerdict) Doubt() string {
	if v.Effect() == Inconclusive {
		return v.Message
	}
	return ""
}

// CheckClientCert asks an apiserver which user it sees in a request that has a
// client certificate and no other credential. The transport presents the
// certificate.
func (s Apiserver) CheckClientCert(ctx context.Context) CertVerdict {
	a, fault := s.ask(ctx, nil)
	defer a.done()
	switch {
	case fault != "":
		return unseen(fault)
	case a.code == http.StatusUnauthorized:
		return CertVerdict{Seen: SeenAnonymous}
	case a.code == http.StatusCreated:
		return reviewed(a.body)
	case a.code == http.StatusForbidden:
		return forbiddenTo(a.body)
	}
	return unseen(fmt.Sprintf("the apiserver answered %d to the probe", a.code))
}

func unseen(fault string) CertVerdict {
	return CertVerdict{Seen: SeenUnknown, Message: text.Escape("client_cert: "+fault, maxMessage)}
}

func reviewed(body []byte) CertVerdict {
	user, ok := reviewedUser(body)
	if !ok {
		return unseen("the apiserver's answer to the probe is no SelfSubjectReview")
	}
	return seenAs(user, fmt.Sprintf("user %q, groups %q", user.Username, user.Groups))
}

func seenAs(user authenticationv1.UserInfo, who string) CertVerdict {
	switch user.Username {
	case anonymous:
		return CertVerdict{Seen: SeenAnonymous}
	case "":
		return unseen("the apiserver's answer to the probe names nobody")
	}
	return CertVerdict{Seen: SeenIdentity, Message: text.Escape("the apiserver takes the certificate of client_cert for an identity, which would outrank every token: "+who, maxMessage)}
}

// forbiddenTo reads to which user the apiserver forbids the review: by default it
// does so to anonymous users (`User "x" cannot create resource ...`).
func forbiddenTo(body []byte) CertVerdict {
	const before = `User "`
	var status metav1.Status
	if !decode(body, &status) || status.Kind != "Status" {
		return unseen("the apiserver forbids the probe's SelfSubjectReview (403) and does not say to whom")
	}
	// The first mention is the apiserver's own; a name comes quoted, so that
	// nothing in it can look like another mention.
	_, quoted, found := strings.Cut(status.Message, before)
	name, err := strconv.QuotedPrefix(`"` + quoted)
	if err == nil {
		name, err = strconv.Unquote(name)
	}
	if !found || err != nil {
		return unseen("the apiserver forbids the probe's SelfSubjectReview (403) and does not say to whom")
	}
	return seenAs(authenticationv1.UserInfo{Username: name}, fmt.Sprintf("user %q", name))
}
