package probe

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/identity"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/boundedjson"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/neterr"
)

const (
	// Name is the name and the group of the probe, under the prefixes, and its
	// User-Agent.
	Name = "proxyauth-probe"

	reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	review     = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`

	// limit is how long one question may take whatever its context allows.
	limit = 10 * time.Second
	// maxMessage is the most characters of a verdict's message.
	maxMessage = 256
)

// Apiserver is an apiserver to ask. Each question takes 10 s at most, or what
// its context allows, and follows no redirect.
type Apiserver struct {
	// Transport is the connection. For all questions but Reach it is that of the
	// relay.
	Transport http.RoundTripper
	// Presented is the certificate that Transport presents, for messages; nil where
	// it is of no interest.
	Presented *x509.Certificate
	// Base is the https URL with the path base, without a trailing slash.
	Base string
	// Answers limits what is read of the answers.
	Answers *boundedjson.Reader
}

// reply is the answer to a review. The body is read of a 201 and of a 403 only.
type reply struct {
	code    int
	body    []byte
	release func() // nil without a body
}

// done must be called when the body is no longer needed.
func (a reply) done() {
	if a.release != nil {
		a.release()
	}
}

// ask sends one SelfSubjectReview, with an identity to assert or nil. The fault
// says in words why there is no answer.
func (s Apiserver) ask(ctx context.Context, asserted *identity.Forwarded) (a reply, fault string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := s.reviewRequest(ctx, Name)
	if err != nil {
		return reply{}, "the probe was not sent: " + err.Error()
	}
	if asserted != nil {
		asserted.Assert(req.Header)
	}
	a, err = s.send(req)
	switch {
	case errors.Is(err, boundedjson.ErrTooLarge):
		return reply{}, fmt.Sprintf("the apiserver answered %d to the probe with more than 1 MiB", a.code)
	case err != nil:
		return reply{}, unanswered(ctx, err)
	}
	return a, ""
}

func (s Apiserver) reviewRequest(ctx context.Context, agent string) (*http.Request, error) {
	req, err := s.request(ctx, http.MethodPost, reviewPath, strings.NewReader(review))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["User-Agent"] = []string{agent}
	return req, nil
}

// request makes a request of the proxy's own, without a credential.
func (s Apiserver) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	// Not JoinPath, which would clean a path base that requests keep.
	req, err := http.NewRequestWithContext(ctx, method, s.Base+path, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header = http.Header{
		"Accept":     {"application/json"},
		"User-Agent": {Name},
	}
	return req, nil
}

// send sends a request and reads the answer within limits.
func (s Apiserver) send(req *http.Request) (a reply, err error) {
	res, err := s.Transport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	a.code = res.StatusCode
	if a.code != http.StatusCreated && a.code != http.StatusForbidden {
		return a, nil
	}
	a.body, a.release, err = s.Answers.Read(req.Context(), res.Body)
	return a, err
}

// reviewedUser is the user that the answer to a SelfSubjectReview names.
func reviewedUser(body []byte) (user authenticationv1.UserInfo, ok bool) {
	var review authenticationv1.SelfSubjectReview
	if !decode(body, &review) || review.Kind != "SelfSubjectReview" ||
		review.APIVersion != authenticationv1.SchemeGroupVersion.String() {
		return authenticationv1.UserInfo{}, false
	}
	return review.Status.UserInfo, true
}

// decode reads an answer, unless it holds so many values that it would take many
// times its size in memory: the author of a ProxyKubeApi chooses the server
// (AUTH-13).
func decode(body []byte, into any) bool {
	if !json.Valid(body) {
		return false
	}
	if c := boundedjson.Count(body); c.TooManyMembers() || c.TooManyElements() {
		return false
	}
	return json.Unmarshal(body, into) == nil
}

// unanswered says why the probe got no answer.
func unanswered(ctx context.Context, err error) string {
	if ctx.Err() != nil || neterr.IsTimeout(err) {
		return "the apiserver did not answer the probe in time"
	}
	return "the probe got no answer: " + kindOf(err)
}

// kindOf says what kind of trouble a connection had. The error itself may hold
// addresses of the proxy's network and bytes that the apiserver sent, and a
// status is read by others than the proxy's admin.
func kindOf(err error) string {
	switch neterr.KindOf(err) {
	case neterr.Certificate:
		return "the certificate of the apiserver cannot be verified"
	case neterr.Denied:
		return "the apiserver is at an address to which this proxy does not connect (denied_targets)"
	case neterr.Resolve:
		return "the address of the apiserver cannot be resolved"
	case neterr.Timeout:
		return "the connection took too long"
	case neterr.Refused:
		return "the connection was refused"
	case neterr.RemoteAlert:
		return "the apiserver ended the TLS handshake"
	case neterr.Dial:
		return "the apiserver cannot be connected to"
	}
	return "the connection failed"
}
