package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
)

// anonymous is whom an apiserver sees that took no credential for one.
const anonymous = "system:anonymous"

// Seen is what an apiserver takes a client certificate for.
type Seen string

// What an apiserver may take a client certificate for (CERT-9).
const (
	// SeenNobody: a request with the certificate alone is anonymous, or 401.
	SeenNobody Seen = "Nobody"
	// SeenIdentity: it runs under an identity, which outranks any token.
	SeenIdentity Seen = "Identity"
	// SeenUnknown: the answer proves nothing.
	SeenUnknown Seen = "Unknown"
)

// CertVerdict is what one check of a client certificate found out.
type CertVerdict struct {
	Seen Seen
	// Message says why Seen is not SeenNobody: one line, printable, at most
	// 256 characters. It may quote whom the apiserver saw.
	Message string
}

// Effect is what the verdict means to requests that would present the
// certificate.
func (v CertVerdict) Effect() Effect {
	switch v.Seen {
	case SeenNobody:
		return Passes
	case SeenIdentity:
		return Refuses
	}
	return Inconclusive
}

// Kind tells verdicts apart whose messages may differ.
func (v CertVerdict) Kind() string { return string(v.Seen) }

// CheckClientCert asks an apiserver whom it sees in a request that has a client
// certificate and no other credential. rt is the connection of the relay, which
// presents the certificate; base is as in Check, and so is the time.
func CheckClientCert(ctx context.Context, rt http.RoundTripper, base *url.URL) CertVerdict {
	a, fault := ask(ctx, rt, base, nil)
	defer a.done()
	switch {
	case fault != "":
		return unseen(fault)
	case a.code == http.StatusUnauthorized:
		return CertVerdict{Seen: SeenNobody}
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
		return CertVerdict{Seen: SeenNobody}
	case "":
		return unseen("the apiserver's answer to the probe names nobody")
	}
	return CertVerdict{Seen: SeenIdentity, Message: text.Escape("the apiserver takes the certificate of client_cert for an identity, which would outrank every token: "+who, maxMessage)}
}

// forbiddenTo reads whom the apiserver forbids the review: by default nobody
// anonymous may ask who they are (`User "x" cannot create resource ...`).
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
